"""What a converted file says of itself is held against its variables, the manifest beside it and the checkpoint.

Files are changed by the safetensors library or byte by byte, and sealed anew by a few lines of this test's own.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import wdport
from tests.bad.damage import members, packed, resealed, sealed
from tests.command import Cli
from tests.make import TWO_LEVELS, TWO_LEVELS_SET, TWO_LEVELS_SETTINGS, make_state, save
from wdport.base.errors import InputError
from wdport.cli.main import main
from wdport.conversion.load import open_converted
from wdport.conversion.prepare import Settings, prepare
from wdport.files.manifest_seal import file_sha256, manifest_of
from wdport.files.model_files import read_variables
from wdport.files.report_formats import FORMATS
from wdport.parity import verify
from wdport.parity.file_pair import contradictions, provenance
from wdport.parity.run_gates import Setup, run_gates

pytestmark = pytest.mark.usefixtures("one_case")

Change = Callable[[dict[str, Any]], None]


Copied = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a checkpoint and its conversion to a format."""

    @cache
    def made(suffix: str) -> Path:
        folder = tmp_path_factory.mktemp("pair")
        checkpoint = save(folder / "small.ckpt", make_state(TWO_LEVELS))
        wdport.convert(checkpoint, folder / f"small.{suffix}", values=TWO_LEVELS_SETTINGS)
        return folder

    return made


@pytest.fixture
def copied(converted: Callable[[str], Path], tmp_path: Path) -> Copied:
    """A copy of them, to change."""

    def copy(suffix: str) -> tuple[Path, Path]:
        shutil.copytree(converted(suffix), tmp_path, dirs_exist_ok=True)
        return tmp_path / "small.ckpt", tmp_path / f"small.{suffix}"

    return copy


@pytest.fixture
def pair(copied: Copied) -> tuple[Path, Path]:
    return copied("safetensors")


@pytest.fixture
def network_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `verify` leave out the gates of sampling, which have nothing to say of where a file is from."""
    monkeypatch.setattr(verify, "run_gates", lambda *given: run_gates(*given[:4], Setup(network=True, causes=False)))


def found(checkpoint: Path, output: Path) -> dict[str, str]:
    """Each finding's kind with its sentence."""
    with prepare(checkpoint, Settings(values=TWO_LEVELS_SETTINGS)) as prepared:
        opened = open_converted(output)
        variables = dict(read_variables(output, opened.variables))
        told = provenance(opened, variables, file_sha256(output), prepared.checkpoint.file_sha256())
        return {each.kind: str(each) for each in (*told, *contradictions(prepared, opened, None, Settings()))}


def edit_beside(output: Path, change: Change) -> None:
    beside = manifest_of(output)
    manifest = json.loads(beside.read_text())
    change(manifest)
    manifest["output"]["sha256"] = file_sha256(output)
    beside.write_text(json.dumps(manifest))


def coefficients(manifest: dict[str, Any]) -> None:
    manifest["config"]["prediction_target"]["value"] = "coefficient"


def test_nothing_is_said_of_a_sound_pair(pair: tuple[Path, Path]) -> None:
    assert found(*pair) == {}


@pytest.mark.usefixtures("network_alone")
def test_a_manifest_of_another_conversion_is_torn(pair: tuple[Path, Path], cli: Cli) -> None:
    resealed(pair[1], coefficients)
    assert found(*pair)["torn"].endswith("belongs to another conversion")
    assert "the manifest does not fit" in " ".join(cli("verify", *map(str, pair), code=1).out.split())
    assert "belongs to another conversion" in cli("inspect", pair[1]).out


@pytest.mark.parametrize("text", ["", "[]", "[" * 100000, '{"output": 1}'])
def test_a_damaged_manifest_is_torn(pair: tuple[Path, Path], text: str) -> None:
    """And that of another file."""
    beside = manifest_of(pair[1])
    beside.write_text(beside.read_text().replace('"sha256": "', '"sha256": "0', 2))
    assert "torn" in found(*pair)
    beside.write_text(text)
    assert found(*pair)["torn"].endswith("is damaged")


