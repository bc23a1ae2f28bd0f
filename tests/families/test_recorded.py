"""Models of the user's own: recorded without Keras, compared without PyTorch, and what `wdport inspect` says."""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wdport
from tests.command import Cli, Refused
from tests.families.test_custom import HEAD, TABLES, files
from tests.families.toys import nets
from wdport.compare.calls import layer_of
from wdport.files.report_formats import FORMATS
from wdport.parity.planned_items import expected
from wdport.parity.verify_options import Pair
from wdport.recording.__main__ import main

pytestmark = pytest.mark.usefixtures("one_case")

SHIPPED = Path(__file__).parents[2] / "mappings"


def converted(folder: Path, name: str, cli: Cli) -> tuple[Path, Path, Path]:
    """A converted file, a recording and the table."""
    checkpoint, table = files(folder, name)
    output, recording = folder / "out.keras", folder / "run.npz"
    cli("convert", checkpoint, "--mapping", table, "-o", output)
    cli("record", checkpoint, "--mapping", table, "-o", recording)
    return output, recording, table


def against(output: Path, recording: Path, table: Path) -> tuple[object, ...]:
    """The command that compares a converted file with a recording."""
    return ("verify", output, "--against", recording, "--mapping", table)


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
def test_every_model(tmp_path: Path, cli: Cli, name: str) -> None:
    reports = {option: tmp_path / f"report{option}" for option in map("--{}".format, FORMATS)}
    output, recording, table = converted(tmp_path, name, cli)
    printed = cli(*against(output, recording, table), *(word for report in reports.items() for word in report)).out
    assert "PASS  out.keras computes what run.npz computes" in printed
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


def test_neither_side_needs_the_other(tmp_path: Path, cli: Cli) -> None:
    """The recording is made without Keras, JAX and the Keras model; the comparison without torch, the PyTorch model and
    the checkpoint."""
    checkpoint, table = files(tmp_path, "lstm")
    output, recording = tmp_path / "out.keras", tmp_path / "run.npz"
    wdport.convert(checkpoint, output, mapping=table)
    made = run_without("keras jax tests.families.toys.twins", "record", str(checkpoint), "--mapping", str(table),
                       "-o", str(recording))  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    cli("record", checkpoint, "--mapping", table, "-o", recording, "--force")  # one case
    other = ("--keras-model", "tests.families.toys.twins:lstm_reversed")
    cli("convert", checkpoint, "--mapping", table, *other, "-o", tmp_path / "other.keras")
    checkpoint.unlink()
    command = ["verify", str(output), "--against", str(recording), "--mapping", str(table)]
    # What has no known cause is looked into further, and is reported without torch too.
    wrong = ["verify", str(tmp_path / "other.keras"), *command[2:], *other]
    passed, failed = run_each_without("torch tests.families.toys.nets", command, wrong)
    assert (passed[0], failed[0], failed[2]) == (0, 1, ""), (passed, failed)
    assert "PASS" in passed[1]
    assert "in what it feeds head" in failed[1]
    assert "map suggest" not in failed[1]  # which needs the PyTorch model


def test_what_is_calculated_is_recorded(tmp_path: Path, cli: Cli) -> None:
    """The sum of an LSTM's biases, rounded to float32, is not what PyTorch calculates with."""
    output, recording, table = converted(tmp_path, "lstm", cli)
    index = json.loads(np.load(recording)["index"].tobytes())
    assert set(index["values"]) == {"lstm.bias_ih_l0", "lstm.bias_hh_l0"}
    told = ["tests.families.toys.nets:lstm", str(tmp_path / "ck.pt"), "-o", str(recording), "--input", "x: b 9 5"]
    assert main(told) == 0
    error = cli(*against(output, recording, table), code=6).err
    assert "does not hold lstm.bias_ih_l0, which line 7 of the table calculates with" in error
    assert main([*told, "--keep", "lstm.bias_*"]) == 0
    cli(*against(output, recording, table))


def test_recorded_modules_without_a_row_leave_float32_incomplete(tmp_path: Path, cli: Cli) -> None:
    """The outputs of such a module come from the recording on one side only, which is no fault of the port."""
    output, recording, table = converted(tmp_path, "image", cli)
    told = ["tests.families.toys.nets:image", str(tmp_path / "ck.pt"), "-o", str(recording), "--input", "x: b 3 12 12"]
    assert main(told) == 0
    table.write_text("\n".join(line for line in table.read_text().splitlines() if "max_pool2d" not in line))
    done = cli(*against(output, recording, table), code=6)
    assert "float32 is not compared, since the table has no row for the recorded pool: add rows" in done.out


