"""Whole pickled modules and TorchScript archives: the names, the order and the bits of ``state_dict()``."""

from __future__ import annotations

import io
import warnings
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn

from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.modules import MAX_TENSOR_NAME

from .bad import read_all, refuse, refuse_bytes
from .forge import BUILD, DICT, EMPTY, NONE, REDUCE, archive, name, pickled, table, tensor, text, tuple_of
from .legacy import saved
from .test_torch_equal import same


class Block(nn.Module):
    """One of everything that state_dict() tells apart."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.arange(3.0))
        self.register_parameter("absent", None)
        self.register_buffer("kept", torch.ones(2, dtype=torch.int64))
        self.register_buffer("left_out", torch.zeros(4), persistent=False)
        self.register_buffer("none", None)
        self.plain = torch.ones(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.kept.sum() + self.left_out.sum() + self.plain.sum()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.again = self.block
        self.hidden = None
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.BatchNorm1d(3)])
        self.table = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False)})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(1))])
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.again(self.block(x)) * self.scale
        return self.table["a"](self.layers[1](self.layers[0](x))) * self.weights[0]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.again = self.block
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.lstm = nn.LSTM(3, 2)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.layers(self.again(self.block(x))) * self.scale)[0]


def equal(path: Path, expected: dict[str, torch.Tensor], key: str | None = None) -> tuple[str, ...]:
    """Compare names, order and bits; what was not read."""
    with open_checkpoint(path, key=key) as checkpoint:
        assert checkpoint.layout == "module"
        assert list(checkpoint.tensors) == list(expected)
        for own, value in expected.items():
            same(checkpoint.read(own), value)
        return checkpoint.not_read


@pytest.mark.parametrize("old", [False, True])
def test_a_whole_module(old: bool, tmp_path: Path) -> None:
    path, model = tmp_path / "model.pt", Net()
    path.write_bytes(saved(model)) if old else torch.save(model, path)
    assert equal(path, model.state_dict()) == (f"the module (code and other attributes of class {__name__}.Net)",)


def test_a_module_under_a_key(tmp_path: Path) -> None:
    path, model = tmp_path / "model.pt", Net()
    torch.save({"model": model, "epoch": 3, "optimizer": {"state": {}}}, path)
    assert len(equal(path, model.state_dict())) == 1
    torch.save({"model": model, "ema": model.state_dict()}, path)
    refuse(path, "2 candidates for the state_dict: model, ema; choose with key='ema' or 'raw'")
    equal(path, model.state_dict(), "model")
    torch.save({"odd": model, "epoch": 1}, path)
    refuse(path, "tensors are under odd; choose one with key=NAME")
    equal(path, model.state_dict(), "odd")
    torch.save({"outer": {"inner": model}}, path)
    equal(path, model.state_dict(), "outer.inner")


def test_wrapped_modules(tmp_path: Path) -> None:
    path, model = tmp_path / "model.pt", nn.DataParallel(nn.Linear(2, 2))
    torch.save(model, path)
    with open_checkpoint(path) as checkpoint:
        assert (list(checkpoint.tensors), checkpoint.prefixes) == (["weight", "bias"], ("module.",))


def test_hooks_are_reported(tmp_path: Path) -> None:
    path, model = tmp_path / "model.pt", nn.utils.spectral_norm(nn.Linear(2, 2))
    torch.save(model, path)
    assert any("_state_dict_hooks (code" in line for line in equal(path, model.state_dict()))


def test_parametrizations(tmp_path: Path) -> None:
    path, model = tmp_path / "model.pt", nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        torch.save(model, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.utils.weight_norm(nn.Linear(2, 2))
    torch.save(model, path)
    equal(path, model.state_dict())


def test_a_graph_module(tmp_path: Path) -> None:
    """torch.fx pickles its attributes and the source of its code, which is not looked at."""
    layers = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    path, model = tmp_path / "model.pt", torch.fx.symbolic_trace(layers.eval())
    torch.save(model, path)
    expected = torch.load(path, weights_only=False).state_dict()
    assert list(expected) == list(layers.state_dict())
    equal(path, expected)
    torch.save({"model": model, "epoch": 1}, path)
    equal(path, expected)


def linear(**tables: bytes) -> bytes:
    """A module of somebody's class with these attributes."""
    defaults = {"_parameters": DICT, "_buffers": DICT, "_modules": DICT}
    return name("my.net", "Net") + EMPTY + b"\x81" + table(defaults | tables) + BUILD


