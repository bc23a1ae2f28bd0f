"""The file: whole or not at all, the same bytes again; what is refused, and what the loader says of damaged files."""

from __future__ import annotations

import importlib.util
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.command import Cli, Refused
from tests.uses.sampling.toy import SHAPE, toy_network
from wdport.base.errors import InputError, MachineError, UsageError, WdportError
from wdport.files.zip_seal import seal_of
from wdport.uses.exporting import loader
from wdport.uses.exporting.artifact import export_target, member_digests, read_facts, write_artifact
from wdport.uses.exporting.lowering import Lowered, Lowering, lower_denoiser
from wdport.uses.exporting.verification import _require_facts

FACTS = {"what": "denoiser", "platforms": ["cpu"], "batch": None, "coefficients": 5, "features": 3, "dtype": "float32"}


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    return lower_denoiser(toy_network(), Lowering(("cpu",), None, "highest"))


def write(path: Path, lowered: Lowered, force: bool = False) -> Path:
    write_artifact(export_target(path, force=force), FACTS, lowered.programs, lowered.arrays)
    return path


@pytest.fixture(scope="module")
def sound(lowered: Lowered, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An artifact that loads and runs."""
    path = write(tmp_path_factory.mktemp("sound") / "a.stablehlo", lowered)
    assert loader.load(path)(np.zeros((1, *SHAPE)), [0.5]).shape == (1, *SHAPE)
    return path.read_bytes()


def test_equal_contents_are_equal_bytes(lowered: Lowered, tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, lowered) for name in ("a.stablehlo", "b.stablehlo"))
    assert first.read_bytes() == second.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failure_leaves_the_old_file(lowered: Lowered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.stablehlo"
    path.write_bytes(b"old")

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match=r"could not be written.*free some space"):
        write(path, lowered, force=True)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.stablehlo"]


def test_without_flatbuffers_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match=r"needs flatbuffers, which is not installed; install wdport"):
        export_target(tmp_path / "a.stablehlo")


def damage(path: Path, change: Callable[[dict[str, bytes]], Any]) -> None:
    """The artifact with its members changed, and sealed anew."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = seal_of(archive)


def edited(**changes: Any) -> Callable[[dict[str, bytes]], Any]:
    return lambda members: members.update(
        {"facts.json": json.dumps({**json.loads(members["facts.json"]), **changes}).encode()}
    )


DAMAGED: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "no facts": (lambda members: members.pop("facts.json"), "not a model that wdport exported"),
    "no weights": (lambda members: members.pop("weights.bin"), "not a model that wdport exported"),
    "short weights": (lambda members: members.update({"weights.bin": b"\0"}), "is damaged"),
    "long weights": (lambda members: members.update({"weights.bin": b"\0" * 5}), "weights are left over"),
    "another format": (edited(format=2), "has format 2, this loader reads 1"),
    "unknown kind": (edited(what="decoder"), "not a model that wdport exported"),
    "no JSON": (lambda members: members.update({"facts.json": b"{"}), "not a model that wdport exported"),
    "a list": (lambda members: members.update({"facts.json": b"[]"}), "not a model that wdport exported"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_line(sound: bytes, tmp_path: Path, case: str) -> None:
    change, expected = DAMAGED[case]
    path = tmp_path / "a.stablehlo"
    path.write_bytes(sound)
    damage(path, change)
    with pytest.raises(loader.ArtifactError) as raised:
        loader.load(path)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_damage_raises_anything_else(sound: bytes, tmp_path: Path) -> None:
    random, refused = np.random.default_rng(0), list[str]()
    for at in range(60):
        changed = bytearray(sound)
        changed[random.integers(len(sound))] ^= 1 << random.integers(8)
        (tmp_path / "b.stablehlo").write_bytes(changed[: random.integers(1, len(sound))] if at % 4 == 0 else changed)
        try:
            loader.load(tmp_path / "b.stablehlo")
        except loader.ArtifactError as error:
            refused.append(str(error))
    assert len(refused) > 40
    assert not any("\n" in said for said in refused)


@pytest.mark.parametrize("data", [b"", b"PK", b"no archive at all"])
def test_no_archive(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.stablehlo").write_bytes(data)
    with pytest.raises(loader.ArtifactError, match="not a model that wdport exported"):
        loader.load(tmp_path / "a.stablehlo")
    with pytest.raises(loader.ArtifactError, match=r"nope.stablehlo: cannot be read \(No such file or directory\)"):
        loader.load(tmp_path / "nope.stablehlo")


def test_the_command(converted: Path, tmp_path: Path, cli: Cli, refused: Refused) -> None:
    path = tmp_path / "a.stablehlo"
    options = ("--what", "sampler", "--platforms", "cpu,tpu", "--sampler", "ddim", "--steps", "4", "-o", path)
    shown = cli("export", converted, *options)
    assert shown.err == ""
    assert "small.keras: sampler exported" in shown.out
    assert "ddim, 5 network calls" in shown.out
    assert "coefficients (b, 26, 3), series (b, 24, 3)" in shown.out
    assert loader.load(path).facts["platforms"] == ["cpu", "tpu"]
    refused("export", converted, *options, says="exists already; give another name with -o, or --force")


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"batch": 0}, "batch: invalid value 0; give a whole number from 1"),
    ({"what": "all"}, "what: 'all' is unknown; give denoiser, sampler or network"),
    ({"precision": "high"}, "precision: 'high' is unknown; give highest or default"),
    ({"eta": 0.5}, "sampler: a denoiser has none; leave out sampler, steps, eta and spacing, or export a sampler"),
    ({"what": "denoiser", "sizes": {"n": 3}}, "sizes: are for a network; leave them out, or export a network"),
    ({"what": "network", "inputs": ["x: b 3"]}, "inputs: a waveletdiff model has its own; leave them out"),
    ({}, "model: a int is not a Keras model; give what wdport.load_model returns"),
]


