"""Models of the user's own: recorded without Keras, compared without PyTorch, and what `wdport inspect` says."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import wdport
from tests.families.test_custom import HEAD, TABLES, files
from tests.families.toys import nets
from wdport import recorder
from wdport.cli.main import main
from wdport.compare.calls import layer_of
from wdport.parity.planned_items import expected
from wdport.parity.verify_request import Pair

pytestmark = pytest.mark.usefixtures("one_case")


def recorded(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """A converted file, a recording and the table."""
    checkpoint, table = files(folder, name)
    output, recording = folder / "out.keras", folder / "run.npz"
    assert main(["convert", str(checkpoint), "--mapping", str(table), "-o", str(output)]) == 0
    assert main(["record", str(checkpoint), "--mapping", str(table), "-o", str(recording)]) == 0
    return output, recording, table


def compared(output: Path, recording: Path, table: Path, *more: str) -> int:
    return main(["verify", str(output), "--against", str(recording), "--mapping", str(table), *more])


TAPPED = {
    "image": "bn",
    "words": "embed",
    "shared": "mix",
    "gru": "head",
    "lstm": "lstm",
    "transformer": "blocks.1.attn",
}
"""A layer that reports have a word on."""


@pytest.mark.parametrize("name", TABLES)
def test_every_model(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    reports = {option: tmp_path / f"report{option}" for option in ("--json", "--html", "--junit", "--markdown")}
    more = [word for option, file in reports.items() for word in (option, str(file))]
    output, recording, table = recorded(tmp_path, name)
    assert compared(output, recording, table, *more) == 0
    assert "PASS  out.keras computes what run.npz computes" in capsys.readouterr().out
    told = json.loads(reports["--json"].read_text())
    assert told["passed"] is True
    made = {layer_of(tap["reference"]) if tap["candidate"] else "output" for tap in told["taps"]}
    for pair in (Pair(output, against=recording, mapping=table), Pair(output, tmp_path / "ck.pt", mapping=table)):
        assert set(expected(pair).layers) == made | set(told["left_out"])  # as the pytest plugin names its tests
    assert all(TAPPED[name] in file.read_text() for file in reports.values())


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in sys.argv[1].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from wdport.cli.main import main
"""


def run_without(packages: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process in which these packages cannot be imported."""
    command = [sys.executable, "-c", f"{WITHOUT}sys.exit(main(sys.argv[2:]))", packages, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


EACH = """
import contextlib, io, json
for arguments in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def run_each_without(packages: str, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of several commands in one such process."""
    command = [sys.executable, "-c", WITHOUT + EACH, packages, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_neither_side_needs_the_other(tmp_path: Path) -> None:
    """The recording is made without Keras, JAX and the Keras model; the comparison without torch, the PyTorch model and
    the checkpoint."""
    checkpoint, table = files(tmp_path, "lstm")
    output, recording = tmp_path / "out.keras", tmp_path / "run.npz"
    wdport.convert(checkpoint, output, mapping=table)
    made = run_without("keras jax tests.families.toys.twins", "record", str(checkpoint), "--mapping", str(table),
                       "-o", str(recording))  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    assert main(["record", str(checkpoint), "--mapping", str(table), "-o", str(recording), "--force"]) == 0  # one case
    checkpoint.unlink()
    told = run_without("torch tests.families.toys.nets", "verify", str(output), "--against", str(recording),
                       "--mapping", str(table))  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "PASS" in told.stdout


def test_what_is_calculated_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sum of an LSTM's biases, rounded to float32, is not what PyTorch calculates with."""
    output, recording, table = recorded(tmp_path, "lstm")
    index = json.loads(np.load(recording)["index"].tobytes())
    assert set(index["values"]) == {"lstm.bias_ih_l0", "lstm.bias_hh_l0"}
    capsys.readouterr()
    told = ["tests.families.toys.nets:lstm", str(tmp_path / "ck.pt"), "-o", str(recording), "--input", "x: b 9 5"]
    assert recorder.main(told) == 0
    assert compared(output, recording, table) == 6
    error = capsys.readouterr().err
    assert "does not hold lstm.bias_ih_l0, which line 7 of the table calculates with" in error
    assert recorder.main([*told, "--keep", "lstm.bias_*"]) == 0
    assert compared(output, recording, table) == 0


def test_the_recording_of_another_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, recording, table = recorded(tmp_path, "lstm")
    torch.save(nets.randomised(nets.lstm(), 1).state_dict(), tmp_path / "ck.pt")
    assert main(["record", str(tmp_path / "ck.pt"), "--mapping", str(table), "-o", str(recording), "--force"]) == 0
    assert compared(output, recording, table) == 4
    assert "is of another checkpoint" in capsys.readouterr().err


REFUSED = {
    "no table and no function": (["CHECKPOINT"], 2, "or CHECKPOINT is missing"),
    "a table without a function": (["CHECKPOINT", "--mapping", "BARE"], 2, "does not name the PyTorch model"),
    "no checkpoint": (["nowhere.pt", "--mapping", "TABLE"], 3, "nowhere.pt"),
    "a table for another": (["CHECKPOINT", "--mapping", "OTHER"], 4, "lacks gru.bias_hh_l0"),
    "a shipped table": (
        ["CHECKPOINT", "--mapping", "mappings/waveletdiff.yaml"],
        2,
        "is not a table for your own model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    arguments, code, words = REFUSED[case]
    checkpoint, table = files(tmp_path, "lstm")
    (tmp_path / "bare.yaml").write_text("format: 2\n" + TABLES["lstm"])
    (tmp_path / "other.yaml").write_text(HEAD.format(torch="gru", keras="gru") + TABLES["gru"])
    names = {"CHECKPOINT": checkpoint, "TABLE": table, "BARE": tmp_path / "bare.yaml", "OTHER": tmp_path / "other.yaml"}
    filled = [str(names.get(each, each)) for each in arguments]
    assert main(["record", *filled, "-o", str(tmp_path / "run.npz")]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert words in shown.err
    assert not (tmp_path / "run.npz").exists()


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
