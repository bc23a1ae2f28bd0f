"""`wdport port`: what it writes, what it refuses, and its exit codes."""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import wdport
from tests.command import Cli, Refused
from wdport.porting.lowering import interpreter
from wdport.porting.torch_run import fill

NET = """from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm


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


class Pair(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.ones(width))
        self.turn = spectral_norm(nn.Linear(width, width))

    def forward(self, x):
        return torch.cdist(x, x, p=1.0) @ x + self.turn(x) + self.bias


class Far(Net):
    def __init__(self, classes=3):
        super().__init__(classes)
        self.pairs = nn.Sequential(Pair(6), Pair(6))

    def forward(self, x):
        return self.head(self.pairs(self.scales[0](x)))


class Valued(Net):
    def forward(self, x):
        return self.head(x * 2 if x.mean() > -9 else torch.cdist(x, x) @ x)


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


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        y = self.conv(x)
        return {"turned": y.permute(0, 1, 3, 2).contiguous().view_as(x), "all": (y, [x]), "mean": y.mean((2, 3))}, y


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(7, 6, padding_idx=2), nn.Embedding(7, 6, padding_idx=0)
        self.norm, self.drop = nn.BatchNorm1d(6, momentum=0.3), nn.Dropout(0.2)
        self.head = nn.Linear(6, 7)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids) + self.place(ids) + F.embedding(ids, self.place.weight, 1)
        return self.head(self.drop(x := self.norm(x.mT).mT) + x)


class DropPath(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training:
            return x
        return x * x.new_empty((len(x), 1, 1)).bernoulli_(1 - self.rate).div_(1 - self.rate)


class Layer(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.dense = nn.Linear(6, 6)
        self.drop_path = DropPath(rate) if rate else nn.Identity()

    def forward(self, x):
        return x + self.drop_path(self.dense(x))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, (0.0, 0.1, 0.25)))
        self.scale = nn.Parameter(torch.ones(6), requires_grad=False)
        self.rnn = nn.GRU(6, 6, 2, batch_first=True).requires_grad_(False)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(self.rnn(x * self.scale)[0].mean(1))


class Noise(Net):
    def forward(self, x):
        if self.training:
            x = x + torch.randn_like(x)
        return super().forward(x)


class Doubling(DropPath):
    def forward(self, x):
        return x * 2 if self.training else x


def partly():
    model = Net()
    model.head.bias.requires_grad_(False)
    return model


def other():
    model = Deep()
    model.layers[1].drop_path = Doubling(0.1)
    return model


class Places(nn.Module):
    def __init__(self, step=3):
        super().__init__()
        self.dense, self.table = nn.Linear(6, 6), nn.Parameter(torch.zeros(37, 6))
        self.register_buffer("index", (torch.arange(4)[:, None] * step - torch.arange(4)) ** 2 % 37)

    def forward(self, x):
        return self.dense(x) + self.table[self.index].mean(1)


class Norm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), Norm(4)
        self.still, self.batch_norm = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def train(self, mode=True):
        super().train(mode)
        self.still.eval()
        return self

    def forward(self, x):
        x = self.batch_norm(self.still(self.norm(self.conv(x))))
        return F.dropout(x, 0.5, training=False)


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.attend = nn.Parameter(torch.zeros(1, 2, 6)), nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        x, weights = self.attend(self.query.expand(x.shape[0], -1, -1), x, x)
        return {"x": x, "weights": weights}


def cumulative():
    model = Deep()
    model.norm.momentum = None
    return model


def folded():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)))


def whole():
    return Deep().requires_grad_(False)


def stacked():
    return nn.Sequential(nn.GRU(6, 6, 2, batch_first=True, dropout=0.1))


build, far, valued, narrow, raising, names, square, words = Net, Far, Valued, Narrow, Raising, Named, Square, Words
class Rated(Net):
    def forward(self, x):
        return super().forward(F.dropout(x, p=0.3 if self.training else 0.0, training=self.training))


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 6, batch_first=True)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.full((len(x),), 4), batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


rated, packed = Rated, Packed
deep, noise, places, pool, image = Deep, Noise, Places, Pool, Image
gru, dense, attention = (partial(*of) for of in (
    (nn.GRU, 6, 5, 2), (nn.Linear, 6, 4), (nn.MultiheadAttention, 6, 2, 0.0, True, False, False, None, None, True)))


class Weighing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return torch.tanh(x * self.weight)


class Wave(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.drop = nn.Linear(6, 6), nn.Dropout(0.1)

    def forward(self, x, kind, rate=1.0):
        x = self.drop(self.mix(x) * rate)
        return x.cos() if kind == "even" else x.sin()


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.wave = Wave()

    def forward(self, x):
        x = self.wave(x, "even", 2.0) + self.wave(x, "even", 3.0)
        return self.wave(x, "odd", 2.0)


class Asserting(Net):
    def forward(self, x):
        assert x.shape[1] > 9, "too short"


class Summing(Net):
    def forward(self, x):
        return super().forward(x.to(torch.bfloat16).softmax(-1).to(x.dtype))


class Complex(Net):
    def forward(self, x):
        return torch.fft.rfft(super().forward(x))


scale, waves, asserting, summing, waving = Weighing, Waves, Asserting, Summing, Complex


def hooked():
    model, seen = Net(), []
    model.head.register_forward_hook(lambda _, given, output: seen.append(given[0].sum()))
    model.head.register_forward_pre_hook(lambda _, given: (given[0] * 2,))
    model.scales[0].register_forward_hook(lambda _, given, output: output + given[0])
    return model


def halves():
    model = Net().to(torch.bfloat16)
    model.scales[1].dense.register_forward_hook(lambda _, given, output: output.half().to(output.dtype) + 1)
    model.register_forward_hook(lambda _, given, output: output.to(torch.bfloat16))
    return model


def scripted():
    import warnings

    with warnings.catch_warnings(action="ignore"):
        return torch.jit.script(Scale(6))


class Timed(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.rnn = nn.MultiheadAttention(6, 2), nn.LSTM(6, 5, 2, bidirectional=True)

    def forward(self, x):
        x = x.transpose(0, 1)
        return self.rnn(self.attend(x, x, x)[0])[0].transpose(0, 1)


class Attending(nn.Module):
    def __init__(self, width=6, rate=0.2):
        super().__init__()
        self.qkv, self.rate = nn.Linear(width, 3 * width), rate

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, mask[:, None], self.rate if self.training else 0.0)


class Holder(nn.Module):
    def __init__(self, norm, width=6):
        super().__init__()
        self.norm, self.dense = norm, nn.Linear(width, width)

    def forward(self, x):
        return self.dense(self.norm(x))


class Reader(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x @ self.scale.dense.weight


class Shared(nn.Module):
    def __init__(self, rate=0.1):
        super().__init__()
        scale, drop = Scale(6), nn.Dropout(rate)
        self.last = nn.ModuleList(Holder(scale) for _ in range(2))
        self.first, self.drops, self.read = Holder(scale), nn.ModuleDict({"a": Holder(drop)}), Reader(scale)
        self.drop = drop

    def forward(self, x):
        x = self.drop(self.drops["a"](self.first(x)))
        for holder in self.last:
            x = holder(x)
        return self.read(x)


timed, attending, shared = Timed, Attending, Shared


def sized(classes):
    return Net(classes)


def number():
    return 3


class Mapped(Net):
    def forward(self, x):
        return torch.vmap(super().forward)(x[:, None])


def mapped():
    return Mapped()


def counting():
    net = Net()
    net.count = nn.Parameter(torch.tensor(3), requires_grad=False)
    return net
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
    shown = cli("port", "net:build", *INPUT, "--no-proof", "-v")
    assert shown.out.splitlines()[-1].startswith(
        "not proved: verify was skipped; wdport verify CHECKPOINT CONVERTED --mapping "
    )
    assert all(step in shown.err for step in ("building the PyTorch model\n", "for 8 steps\n", "writing the source\n"))
    source = Path("net_keras.py").read_text()
    for line in ("class Scale(layers.Layer):", "class Net(keras.Model):", "self.head = layers.Dense(classes)",
                 "def build():", "        for scale in self.scales:"):  # fmt: skip
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


def test_a_port_from_python(folder: Path) -> None:
    net = importlib.import_module("net")
    port = wdport.write_port(net.build, ["x: b t=4..7 6"], name="mine")
    assert port.proved
    assert port.verdict
    assert "class Net(keras.Model):" in port.source
    assert "torch: net:Net\nkeras: mine:build\n" in port.table
    assert wdport.write_port("net:far", ["x: b t=4..7 6"]).missing[0].method == "Pair.cdist"
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["net.py"]
    with pytest.raises(wdport.WdportError, match="cannot be imported by its name"):
        wdport.write_port(lambda: net.build())


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
    assert (document["written"], document["proved"], document["missing"]) == (True, False, [])
    cli("port", "net:far", *INPUT, "-o", "far.py", "--json", "far.json", code=6)
    document = json.loads(Path("far.json").read_text())
    assert [(one["method"], one["count"], one["places"]) for one in document["missing"]] == [
        ("Pair.cdist", 2, ["net.py:38"]), ("Pair.linear", 2, ["net.py:38"])]  # fmt: skip
    assert (document["written"], document["files"], document["differs"]) == (True, ["far.py", "far.yaml"], "")
    shown = cli("port", "net:valued", *INPUT, "-o", "valued.py", "--json", "valued.json", code=6).out
    assert shown.startswith("not written: ")
    document = json.loads(Path("valued.json").read_text())
    assert [one["places"] for one in document["missing"]] == [["net.py:52"]]
    assert (document["written"], document["files"]) == (False, [])
    assert not list(folder.glob("valued.*y*"))


def test_another_name_and_arguments(folder: Path, cli: Cli) -> None:
    Path("sizes.yaml").write_text("classes: 5\n")
    torch.save(importlib.import_module("net").sized(5).state_dict(), "five.pt")
    given = ("--config", "sizes.yaml", "--checkpoint", "five.pt")
    assert "proved: " in cli("port", "net:sized", *INPUT, *given, "-o", "other.py").out
    assert "keras: other:build" in Path("other.yaml").read_text()
    build = importlib.import_module("other").build
    assert build(classes=5).count_params() == build().count_params()
    with pytest.raises(ValueError, match="the port is written for classes=5"):
        build(classes=4)
    # The class's own arguments are those of its port.
    cli("port", "net:Net", *INPUT, "--config", "sizes.yaml", "-o", "own.py")
    assert importlib.import_module("own").build(classes=3).count_params() < build().count_params()


BODIES = {
    "cdist": "ops.sum(ops.abs(x1[:, :, None] - x2[:, None]), axis=-1)",
    "linear": "x @ ops.transpose(weight_orig / ops.sum(weight_u * (weight_orig @ weight_v))) + bias",
}


def test_steps_without_a_counterpart_are_methods_whose_bodies_are_proved(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:far", *INPUT, "--reproducers", "alone", code=6).out.splitlines()
    source = Path("net_keras.py").read_text()
    programs = {path.name: path.read_text() for path in Path("alone").iterdir()}
    assert programs.keys() == {"Pair_cdist.py", "Pair_linear.py"}
    result = runpy.run_path("alone/Pair_cdist.py")["result"]
    assert result.shape == (2, 4, 4)
    assert shown == [
        f"wrote net_keras.py  3 classes, {source.count(chr(10))} lines (torch: 23): 10 of 14 steps",
        "wrote net_keras.yaml  the table",
        "wrote alone/Pair_cdist.py  a step alone, in PyTorch",
        "wrote alone/Pair_linear.py  a step alone, in PyTorch",
        "to write: Pair.cdist: torch.cdist(x1, x2, p=1.0) (net.py:38): cdist has no counterpart",
        "to write: Pair.linear: torch.nn.Linear(in_features=6, out_features=6)(input=x) (net.py:38): a hook "
        "computes its weight: fold it first",
        "equal: every other step computes what PyTorch computes",
    ]
    assert "NOT proved: some steps are left to write: Pair.cdist, Pair.linear." in Path("net_keras.yaml").read_text()
    with pytest.raises(NotImplementedError, match=r"torch\.cdist\(x1, x2, p=1\.0\) at net\.py:38: x1 \(2, 4, 6\), x2"):
        importlib.import_module("net_keras").build()
    for name, body in BODIES.items():
        source = re.sub(
            rf"(def {name}\(.*\n +)raise NotImplementedError\([^)]*(\([^)]*\)[^)]*)*\)\n", rf"\1return {body}\n", source
        )
    Path("net_keras.py").write_text(source)
    del sys.modules["net_keras"]
    torch.save(importlib.import_module("net").far().state_dict(), "net.pt")
    cli("convert", "net.pt", "-o", "net.keras", "--mapping", "net_keras.yaml")
    assert cli("verify", "net.pt", "net.keras", "--mapping", "net_keras.yaml").out.startswith("PASS")


def test_a_step_that_differs_beside_a_hole_is_found(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    find = interpreter.find_symbol
    monkeypatch.setattr(
        interpreter, "find_symbol", lambda name: (lambda x: x * 1.000001) if name == "activations.tanh" else find(name)
    )
    shown = cli("port", "net:far", *INPUT, code=1).out
    assert shown.endswith("NOT equal: torch.tanh (net.py:16) does not compute what PyTorch computes\n")


@pytest.mark.parametrize(("name", "words", "row"), [
    ("gru", ("input: t=4..7 b 6", "hx: 2 b 5"), '{torch: ".", keras: layers_/<layer>, kind: gru}'),
    ("dense", ("x: b 6",), '{torch: ".", keras: dense, kind: linear}'),
    ("attention", ("query: b t=4..7 6", "key: b u=3..6 6", "value: b u 6"),
     '{torch: ".", keras: multi_head_attention, kind: attention_packed}'),
    ("scale", ("x: b 6",), "{torch: weight, keras: weight, rule: identity}"),
])  # fmt: skip
def test_a_model_that_is_one_layer(folder: Path, cli: Cli, name: str, words: tuple[str, ...], row: str) -> None:
    shown = cli("port", f"net:{name}", *(word for text in words for word in ("--input", text))).out.splitlines()
    assert "proved: verify finds the two models equal with other weights and inputs" in shown
    assert f"\n  - {row}\n" in Path("net_keras.yaml").read_text()


def test_layers_with_the_time_first_where_the_sizes_do_not_show_it(folder: Path, cli: Cli) -> None:
    assert "\nproved: " in cli("port", "net:timed", "--input", "x: b t=4..5 6").out


def test_a_part_of_a_model(folder: Path, cli: Cli, refused: Refused) -> None:
    cli("port", "net:build", "--module", "scales.1", "--input", "x: b t=4..7 6")
    table = Path("net_scales_1_keras.yaml").read_text()
    assert 'torch: "net:build/scales.1"\nkeras: net_scales_1_keras:build\n' in table
    assert "# Proved by wdport verify" in table
    assert "class Scale(keras.Model):" in Path("net_scales_1_keras.py").read_text()
    words = ("port", "net:build", *INPUT, "--module")
    refused(
        *words,
        "scale.1",
        code=2,
        says="error: net:build/scale.1: the model has no part scale.1; did you mean scales.1?",
    )
    Path("net.pt").write_text("")
    refused(
        *words, "head", "--checkpoint", "net.pt", code=2, says="error: --checkpoint: has the weights of the whole model"
    )


def test_a_module_that_several_hold_is_one_layer(folder: Path, cli: Cli) -> None:
    torch.save(importlib.import_module("net").shared().state_dict(), "net.pt")
    assert "\nproved: " in cli("port", "net:shared", *INPUT, "--checkpoint", "net.pt").out
    source = Path("net_keras.py").read_text()
    for line in ("self.norm = Scale(width=6)", "self.first.norm = self.norm", "self.last[1].norm = self.norm",
                 "self.drops_a.norm = self.drop", "x = self.drop(self.drops_a("):  # fmt: skip
        assert line in source, line
    assert source.count("Scale(width=") == 1


def test_a_module_that_is_called_in_two_ways(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:waves", "--input", "x: b 6").out
    assert "\nproved: " in shown
    source = Path("net_keras.py").read_text()
    for line in (
        "def call(self, x, rate, training=False):",
        "def call_2(self, x, training=False):",
        "x = self.wave(x, rate=2.0, training=training) + self.wave(",
        "return self.wave.call_2(x, training=training)",
    ):
        assert line in source


@pytest.mark.parametrize(("name", "line"), [
    ("valued", "torch.Tensor.__bool__ (net.py:52): Python code reads a value that depends on the inputs, such as in a "
               "branch"),
    ("waving", "the model: returns complex numbers, which Keras lacks; return torch.view_as_real"),
    ("narrow", "the model: the code takes another way for other sizes: x.shape[1] > 5; state one size for each axis"),
])  # fmt: skip
def test_nothing_is_written_after_a_step_that_leaves_nothing_known(
    folder: Path, cli: Cli, name: str, line: str
) -> None:
    assert cli("port", f"net:{name}", *INPUT, code=6).out == f"not written: {line}\n"
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
        (["net:asserting", *INPUT], 4, "Asserting: running it raises AssertionError: too short; "),
        (["net:scripted", *INPUT], 4, "net:scripted: gives a module of TorchScript, whose steps are not visible; "),
        (["net:summing", *INPUT], 6, "the reference: computes softmax in 16 bits, "),
        (["net:packed", "--input", "x: b 5 6"], 4, "Packed: running its steps one by one raises AttributeError: "),
        (["net:number", *INPUT], 4, "net:number: "),
        (["net:mapped", *INPUT], 4, "the model: calls torch.vmap or another transform of torch.func, "),
        (["net:counting", *INPUT], 4, "net:counting: has the parameter count of whole numbers, "),
    ],
)  # fmt: skip
def test_what_cannot_be_written(folder: Path, refused: Refused, words: list[str], code: int, message: str) -> None:
    refused("port", *words, code=code, says=f"error: {message}")
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["net.py"]


def test_gradients_and_a_step_in_training_are_compared(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:words", "--input", "ids: b 5, below 7").out.splitlines()
    assert shown[2] == "proved: verify finds the two models equal with other weights and inputs"
    assert [line[:34] for line in shown[3:]] == ["note: Keras's BatchNormalization u"]
    assert ", training mode.\n" in Path("net_keras.yaml").read_text()
    source = Path("net_keras.py").read_text()
    assert all(f"ids == {row}" in source for row in range(3))


def test_stochastic_depth_and_weights_that_are_not_trained(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:deep", *INPUT).out.splitlines()
    assert (shown[2].partition(":")[0], len(shown)) == ("proved", 4)
    assert ", training mode.\n" in Path("net_keras.yaml").read_text()
    source = Path("net_keras.py").read_text()
    for line in ("layers.Dropout(rate, noise_shape=(None, 1, 1))", "Layer(rate=0.0), Layer(rate=0.1), Layer(rate=0.25)",
                 "layers.GRU(6, return_sequences=True, trainable=False)"):  # fmt: skip
        assert line in source
    assert source.count("trainable=False") == 2


def test_attention_that_drops_weights_in_training_alone(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:attending", *INPUT, "--input", "mask: b t, mask").out.splitlines()
    assert [line.partition(":")[0] for line in shown[2:]] == ["proved", "note"]
    assert "never all, since queries would see no key" in shown[3]
    assert ", training mode.\n" in Path("net_keras.yaml").read_text()
    assert "self.dropout = layers.Dropout(rate)" in Path("net_keras.py").read_text()


def test_layers_that_stay_in_evaluation_mode_and_layouts_of_equal_sizes(folder: Path, cli: Cli) -> None:
    assert "\nproved: " in cli("port", "net:image", "--input", "x: b 4 4 4").out
    table, source = (Path(f"net_keras.{suffix}").read_text() for suffix in ("yaml", "py"))
    assert ", training mode.\n" in table
    assert 'kind: layer_norm, axes: "b c h w -> b h w c"}' in table
    assert source.count("training=False)") == 2
    assert "Dropout" not in source


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("noise", "PyTorch computes something else in training than the port, at net.py:135"),
        ("partly", "the port trains parameters that PyTorch does not, such as head.bias"),
        ("other", "PyTorch computes something else in training than the port, at net.py:141"),
        ("whole", "the port trains parameters that PyTorch does not, such as scale"),
        ("cumulative", "the statistics of norm are means of all batches, as it has no momentum"),
        ("stacked", "the dropout between the layers of 0 cannot be repeated"),
    ],
)
def test_training_that_is_not_compared(folder: Path, cli: Cli, name: str, reason: str) -> None:
    shown = cli("port", f"net:{name}", *INPUT, "--no-proof").out
    assert f"\nnote: training mode is not compared: {reason}\n" in shown


def test_a_rate_of_training_alone(folder: Path, cli: Cli) -> None:
    assert "\nproved: " in cli("port", "net:rated", *INPUT).out
    assert "layers.Dropout(0.3)" in Path("net_keras.py").read_text()
    assert ", training mode.\n" in Path("net_keras.yaml").read_text()


def test_what_hooks_compute_is_written_outside_of_the_layer(folder: Path, cli: Cli) -> None:
    assert "\nproved: " in cli("port", "net:hooked", *INPUT).out
    source = Path("net_keras.py").read_text()
    assert "        return self.head(ops.mean(x, axis=1) * 2)\n" in source
    assert "        x = self.scales[1](x2 + x)\n" in source
    assert source.count("class Scale") == 1


def test_steps_and_weights_in_16_bits_are_proved(folder: Path, cli: Cli) -> None:
    assert "\nproved: " in cli("port", "net:halves", *INPUT).out
    assert '"float16")' in Path("net_keras.py").read_text()


def test_weight_norm_is_folded(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:folded", *INPUT, "--no-proof").out
    assert "\nnote: weight_norm of 0 is folded: the port trains the weight, and PyTorch its length" in shown


def test_attention_whose_weights_are_read_is_compared(folder: Path, cli: Cli) -> None:
    assert "\nproved: " in cli("port", "net:pool", *INPUT).out
    Path("net_keras.py").write_text(Path("net_keras.py").read_text().replace("ops.mean(", "ops.max("))
    sys.modules.pop("net_keras", None)
    torch.save(importlib.import_module("net").pool().state_dict(), "net.pt")
    cli("convert", "net.pt", "--mapping", "net_keras.yaml")
    cli("verify", "net.pt", "net.keras", "--mapping", "net_keras.yaml", code=1)


def test_gradients_are_compared_where_training_is_not(folder: Path, cli: Cli) -> None:
    cli("port", "net:noise", *INPUT)
    assert ", gradients.\n" in Path("net_keras.yaml").read_text()


def test_outputs_have_their_names_and_the_layout_that_the_table_states(folder: Path, cli: Cli) -> None:
    shown = cli("port", "net:square", "--input", "x: b 4 4 4").out.splitlines()
    assert shown[2] == "proved: verify finds the two models equal with other weights and inputs"
    outputs = importlib.import_module("net_keras").build()(np.ones((2, 4, 4, 4), "float32"))
    assert (list(outputs[0]), len(outputs[0]["all"])) == (["turned", "all", "mean"], 2)
    table = Path("net_keras.yaml").read_text()
    image = '"b c h w -> b h w c"'
    assert f'outputs: ["b c h w", {image}, {image}, "b c", {image}]\n' in table
    Path("net_keras.yaml").write_text(table.replace(image, '"b c h w"'))
    torch.save(importlib.import_module("net").square().state_dict(), "net.pt")
    cli("convert", "net.pt", "--mapping", "net_keras.yaml", "-o", "net.keras")
    assert (
        "output.0.all.0 is not comparable"
        in cli("verify", "net.pt", "net.keras", "--mapping", "net_keras.yaml", code=1).out
    )


def test_a_checkpoint_with_other_whole_numbers_is_of_another_model(folder: Path, cli: Cli, refused: Refused) -> None:
    cli("port", "net:places", "--input", "x: b 4 6", "--no-proof")
    places = importlib.import_module("net").Places
    for step in (3, 2):
        torch.save(places(step).state_dict(), f"{step}.pt")
    cli("convert", "3.pt", "--mapping", "net_keras.yaml")
    says = "error: 2.pt: index has other values than the constructor of the PyTorch model"
    refused("convert", "2.pt", "--mapping", "net_keras.yaml", code=4, says=says)


BACKENDS = """import importlib, sys
import keras, net, numpy as np, torch