def test_the_recording_of_another_checkpoint(tmp_path: Path, cli: Cli) -> None:
    output, recording, table = converted(tmp_path, "lstm", cli)
    torch.save(nets.randomised(nets.lstm(), 1).state_dict(), tmp_path / "ck.pt")
    cli("record", tmp_path / "ck.pt", "--mapping", table, "-o", recording, "--force")
    assert "is of another checkpoint" in cli(*against(output, recording, table), code=4).err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [(["ck.pt"], 2, "or CHECKPOINT is missing"), (["ck.pt", "--mapping", "bare.yaml"], 2, "does not name the PyTorch"),
     (["nowhere.pt", "--mapping", "my.yaml"], 3, "nowhere.pt"),
     (["ck.pt", "--mapping", "other.yaml"], 4, "lacks gru.bias_hh_l0"),
     (["ck.pt", "--mapping", f"{SHIPPED}/waveletdiff.yaml"], 2, "is not a table for your own model")],
)  # fmt: skip
def test_refusals(
    tmp_path: Path, words: list[str], code: int, says: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files(tmp_path, "lstm")
    Path("bare.yaml").write_text("format: 2\n" + TABLES["lstm"])
    Path("other.yaml").write_text(HEAD.format(torch="gru", keras="gru") + TABLES["gru"])
    refused("record", *words, "-o", "run.npz", code=code, says=says)
    assert not Path("run.npz").exists()


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
def test_it_says_where_a_file_is_from(folder: Path, cli: Cli, suffix: str) -> None:
    output = folder / f"out{suffix}"
    shown = cli("inspect", output).out
    told = [" ".join(line.split()) for line in shown.splitlines()]
    checkpoint = hashlib.sha256((folder / "ck.pt").read_bytes()).hexdigest()
    assert "model your own, built by tests.families.toys.twins:gru" in told
    assert f"made from ck.pt, SHA-256 {checkpoint[:16]}" in told
    assert "tensors 8, 654 values; 8 float32" in told
    assert "head 2 tensors, 24 values" in told
    assert f"manifest out{suffix}.wdport.json agrees" in told
    assert str(folder) not in shown
    model = wdport.Port(folder / "my.yaml").load(folder / "ck.pt")
    found = json.loads(cli("inspect", output, "--json").out)
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


def test_a_missing_manifest_is_said(folder: Path, tmp_path: Path, cli: Cli) -> None:
    output = tmp_path / "out.keras"
    output.write_bytes((folder / "out.keras").read_bytes())
    assert "out.keras.wdport.json is missing; the file holds the same" in cli("inspect", output).out


STEPS_NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 5.0]) / 3)

    def forward(self, x, shift=None):
        return self.fc(x) * self.scale + (0 if shift is None else shift)


build = Net
"""
STEPS_TWIN = """
import keras


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.fc = keras.layers.Dense(3)
        self.scale = self.add_weight(shape=(3,), name="scale", trainable=False)

    def call(self, x, shift=None):
        return self.fc(x) * self.scale + (0 if shift is None else shift)


def build():
    model = Net()
    model(keras.ops.zeros((1, 12, 4)))
    return model
"""
STEPS_TABLE = """
format: 2
torch: steps_net:build
keras: steps_twin:build
inputs: ["x: b n={size} 4"{optional}]
layers:
  - {{torch: fc, keras: fc, kind: linear}}
tensors:
  - {{torch: scale, keras: scale, rule: identity}}
"""


def test_sizes_that_a_recording_lacks_and_a_buffer_that_the_port_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (("net", STEPS_NET), ("twin", STEPS_TWIN)):
        Path(f"steps_{name}.py").write_text(text)
    shift = ', "shift?: b n=12..40 3"'
    for name, size, optional in (("one", "12", ""), ("range", "12..40", ""), ("two", "12..40", shift)):
        Path(f"{name}.yaml").write_text(STEPS_TABLE.format(size=size, optional=optional))
    importlib.invalidate_caches()
    net: Any = importlib.import_module("steps_net")
    module = net.build()
    torch.save(module.state_dict(), "a.pt")
    cli("convert", "a.pt", "--mapping", "one.yaml", "-o", "a.keras")
    for name in ("one", "range", "two"):
        cli("record", "a.pt", "--mapping", f"{name}.yaml", "-o", f"{name}.npz")
    other = "the port takes other sizes of n of x than the recorded 12, which are not compared"
    # The table in float64 is not the port's, which is the checkpoint's rounded one.
    assert other in cli(*against(Path("a.keras"), Path("one.npz"), Path("one.yaml"))).out
    for name in ("range", "two"):  # a batch of one, which has the other size, leaves an optional input out
        text = cli(*against(Path("a.keras"), Path(f"{name}.npz"), Path(f"{name}.yaml"))).out
        assert "the port takes other sizes" not in text
        assert "PASS" in text
    refused = cli(*against(Path("a.keras"), Path("one.npz"), Path("range.yaml")), code=6).err
    assert "one.npz: has no x with n = 40, which the table states; record it again" in refused