@pytest.mark.parametrize(
    ("name", "value"),
    [("prediction_target", "coefficient"), ("dropout", 0.2), ("norm_mean", None), ("feature_names", ["a", "b", "c"])],
)
def test_a_configuration_that_the_checkpoint_does_not_give_again(
    pair: tuple[Path, Path], name: str, value: object
) -> None:
    """Even where the manifest beside the file was changed alike."""

    def change(manifest: dict[str, Any]) -> None:
        features = len(make_state()["level_transformers.0.output_proj.bias"])
        statistics = {"norm_mean": [1.0] * features, "norm_std": [2.0] * features}
        for each, new in statistics.items() if name == "norm_mean" else [(name, value)]:
            manifest["config"][each] = {"value": new, "origin": "assumed"}

    resealed(pair[1], change)
    edit_beside(pair[1], change)
    told = found(*pair)
    assert set(told) == {"contradicted"}
    assert " in the converted file, " in told["contradicted"]


def test_another_checkpoint_with_the_same_weights_is_said(pair: tuple[Path, Path], tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    state = torch.load(pair[0], weights_only=True)["state_dict"]
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in state.items()}, again)
    assert "converted from another file than this one: small.ckpt" in found(again, pair[1])["notice"]


@pytest.mark.usefixtures("network_alone")
@pytest.mark.parametrize("suffix", ["keras", pytest.param("weights.h5", marks=pytest.mark.full), "safetensors"])
def test_a_changed_weight_is_refused_and_named(copied: Copied, suffix: str, capsys: Any) -> None:
    checkpoint, output = copied(suffix)
    value = dict(read_variables(output, open_converted(output).variables))["level_1/input_proj/kernel"]
    data = output.read_bytes()
    assert data.count(value.tobytes()) == 1
    at = data.index(value.tobytes()) + 7
    output.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(InputError, match=r"damaged|CRC"):
        wdport.load_model(output)
    for verb in (["inspect"], ["sample", "-n", "1", "--sampler", "ddim", "--steps", "2"]):
        assert main([verb[0], str(output), *verb[1:]]) == 3
    assert main(["verify", str(checkpoint), str(output)]) in (1, 3)
    shown = capsys.readouterr()
    assert "another SHA-256" in shown.out + shown.err or "CRC" in shown.err


