"""The file: whole or not at all, the same bytes again; what is refused, and what the loader says of damaged files."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.make import SETTINGS, TINY, make_state, save
from tests.sampling.toy import SHAPE, toy_network
from wdport.cli.main import main
from wdport.errors import InputError, MachineError, UsageError
from wdport.exporting import loader
from wdport.exporting.artifact import export_target, member_digests, read_facts, write_artifact
from wdport.exporting.lowering import Lowered, Lowering, lower_denoiser

FACTS = {"what": "denoiser", "platforms": ["cpu"], "batch": None, "coefficients": 5, "features": 3, "dtype": "float32"}


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    return lower_denoiser(toy_network(), Lowering(("cpu",), None, "highest"))


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wdport.convert(save(tmp_path_factory.mktemp("cli") / "small.ckpt", make_state(TINY)), values=SETTINGS).output


def write(path: Path, lowered: Lowered, force: bool = False) -> Path:
    write_artifact(export_target(path, force=force), FACTS, lowered.programs, lowered.arrays)
    return path


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
    """The artifact with its members changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


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
def test_a_damaged_file_is_one_line(lowered: Lowered, tmp_path: Path, case: str) -> None:
    change, expected = DAMAGED[case]
    path = write(tmp_path / "a.stablehlo", lowered)
    assert loader.load(path)(np.zeros((1, *SHAPE)), [0.5]).shape == (1, *SHAPE)
    damage(path, change)
    with pytest.raises(loader.ArtifactError) as raised:
        loader.load(path)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_damage_raises_anything_else(lowered: Lowered, tmp_path: Path) -> None:
    whole = write(tmp_path / "a.stablehlo", lowered).read_bytes()
    random, refused = np.random.default_rng(0), list[str]()
    for at in range(60):
        changed = bytearray(whole)
        changed[random.integers(len(whole))] ^= 1 << random.integers(8)
        (tmp_path / "b.stablehlo").write_bytes(changed[: random.integers(1, len(whole))] if at % 4 == 0 else changed)
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


def test_the_command(converted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.stablehlo"
    options = ["--what", "sampler", "--platforms", "cpu,tpu", "--sampler", "ddim", "--steps", "4", "-o", str(path)]
    assert main(["export", str(converted), *options]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "small.keras: sampler exported" in shown.out
    assert "ddim, 5 network calls" in shown.out
    assert "coefficients (b, 26, 3), series (b, 24, 3)" in shown.out
    assert loader.load(path).facts["platforms"] == ["cpu", "tpu"]
    assert main(["export", str(converted), *options]) == 2
    assert "exists already; give another name with -o, or --force" in capsys.readouterr().err


REFUSALS: dict[str, tuple[list[str], int, str]] = {
    "no model": (["nope.keras"], 3, "no such file"),
    "format": (["MODEL", "-o", "a.onnx"], 2, "unknown output format; end the name in .stablehlo"),
    "folder": (["MODEL", "-o", "nope/a.stablehlo"], 2, "its folder does not exist"),
    "platform": (["MODEL", "--platforms", "cpu,npu", "-o", "OUT"], 2, "unknown platform 'npu'; give some of cpu, cuda"),
    "no platform": (["MODEL", "--platforms", ",", "-o", "OUT"], 2, "unknown platform ''"),
    "what": (
        ["MODEL", "--what", "all", "-o", "OUT"],
        2,
        "--what: unknown name 'all'; use one of denoiser, sampler",
    ),
    "steps of a denoiser": (["MODEL", "--steps", "5", "-o", "OUT"], 2, "--sampler: requires --what sampler"),
    "sampler": (["MODEL", "--what", "sampler", "--sampler", "plms", "-o", "OUT"], 2, "unknown name 'plms'"),
    "batch": (["MODEL", "--batch-size", "0", "-o", "OUT"], 2, "--batch-size: invalid value '0'; give a whole number"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(converted: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, code, expected = REFUSALS[name]
    given = [{"MODEL": str(converted), "OUT": str(tmp_path / "a.stablehlo")}.get(each, each) for each in arguments]
    assert main(["export", *given]) == code
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert expected in shown.err
    assert list(tmp_path.iterdir()) == []


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "batch": ({"batch": 0}, "batch: invalid sample count 0"),
    "what": ({"what": "all"}, "what: 'all' is unknown; give denoiser, sampler or network"),
    "precision": ({"precision": "high"}, "precision: 'high' is unknown; give highest or default"),
    "eta of a denoiser": ({"eta": 0.5}, "sampler: a denoiser has none"),
    "no model": ({}, "a int is not a Keras model"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_the_impossible_is_refused(converted: Path, tmp_path: Path, case: str) -> None:
    given, expected = IMPOSSIBLE[case]
    model = 7 if case == "no model" else wdport.load_model(converted)
    with pytest.raises(UsageError) as raised:
        wdport.export(model, tmp_path / "a.stablehlo", **given)
    assert expected in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_refusals_import_nothing_heavy(converted: Path) -> None:
    code = (
        "import sys; from wdport.cli.main import main; code = main(sys.argv[1:]); "
        "print(code, [m for m in ('torch', 'keras', 'jax', 'scipy') if m in sys.modules])"
    )
    arguments = ["export", str(converted), "-o", str(converted.with_suffix(".onnx"))]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "2 []"


@pytest.mark.parametrize("name", ["facts.json", "weights.bin", "denoise.program"])
def test_a_member_that_was_replaced_is_found(lowered: Lowered, tmp_path: Path, name: str) -> None:
    """Also where the CRC and the facts fit it: the archive's seal does not."""
    path = write(tmp_path / "a.stablehlo", lowered)
    with zipfile.ZipFile(path) as archive:
        seal, names = archive.comment, archive.namelist()
    wanted = next(each for each in names if each.endswith(name.removeprefix("denoise")))

    def replace(members: dict[str, bytes]) -> None:
        data = bytearray(members[wanted])
        data[-3] ^= 1
        members[wanted] = bytes(data) if name != "facts.json" else members[wanted].replace(b'"cpu"', b'"cpu" ')

    damage(path, replace)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = seal
    with pytest.raises(loader.ArtifactError, match="is not a model that wdport exported, or is damaged"):
        loader.load(path)
    with pytest.raises(InputError, match="that wdport wrote"):
        (read_facts if name == "facts.json" else member_digests)(path)