for name in sys.argv[1:]:
    importlib.import_module(f"{name}_keras")
    model, module = keras.saving.load_model(f"{name}.keras"), getattr(net, name)().eval()
    module.load_state_dict(torch.load(f"{name}.pt"))
    rng = np.random.default_rng(0)
    x = rng.integers(0, 7, (2, 5)) if name == "words" else rng.standard_normal((2, 5, 6, 4)[: 4 - (name != "image")])
    given = torch.tensor(np.moveaxis(x, -1, 1) if name == "image" else x)
    expected = module(given if name == "words" else given.float())
    for ours, theirs in zip(*([v] if hasattr(v, "shape") else v.values() for v in (model(x), expected)), strict=True):
        theirs = theirs.movedim(1, -1) if name == "image" else theirs
        np.testing.assert_allclose(keras.ops.convert_to_numpy(ours), theirs.detach(), rtol=1e-4, atol=1e-5)
print(keras.backend.backend())
"""


@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
def test_the_port_computes_the_same_with_another_backend(folder: Path, cli: Cli, backend: str) -> None:
    pytest.importorskip(backend)
    net = importlib.import_module("net")
    inputs = {"words": "ids: b 5, below 7", "deep": "x: b 5 6", "pool": "x: b 5 6", "image": "x: b 4 5 6"}
    for name, text in inputs.items():
        fill(module := getattr(net, name)(), 3)
        torch.save(module.state_dict(), f"{name}.pt")
        words = ("--input", text, "--checkpoint", f"{name}.pt", "--no-proof", "-o", f"{name}_keras.py")
        cli("port", f"net:{name}", *words)
    done = subprocess.run([sys.executable, "-c", BACKENDS, *inputs], capture_output=True, text=True, check=False,
                          env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(folder)})  # fmt: skip
    assert done.stdout == f"{backend}\n", done.stderr


def test_names_that_keras_and_compile_use_are_others_in_the_port(folder: Path, cli: Cli) -> None:
    cli("port", "net:names", "--input", "x: b t=4..7 6", "-o", "named.py", "--no-proof")
    model = importlib.import_module("named").build()
    model.compile("sgd", loss="mse")
    x = np.ones((2, 4, 6), "float32")
    before = model.predict(x, verbose=0)
    model.fit(x, x, verbose=0)
    assert not np.allclose(model.predict(x, verbose=0), before)