def test_the_impossible_is_refused(converted: Path, tmp_path: Path) -> None:
    model = wdport.load_model(converted)
    for given, expected in IMPOSSIBLE:
        with pytest.raises(UsageError) as refused:
            wdport.export(model if given else 7, tmp_path / "a.stablehlo", **given)
        assert str(refused.value) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["facts.json", "weights.bin", "denoise.program"])
def test_a_member_that_was_replaced_is_found(sound: bytes, tmp_path: Path, name: str) -> None:
    """Also where the CRC and the facts fit it: the archive's seal does not."""
    path = tmp_path / "a.stablehlo"
    path.write_bytes(sound)
    with zipfile.ZipFile(path) as archive:
        seal, names = archive.comment, archive.namelist()
    wanted = next(each for each in names if each.endswith(name.removeprefix("denoise")))

    def replace(members: dict[str, bytes]) -> None:
        data = bytearray(members[wanted])
        data[-3] ^= 1
        members[wanted] = bytes(data) if name != "facts.json" else members[wanted].replace(b'"cpu"', b'"cpu" ')

    damage(path, replace)
    for comment in (b"", seal):
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = comment
        with pytest.raises(loader.ArtifactError, match="is not a model that wdport exported, or is damaged"):
            loader.load(path)
    with pytest.raises(InputError, match="that wdport wrote"):
        (read_facts if name == "facts.json" else member_digests)(path)


def test_files_that_are_no_artifacts(tmp_path: Path) -> None:
    path = tmp_path / "a.stablehlo"
    path.write_text("not an archive")
    with pytest.raises(InputError, match="is not a model that wdport exported"):
        read_facts(path)
    with pytest.raises(InputError, match="is damaged"):
        member_digests(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", "1")
    with pytest.raises(InputError, match="is not a model that wdport exported"):
        read_facts(path)


def test_two_members_of_one_name(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.stablehlo"
    path.write_bytes(sound)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("weights.bin", b"another")
    with pytest.raises(InputError, match="has two members of one name"):
        member_digests(path)


SOUND: dict[str, Any] = {"what": "denoiser", "precision": "highest", "batch": None, "platforms": ["cpu"],
         "compute_dtype": "float32"}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"what": "nonsense"}, "its facts are not those that wdport writes"),
        ({"batch": 1 << 24}, "its facts are not those that wdport writes"),
        ({"platforms": None}, r"its facts are not those that wdport writes \('NoneType' object is not iterable\)"),
        ({"compute_dtype": "float8"}, "computes in float8, which is not compared"),
    ],
)
def test_facts_of_another_form(changes: dict[str, Any], said: str) -> None:
    _require_facts(Path("a.stablehlo"), SOUND)
    with pytest.raises(WdportError, match=said):
        _require_facts(Path("a.stablehlo"), {**SOUND, **changes})