def test_a_correct_port_passes_and_every_report_says_so(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """With both hashes, and with a note that the manifest next to the file is missing."""
    manifest_of(pair[1]).unlink()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    files = {kind: tmp_path / f"report.{kind}" for kind in FORMATS}
    options = [part for kind, file in files.items() for part in (f"--{kind}", str(file))]
    text = cli("verify", *map(str, pair), *options).out
    for report in (text, *(file.read_text() for file in files.values())):
        assert all(file_sha256(path) in report for path in pair)
    lines = text.splitlines()
    assert lines[0].startswith("PASS")
    assert len(lines) < 40
    assert any(line.startswith("cA1") for line in lines)
    assert "is missing; the file holds the same" in " ".join(text.split())
    assert (tmp_path / "summary.md").read_text().startswith("#")
    verdict = json.loads(files["json"].read_text())
    assert verdict["passed"] is True
    assert len(verdict["taps"]) > 60
    assert all(gate["compared"] == gate["expected"] > 0 for gate in verdict["gates"])


@pytest.fixture
def archive(copied: Copied) -> tuple[Path, Path]:
    return copied("keras")


def test_an_edited_description_in_an_archive_is_refused(archive: tuple[Path, Path], capsys: Any) -> None:
    """As somebody does with unzip and zip: the archive is sound, its configuration is another."""
    checkpoint, output = archive
    held = members(output.read_bytes())
    changed = held["config.json"].replace(b'"noise"', b'"coefficient"')
    assert changed != held["config.json"]
    output.write_bytes(packed(held | {"config.json": changed}))
    for arguments in (["verify", str(checkpoint), str(output)], ["sample", str(output)], ["inspect", str(output)]):
        assert main(arguments) == 3
    assert capsys.readouterr().err.count("its config.json is not the one that was written") == 3


@pytest.mark.usefixtures("network_alone")
def test_an_archive_without_its_manifest_is_what_keras_saves(archive: tuple[Path, Path], capsys: Any) -> None:
    """The one beside it tells it from that; without either, the configuration has to come out of the checkpoint."""
    checkpoint, output = archive
    stripped = {name: data for name, data in members(output.read_bytes()).items() if name != "wdport.json"}
    output.write_bytes(packed(stripped))
    for arguments in (["inspect", str(output)], ["verify", str(checkpoint), str(output)], ["sample", str(output)]):
        assert main(arguments) == 3
    assert capsys.readouterr().err.count("has no manifest, but there is one next to it") == 3
    manifest_of(output).unlink()
    assert main(["verify", str(checkpoint), str(output), *TWO_LEVELS_SET]) == 0
    changed = stripped["config.json"].replace(b'"noise"', b'"coefficient"').replace(b"0.1", b"0.2")
    output.write_bytes(packed(stripped | {"config.json": changed}))
    assert main(["verify", str(checkpoint), str(output), *TWO_LEVELS_SET]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "prediction_target is coefficient in the converted file, which nothing states: noise is assumed; if" in shown
    assert "dropout is 0.2 in the converted file, which nothing states: 0.1 is assumed" in shown


def test_a_renamed_manifest_is_refused(archive: tuple[Path, Path], cli: Cli) -> None:
    output = archive[1]
    output.write_bytes(output.read_bytes().replace(b"wdport.json", b"wdporT.json"))
    assert "wdporT.json: neither Keras nor wdport writes this member" in cli("inspect", output, code=3).err


def test_a_description_of_another_model_is_refused(archive: tuple[Path, Path], cli: Cli) -> None:
    """Where all hashes were made anew: Keras itself would build another model than wdport does."""
    output, found = archive[1], members(archive[1].read_bytes())
    config = found["config.json"].replace(b'"noise"', b'"coefficient"')
    manifest = json.loads(found["wdport.json"])["manifest"]
    manifest["output"]["config_json"] = hashlib.sha256(config).hexdigest()
    output.write_bytes(packed(found | {"config.json": config, "wdport.json": sealed(manifest).encode()}))
    assert "its config.json describes another model than its manifest" in cli("inspect", output, code=3).err


@pytest.mark.usefixtures("network_alone")
def test_a_trained_model_that_keras_saved_is_read_and_said(archive: tuple[Path, Path], cli: Cli) -> None:
    checkpoint, output = archive
    model = wdport.load_model(output)
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    again = output.with_name("again.keras")
    model.save(again)
    shown = cli("verify", checkpoint, again, *TWO_LEVELS_SET)
    assert "again.keras was saved by Keras, so it does not state what it was made from" in " ".join(shown.out.split())
    assert "none: saved by Keras" in cli("inspect", again).out
    shown = cli("sample", again, "-n", "1", "--sampler", "ddim", "--steps", "2")
    assert "note: again.keras was saved by Keras" in shown.err
    model.weights[-1].assign(model.weights[-1] * np.nan)
    model.save(output.with_name("nan.keras"))
    shown = cli("sample", output.with_name("nan.keras"), "-n", "1", "--sampler", "ddim", "--steps", "2", code=3)
    assert "has NaN or infinite values; save a model with finite weights" in shown.err


def test_the_documented_check_of_the_hashes(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the safetensors library alone; it finds a changed value."""
    text = (Path(__file__).parents[2] / "docs" / "formats" / "converted-files.md").read_text()
    code = text.split("```python\n")[1].split("```")[0].replace("model.safetensors", pair[1].name)
    monkeypatch.chdir(pair[1].parent)
    exec(code, {})
    data = pair[1].read_bytes()
    pair[1].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(AssertionError):
        exec(code, {})
