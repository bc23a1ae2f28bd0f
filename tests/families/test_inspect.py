"""What `wdport inspect` says of a converted file whose model is the user's own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import wdport
from tests.families.test_custom import files
from tests.families.test_recorded import run_without
from wdport.cli.main import main

SUFFIXES = (".keras", ".weights.h5", ".safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, its table and a converted file of every kind."""
    made = tmp_path_factory.mktemp("gru")
    checkpoint, table = files(made, "gru")
    for suffix in SUFFIXES:
        wdport.convert(checkpoint, made / f"out{suffix}", mapping=table)
    return made


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_it_says_where_a_file_is_from(folder: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    output = folder / f"out{suffix}"
    assert main(["inspect", str(output)]) == 0
    shown = capsys.readouterr().out
    told = [" ".join(line.split()) for line in shown.splitlines()]
    checkpoint = hashlib.sha256((folder / "ck.pt").read_bytes()).hexdigest()
    assert "model your own, built by tests.families.toys.twins:gru" in told
    assert f"made from ck.pt, SHA-256 {checkpoint[:16]}" in told
    assert "tensors 8, 654 values; 8 float32" in told
    assert "head 2 tensors, 24 values" in told
    assert f"manifest out{suffix}.wdport.json agrees" in told
    assert str(folder) not in shown
    model = wdport.Port(folder / "my.yaml").load(folder / "ck.pt")
    assert main(["inspect", str(output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["built_by"] == "tests.families.toys.twins:gru"
    assert found["source"]["name"] == "ck.pt"
    assert found["mapping"]["sha256"] == hashlib.sha256((folder / "my.yaml").read_bytes()).hexdigest()
    assert found["config"]["inputs"] == {"value": ["x: b 9 5"], "origin": "table"}
    assert sorted(tuple(each["shape"]) for each in found["tensors"].values()) == sorted(
        tuple(each.shape) for each in model.weights
    )


def test_the_function_is_quoted_and_never_imported(folder: Path) -> None:
    told = run_without("keras jax torch tests.families.toys.twins", "inspect", str(folder / "out.keras"))
    assert (told.returncode, told.stderr) == (0, "")
    assert "built by tests.families.toys.twins:gru" in told.stdout


def copied(folder: Path, to: Path) -> Path:
    """The archive and its manifest, to be changed."""
    for name in ("out.keras", "out.keras.wdport.json"):
        (to / name).write_bytes((folder / name).read_bytes())
    return to / "out.keras"


def test_a_missing_manifest_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = copied(folder, tmp_path)
    output.with_name(f"{output.name}.wdport.json").unlink()
    assert main(["inspect", str(output)]) == 0
    assert "out.keras.wdport.json is missing; the file holds the same" in capsys.readouterr().out
