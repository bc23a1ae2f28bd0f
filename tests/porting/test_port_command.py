"""`wdport port`: what it writes, what it refuses, and its exit codes."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import wdport
from tests.command import Cli, Refused

NET = """import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.factor = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.tanh(self.dense(x)) * self.factor


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.scales = nn.ModuleList([Scale(6), Scale(6)])
        self.head = nn.Linear(6, classes)

    def forward(self, x):
        for scale in self.scales:
            x = scale(x)
        return self.head(x.mean(1))


class Far(Net):
    def forward(self, x):
        return self.head(x + torch.cdist(x, x).sum())


class Narrow(Net):
    def forward(self, x):
        return self.head(x if x.shape[1] > 5 else x.relu())


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss, self.optimizer, self.name, self.layers = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        return self.layers(self.name(self.optimizer(self.loss(x))))


class Raising(Net):
    def forward(self, x):
        raise ValueError("not today")


build, far, narrow, raising, names = Net, Far, Narrow, Raising, Named


def sized(classes):
    return Net(classes)


def number():
    return 3
"""
INPUT = ("--input", "x: b t=4..7 6")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with net.py, as the current one."""
    for name in ("net", "net_keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("net.py").write_text(NET)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_model_is_written_and_proved_with_the_weights_of_a_checkpoint(folder: Path, cli: Cli) -> None:
    import net  # type: ignore[import-not-found]

    module = net.build()
    torch.save(module.state_dict(), "net.pt")
    shown = cli("port", "net:build", *INPUT, "--checkpoint", "net.pt").out.splitlines()
    lines = len(Path("net_keras.py").read_text().splitlines())
    assert shown == [
        f"wrote net_keras.py  2 classes, {lines} lines (torch: 18): 8 of 8 steps",
        "wrote net_keras.yaml  the table",
        "wrote net.keras  the weights of net.pt",
        "proved: verify finds the two models equal with other weights and inputs",
    ]
    table = Path("net_keras.yaml").read_text()
    assert "# Proved by wdport verify" in table
    assert 'torch: net:build\nkeras: net_keras:build\ninputs: ["x: b t=4..7 6"]\n' in table
    x = torch.randn(3, 5, 6)
    computed = torch.tensor(wdport.load_model("net.keras", mapping="net_keras.yaml")(x.numpy()).__array__())
    torch.testing.assert_close(computed, module(x).detach())


def test_a_checkpoint_that_is_not_there(folder: Path, refused: Refused) -> None:
    words = ("net:build", *INPUT, "--no-proof", "--checkpoint", "absent.pt")
    refused("port", *words, code=3, says="error: absent.pt: no such file; ")
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["net.py"]


def test_the_source_has_the_names_of_the_model(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:build", *INPUT, "--no-proof").out
    assert shown.endswith("\nnot proved: verify was skipped\n")
    source = Path("net_keras.py").read_text()
    for line in ("class Scale(layers.Layer):", "class Net(keras.Model):", "self.head = layers.Dense(3)", "def build():",
                 "        for scale in self.scales:"):  # fmt: skip
        assert line in source
    imports = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert imports == ["import keras", "from keras import layers, ops"]
    assert "torch: scales.<n>" in Path("net_keras.yaml").read_text()


def test_the_same_input_gives_the_same_bytes(folder: Path, cli: Cli) -> None:
    cli("port", "net:build", *INPUT, "--no-proof")
    first = {path.name: path.read_bytes() for path in folder.glob("net_keras.*")}
    cli("port", "net:build", *INPUT, "--no-proof", "--force")
    assert {path.name: path.read_bytes() for path in folder.glob("net_keras.*")} == first
    assert set(first) == {"net_keras.py", "net_keras.yaml"}


def test_a_file_is_not_replaced_without_force(folder: Path, cli: Cli, refused: Refused) -> None:
    for name in ("net_keras.py", "net_keras.yaml"):
        Path(name).write_text("mine\n")
        refused("port", "net:build", *INPUT, "--no-proof", says=f"error: {name}: exists already")
        assert [path.name for path in folder.glob("net_keras*")] == [name]
        assert Path(name).read_text() == "mine\n"
        Path(name).unlink()
    Path("net_keras.py").write_text("mine\n")
    cli("port", "net:build", *INPUT, "--no-proof", "--force")
    assert "class Net" in Path("net_keras.py").read_text()


def test_the_document(folder: Path, cli: Cli) -> None:
    document = json.loads(cli("port", "net:build", *INPUT, "--no-proof", "--json").out)
    assert document["files"] == ["net_keras.py", "net_keras.yaml"]
    assert [document[name] for name in ("source", "table")] == [Path(name).read_text() for name in document["files"]]
    assert (document["written"], document["proved"], document["missing"]) == (True, False, None)
    shown = cli("port", "net:far", "--input", "x: b 6", "-o", "far.py", "--json", "far.json", code=6).out
    assert shown.startswith("not written: ")
    document = json.loads(Path("far.json").read_text())
    assert document["missing"]["step"] == "torch.functional.cdist"
    assert (document["written"], document["files"]) == (False, [])


def test_another_name_and_arguments(folder: Path, cli: Cli) -> None:
    Path("sizes.yaml").write_text("classes: 5\n")
    cli("port", "net:sized", *INPUT, "--config", "sizes.yaml", "--no-proof", "-o", "other.py")
    assert "layers.Dense(5)" in Path("other.py").read_text()
    assert "keras: other:build" in Path("other.yaml").read_text()


def test_a_step_without_a_counterpart(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:far", "--input", "x: b 6", code=6).out
    assert shown == "not written: torch.functional.cdist (net.py:29): cdist has no counterpart\n"
    assert not list(folder.glob("*_keras*"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["net", *INPUT], 2, "net: is not MODULE:FUNCTION; "),
        (["net:absent", *INPUT], 2, "net:absent: net has no absent; "),
        (["absent:build", *INPUT], 2, "absent:build: no module named absent; "),
        (["net:build"], 2, "--input: the model's inputs are not known; "),
        (["net:build", "--input", "x: t"], 2, "--input: 'x: t': no input states the size of t"),
        (["net:build", *INPUT, "-o", "net-keras.txt"], 2, "net-keras.txt: is not the name of a Python module; "),
        (["net:build", "--input", "x: b 4 5"], 4, "Net: running it raises RuntimeError: mat1 and mat2"),
        (["net:raising", *INPUT], 4, "Raising: running it raises ValueError: not today; "),
        (["net:narrow", *INPUT], 4, "net:narrow: calls other functions for inputs of other sizes; "),
        (["net:number", *INPUT], 4, "net:number: "),
    ],
)  # fmt: skip
def test_what_cannot_be_written(folder: Path, refused: Refused, words: list[str], code: int, message: str) -> None:
    refused("port", *words, code=code, says=f"error: {message}")
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["net.py"]


def test_names_that_keras_and_compile_use_are_others_in_the_port(folder: Path, cli: Cli) -> None:
    cli("port", "net:names", "--input", "x: b t=4..7 6", "-o", "named.py", "--no-proof")
    model = importlib.import_module("named").build()
    model.compile("sgd", loss="mse")
    x = np.ones((2, 4, 6), "float32")
    before = model.predict(x, verbose=0)
    model.fit(x, x, verbose=0)
    assert not np.allclose(model.predict(x, verbose=0), before)