PARAMETERS = table({"w": tensor()})
TEXTS = name("__builtin__", "set")
MODULES = {
    "no tensors": (linear(), "without parameters or buffers"),
    "no tables": (name("my.net", "Net") + EMPTY + b"\x81" + DICT + BUILD, "object of class my.net.Net"),
    "no state": (name("my.net", "Net") + EMPTY + b"\x81", "class my.net.Net, whose contents are not read"),
    "a class alone": (name("my.net", "Net"), "name my.net.Net"),
    "items set afterwards": (linear(_parameters=PARAMETERS) + text("x") + NONE + b"s", "whose contents"),
    "two states": (linear(_parameters=PARAMETERS) + table({"_parameters": DICT}) + BUILD, "whose contents"),
    "a parameter that is text": (linear(_parameters=table({"w": text("x")})), "w: its state_dict entry is the str"),
    "a parameter that is an object": (linear(_parameters=table({"w": name("my", "Thing") + EMPTY + b"\x81"})),
                                      "w: its state_dict entry is an object (class my.Thing)"),
    "a quantized buffer": (linear(_buffers=table({"b": name("torch._utils", "_rebuild_qtensor") + EMPTY + REDUCE})),
                           "b: a quantized tensor"),
    "a child that is no module": (linear(_parameters=PARAMETERS,
                                         _modules=table({"sub": name("my", "Thing") + EMPTY + b"\x81"})),
                                  "sub: is class my.Thing, not a module that can be read"),
    "a child that is text": (linear(_modules=table({"sub": text("x")})), "sub: is a str, not a module"),
    "a name that is a number": (linear(_parameters=DICT + b"K\x01" + tensor() + b"s"), "not a short text"),
    "a name that is too long": (linear(_parameters=table({"x" * (MAX_TENSOR_NAME + 1): tensor()})), "not a short text"),
    "two tensors of one name": (linear(_parameters=table({"a.w": tensor()}),
                                       _modules=table({"a": linear(_parameters=PARAMETERS)})),
                                "a.w: two tensors of the module have this name"),
    "a set that is a list": (linear(_parameters=PARAMETERS, _non_persistent_buffers_set=b"]"),
                             "_non_persistent_buffers_set is not a set"),
    "a set of numbers": (linear(_parameters=PARAMETERS, _non_persistent_buffers_set=TEXTS + b"]K\x01a\x85R"),
                         "_non_persistent_buffers_set is not a set"),
    "a module inside itself": (name("my.net", "Net") + EMPTY + b"\x81q\x09"
                               + table({"_parameters": DICT, "_buffers": DICT, "_modules": table({"me": b"h\x09"})})
                               + BUILD, "contains itself"),
    "a key for a module": (linear(_parameters=PARAMETERS), "has no key 'model'"),
}  # fmt: skip


@pytest.mark.parametrize("case", MODULES)
def test_module_refused(case: str, tmp_path: Path) -> None:
    body, fragment = MODULES[case]
    path = tmp_path / "bad.pt"
    path.write_bytes(archive(pickled(body)))
    refuse(path, fragment, key="model" if case == "a key for a module" else None)


def test_a_forged_module_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(archive(pickled(linear(_parameters=PARAMETERS))))
    assert list(read_all(tmp_path / "x.pt")) == ["w"]


