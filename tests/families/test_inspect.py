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

SUFFIXES = pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".safetensors"])


def converted(folder: Path, suffix: str = ".keras") -> Path:
    checkpoint, table = files(folder, "gru")
    return wdport.convert(checkpoint, folder / f"out{suffix}", mapping=table).output


@SUFFIXES
def test_it_says_where_a_file_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    output = converted(tmp_path, suffix)
    assert main(["inspect", str(output)]) == 0
    shown = capsys.readouterr().out
    told = [" ".join(line.split()) for line in shown.splitlines()]
    checkpoint = hashlib.sha256((tmp_path / "ck.pt").read_bytes()).hexdigest()
    assert "model your own, built by tests.families.toys.twins:gru" in told
    assert f"made from ck.pt, SHA-256 {checkpoint[:16]}" in told
    assert "tensors 8, 654 values; 8 float32" in told
    assert "head 2 tensors, 24 values" in told
    assert str(tmp_path) not in shown


@SUFFIXES
def test_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    output = converted(tmp_path, suffix)
    model = wdport.Port(tmp_path / "my.yaml").load(tmp_path / "ck.pt")
    assert main(["inspect", str(output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["built_by"] == "tests.families.toys.twins:gru"
    assert found["source"]["name"] == "ck.pt"
    assert found["mapping"]["sha256"] == hashlib.sha256((tmp_path / "my.yaml").read_bytes()).hexdigest()
    assert found["config"]["inputs"] == {"value": ["x: b 9 5"], "origin": "table"}
    assert sorted(tuple(each["shape"]) for each in found["tensors"].values()) == sorted(
        tuple(each.shape) for each in model.weights
    )


def test_the_function_is_quoted_and_never_imported(tmp_path: Path) -> None:
    output = converted(tmp_path)
    told = run_without("keras jax torch tests.families.toys.twins", "inspect", str(output))
    assert (told.returncode, told.stderr) == (0, "")
    assert "built by tests.families.toys.twins:gru" in told.stdout


DAMAGE = {
    "cut": ("out.keras", lambda data: data[:500], "another SHA-256"),
    "changed": ("out.keras", lambda data: data[:-1] + b"x", "another SHA-256"),
    "no manifest": ("out.keras.wdport.json", None, "holds a Sequential, no model of wdport"),
    "a damaged manifest": ("out.keras.wdport.json", lambda data: data.replace(b'"source"', b'"s"'), "is damaged"),
    "a manifest of nothing": ("out.keras.wdport.json", lambda _: b"[" * 100000, "holds a Sequential"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_file_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    name, change, words = DAMAGE[case]
    output, damaged = converted(tmp_path), tmp_path / name
    data = damaged.read_bytes()
    damaged.unlink()
    if change is not None:
        damaged.write_bytes(change(data))
    assert main(["inspect", str(output)]) in (3, 4)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert words in shown.err
