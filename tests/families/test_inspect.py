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
    "cut": (lambda data: data[:500], "cut short"),
    "changed at its end": (lambda data: data[:-1] + b"x", "cut short, or something was appended"),
    "a weight changed": (lambda data: data[:20000] + bytes([data[20000] ^ 1]) + data[20001:], "CRC"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_file_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    change, words = DAMAGE[case]
    output = converted(tmp_path)
    output.write_bytes(change(output.read_bytes()))
    assert main(["inspect", str(output)]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert words in shown.err


MANIFESTS = {
    "none": (None, "out.keras.wdport.json is missing; the file holds the same"),
    "damaged": (lambda data: data.replace(b'"source"', b'"s"'), "belongs to another conversion"),
    "of nothing": (lambda _: b"[" * 100000, "is damaged"),
    "as it was": (lambda data: data, "out.keras.wdport.json agrees"),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_the_file_speaks_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    change, words = MANIFESTS[case]
    output = converted(tmp_path)
    beside = output.with_name(f"{output.name}.wdport.json")
    data = beside.read_bytes()
    beside.unlink()
    if change is not None:
        beside.write_bytes(change(data))
    assert main(["inspect", str(output)]) == 0
    assert words in capsys.readouterr().out