def test_a_module_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.modules.MAX_MODULE_ENTRIES", 20_000)
    levels = 40
    parts = [linear(_parameters=PARAMETERS) + b"q\x000"]
    for level in range(levels):
        below = b"h" + bytes([level])
        parts.append(linear(_modules=table({"a": below, "b": below})) + b"q" + bytes([level + 1]) + b"0")
    refuse_bytes(tmp_path, archive(pickled(b"".join(parts) + b"h" + bytes([levels]))), "a module of more than 20000 ")


def test_a_deep_module(tmp_path: Path) -> None:
    parts = [linear(_parameters=PARAMETERS) + b"q\x000"]
    for _ in range(150):
        parts.append(linear(_modules=table({"a": b"h\x00"})) + b"q\x000")
    refuse_bytes(tmp_path, archive(pickled(b"".join(parts) + b"h\x00")), "nested more than 100 deep")


# TorchScript --------------------------------------------------------------------------------------------


def script(model: nn.Module, how: str) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.script(model) if how == "script" else torch.jit.trace(model, torch.ones(4, 3))
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer)
    return buffer.getvalue()


def scripted_state(content: bytes) -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state: OrderedDict[str, torch.Tensor] = torch.jit.load(io.BytesIO(content)).state_dict()
    return state


@pytest.mark.parametrize("how", ["script", "trace"])
def test_a_torchscript_archive(how: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(script(Small().eval(), how))
    expected = scripted_state(path.read_bytes())
    assert "block.left_out" in expected, "TorchScript keeps what is not persistent"
    assert "block.plain" not in expected
    lines = equal(path, expected)
    assert lines[0].startswith("the module (code and other attributes of class __torch__.")
    assert [line for line in lines if "plain" in line] in (
        [],
        [f"{place}.plain (a tensor, but neither parameter nor buffer)" for place in ("block", "again")],
    )
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "torchscript"


def test_a_frozen_archive(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frozen = torch.jit.freeze(torch.jit.script(nn.Linear(2, 2).eval()))
        torch.jit.save(frozen, tmp_path / "model.pt")
    assert scripted_state((tmp_path / "model.pt").read_bytes()) == {}
    refuse(tmp_path / "model.pt", "without parameters or buffers")


def test_code_is_never_looked_at(tmp_path: Path) -> None:
    """Neither its bytes nor its CRCs matter; those of everything else do."""
    import zipfile

    path = tmp_path / "model.pt"
    path.write_bytes(script(Small().eval(), "script"))
    with zipfile.ZipFile(path) as opened:
        code = next(info for info in opened.infolist() if "/code/" in info.filename and info.compress_type)
    content = bytearray(path.read_bytes())
    content[code.header_offset + 30 + len(code.filename) + code.compress_size // 2 + 32] ^= 0xFF
    path.write_bytes(content)
    assert len(read_all(path)) == len(scripted_state(script(Small().eval(), "script")))


def test_an_object_that_wrote_its_own_state(tmp_path: Path) -> None:
    """It may hold tensors, which cannot be found."""
    cls, sub = name("__torch__", "Net"), name("__torch__.sub", "Packed") + EMPTY + b"\x81" + tuple_of(tensor()) + BUILD
    state = table({"w": tensor(), "training": b"\x89", "sub": sub})
    body = cls + EMPTY + b"\x81" + state + BUILD
    refuse_bytes(tmp_path, archive(pickled(body)), "sub: is class __torch__.sub.Packed, not a module")


def test_a_submodule_of_another_name_is_read(tmp_path: Path) -> None:
    """torch tells modules by the archive's code, not by the names in data.pkl."""
    sub = name("elsewhere", "Sub") + EMPTY + b"\x81" + table({"w": tensor(), "training": b"\x89"}) + BUILD
    body = name("__torch__", "Net") + EMPTY + b"\x81" + table({"training": b"\x89", "sub": sub}) + BUILD
    (tmp_path / "x.pt").write_bytes(archive(pickled(body)))
    assert list(read_all(tmp_path / "x.pt")) == ["sub.w"]
