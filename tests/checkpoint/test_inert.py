"""Objects of unknown classes beside the weights: named, never imported or run, and no reason to refuse the weights."""

from __future__ import annotations

import argparse
import enum
import functools
import json
import pathlib
import pickle
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from tests.bad import gadgets
from tests.command import Cli
from wdport.base.limits import MAX_UNREAD
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.pickle_machine import run
from wdport.checkpoint.symbols import ALIASES, MODULES, NAMES, refuse_hostile

from .bad import read_all, refuse, refuse_bytes
from .forge import (
    APPEND,
    BUILD,
    DICT,
    EMPTY,
    LIST,
    MARK,
    NONE,
    REDUCE,
    SETITEM,
    archive,
    name,
    number,
    pickled,
    storage,
    table,
    tensor,
    text,
    tuple_of,
)
from .legacy import legacy, stored

STATE = {"a.weight": torch.ones(2), "b.bias": torch.zeros(3)}


class Options(dict[str, object]):
    """A dict with attributes, as Lightning's AttributeDict is one."""


class Stage(enum.Enum):
    FIT = 1


class NamedStage(enum.Enum):
    """Pickled by name, as Python 3.11.2 pickles every enumeration."""

    FIT = 1

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        return getattr, (self.__class__, self._name_)


class Trainer:
    class State:
        """Pickled at protocol 2 as ``getattr(Trainer, "State")``."""


class Touchy:
    """Running any of its code is noticed."""

    def __init__(self) -> None:
        self.itself = self

    def __setstate__(self, state: object) -> None:
        raise AssertionError("code of the file was run")


def lightning() -> dict[str, object]:
    options = Options(lr=0.1, folder=pathlib.PurePosixPath("/data"))
    vars(options)["frozen"] = True
    return {
        "epoch": 3,
        "pytorch-lightning_version": "1.5",
        "state_dict": OrderedDict(STATE),
        "hyper_parameters": options,
        "hparams_type": Options,
        "callbacks": {Stage: {"best": np.float64(0.5)}, "plain": {"path": "x"}},
        "loops": [Touchy(), {"stage": Stage.FIT, "names": {"a", "b"}, "raw": b"\x80\x81"}],
        "named": [Trainer.State(), Trainer.State, NamedStage.FIT, NamedStage.FIT],
        "args": argparse.Namespace(depth=2),
        "scale": defaultdict(int, {1: 2}),
        "activation": functools.partial(sorted, reverse=True),
        "history": np.arange(3),
        "half": torch.float16,
    }


def test_a_lightning_file_with_classes(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    torch.save(lightning(), path)
    with open_checkpoint(path) as checkpoint:
        assert (checkpoint.layout, checkpoint.key, checkpoint.metadata["epoch"]) == ("lightning", "state_dict", 3)
        assert {key: checkpoint.read(key).tolist() for key in checkpoint.tensors} == {
            "a.weight": [1.0, 1.0],
            "b.bias": [0.0, 0.0, 0.0],
        }
        here = __name__
        assert checkpoint.not_read[:4] == (
            f"hyper_parameters (class {here}.Options)",
            f"hparams_type (name {here}.Options)",
            f"callbacks.<name {here}.Stage>.best (call of numpy._core.multiarray.scalar)",
            f"loops.0 (class {here}.Touchy)",
        )
        places = [line.partition(" ")[0] for line in checkpoint.not_read[4:]]
        named = [f"named.{at}" for at in range(4)]
        assert places == ["loops.1.stage", "loops.1.raw", *named, "args", "scale", "activation", "history"]


def test_inspect_shows_what_was_not_read(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "last.ckpt"
    torch.save(lightning() | {"tied": {"w": STATE["a.weight"]}}, path)
    assert "not read" in (shown := cli("inspect", path).out)
    assert f"hyper_parameters (class {__name__}.Options)" in shown
    found = json.loads(cli("inspect", path, "--json").out)
    assert found["not_read"][0] == f"hyper_parameters (class {__name__}.Options)"
    assert found["shared"] == []
    both = torch.arange(6.0)
    torch.save({"a": both[:2], "b": both[2:], "c": torch.ones(1)}, path)
    assert "one storage  a, b\n" in cli("inspect", path).out


def test_nothing_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("gone_module")
    module.Thing = type("Thing", (), {"__module__": "gone_module"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gone_module", module)
    path = tmp_path / "x.pt"
    torch.save({"model": STATE, "thing": module.Thing()}, path)
    monkeypatch.delitem(sys.modules, "gone_module")
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.not_read == ("thing (class gone_module.Thing)",)
    assert "gone_module" not in sys.modules


def one(value: bytes, extra: bytes = NONE) -> bytes:
    """A state_dict under a key, with ``extra`` beside it."""
    return archive(pickled(table({"model": table({"w": value}), "extra": extra})))


NET = name("my.net", "Net")
OBJECT = NET + EMPTY + b"\x81"
HARMLESS = {
    "a class": NET,
    "an object": OBJECT,
    "an object of OBJ": MARK + NET + NONE + b"o",
    "an object of INST": MARK + NONE + b"imy.net\nNet\n",
    "a call": NET + tuple_of(text("x")) + REDUCE,
    "a call of a call": NET + EMPTY + REDUCE + EMPTY + REDUCE,
    "a state": OBJECT + table({"a": NONE}) + BUILD,
    "a state that is a tuple": OBJECT + tuple_of(NONE, NONE) + BUILD,
    "two states": OBJECT + DICT + BUILD + DICT + BUILD,
    "items": OBJECT + text("a") + NONE + SETITEM,
    "odd items": OBJECT + MARK + text("a") + NONE + b"u",
    "appended items": OBJECT + NONE + b"a",
    "an object inside itself": OBJECT + b"q\x09" + table({"me": b"h\x09"}) + BUILD,
    "a tuple inside itself, by POP": OBJECT + b"q\x09" + NONE + b"0",
    "a known class": name("collections", "OrderedDict"),
    "a storage class": name("torch", "FloatStorage"),
    "a bare storage": storage(),
    "a set of numbers": name("__builtin__", "set") + LIST + number(1) + b"a\x85" + REDUCE,
    "a key of another type": DICT + EMPTY + NONE + SETITEM,
    "a key that is an object": DICT + OBJECT + NONE + SETITEM,
    "an OrderedDict with attributes": name("collections", "OrderedDict") + EMPTY + b"R" + table({"x": NONE}) + BUILD,
    "a quantized tensor": name("torch._utils", "_rebuild_qtensor") + EMPTY + REDUCE,
    "a sparse tensor": name("torch._utils", "_rebuild_sparse_tensor") + EMPTY + REDUCE,
    "an expanded tensor": tensor((9, 6), (0, 1)),
    "a tensor with hooks": tensor(hooks=DICT),
    "bytes": name("_codecs", "encode") + tuple_of(text("x"), text("latin1")) + REDUCE,
}


@pytest.mark.parametrize("case", HARMLESS)
def test_beside_the_weights_it_does_no_harm(case: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(one(tensor(), HARMLESS[case]))
    assert len(read_all(path)) == 1
    old = pickled(table({"model": table({"w": tensor(source=stored())}), "extra": NONE}))
    path.write_bytes(
        legacy(old.replace(text("extra") + NONE, text("extra") + HARMLESS[case].replace(storage(), stored())))
    )
    assert len(read_all(path)) == 1


def test_tensors_with_attributes(tmp_path: Path) -> None:
    """Notes on a tensor are left out; an attribute that would change its values is refused."""
    noted, changed = torch.nn.Parameter(torch.ones(2)), torch.ones(3)
    noted.note = "x"  # type: ignore[attr-defined]
    changed.also = 1  # type: ignore[attr-defined]
    path = tmp_path / "x.pt"
    torch.save({"a": noted, "b": changed}, path)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.read("a").tolist() == [1.0, 1.0]
        assert checkpoint.read("b").tolist() == [1.0, 1.0, 1.0]
    function = name("torch._utils", "_rebuild_parameter_with_state")
    ordered = name("collections", "OrderedDict") + EMPTY + REDUCE
    value = function + tuple_of(tensor(), b"\x88", ordered, table({"data": tensor()})) + REDUCE
    refuse_bytes(tmp_path, one(value), "w: a parameter with custom attributes")


class Subclass(torch.Tensor):
    pass


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:.*Sparse:UserWarning", "ignore:The PyTorch API of nested tensors:UserWarning")
def test_kinds_of_tensors_that_torch_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    plain = torch.ones(2, 3)
    kinds = {
        "a sparse tensor": plain.to_sparse(),
        "a tensor subclass": plain.as_subclass(Subclass),
        "a meta tensor": plain.to("meta"),
        "a tensor of a dtype": plain.to(torch.float8_e4m3fn),
        "a tensor that is to be conjugated": plain.to(torch.complex64).conj(),
        "a quantized tensor": torch.quantize_per_tensor(plain, 0.1, 0, torch.qint8),
        "a nested tensor": torch.nested.nested_tensor([plain, plain]),
    }
    for fragment, value in kinds.items():
        torch.save({"model": {"w": plain, "odd": value}}, path)
        refuse(path, f"odd: {fragment}")
        torch.save({"model": {"w": plain}, "odd": value}, path)
        assert len(read_all(path)) == 1, fragment


GADGETS = [*sorted(NAMES), *((module, "anything") for module in sorted(MODULES))]
GADGETS += [(f"{module}.deeper", "anything") for module in sorted(MODULES)]
GADGETS += [("my.module", alias) for alias in sorted(ALIASES)]
GADGETS += [("torch", "FloatStorage.__init__"), ("collections", "OrderedDict.fromkeys"), ("my", "__reduce__")]


def test_every_name_of_an_attack_is_refused() -> None:
    """Those that the reader lists, and those of public scanners."""
    for module, attribute in GADGETS + gadgets.GADGETS:
        with pytest.raises(Fault, match="the pickle asks for "):
            refuse_hostile(module, attribute)


GET, ATTRIBUTE = name("builtins", "getattr"), name("my", "Stage") + text("FIT") + b"\x86"
FIT = GET + ATTRIBUTE + REDUCE


@pytest.mark.parametrize(
    "other_use",
    {
        "passed on": name("builtins", "map") + tuple_of(GET, LIST) + REDUCE,
        "recalled": GET + b"q\x05" + ATTRIBUTE + REDUCE + b"0h\x05",
        "in a list that is recalled": LIST + GET + APPEND + b"q\x050" + FIT + b"0h\x05",
        "thrown away": GET + b"0" + NONE,
        "a new object": GET + ATTRIBUTE + b"\x81",
        "three arguments": GET + tuple_of(name("my", "Stage"), text("FIT"), NONE) + REDUCE,
        "of a module": GET + tuple_of(name("my", "tools"), text("FIT")) + REDUCE,
        "of an object": GET + tuple_of(name("my", "Stage") + EMPTY + b"\x81", text("FIT")) + REDUCE,
        "of a storage class": GET + tuple_of(name("torch", "FloatStorage"), text("FIT")) + REDUCE,
        "of a member": GET + tuple_of(GET + tuple_of(name("my", "Stage"), text("fit")) + REDUCE, text("x")) + REDUCE,
        "a special name": GET + tuple_of(name("my", "Stage"), text("__globals__")) + REDUCE,
        "a name of attacks": GET + tuple_of(name("my", "Stage"), text("system")) + REDUCE,
        "a dotted name": GET + tuple_of(name("my", "Stage"), text("a.b")) + REDUCE,
        "a long name": GET + tuple_of(name("my", "Stage"), text("A" * 600)) + REDUCE,
        "a method that is passed on": name("builtins", "map")
        + tuple_of(GET + tuple_of(name("my", "Stage"), text("run")) + REDUCE, LIST)
        + REDUCE,
        "a method that is called": GET + tuple_of(name("my", "Stage"), text("run")) + REDUCE + EMPTY + REDUCE,
        "a method that makes an object": GET + tuple_of(name("my", "Stage"), text("run")) + REDUCE + EMPTY + b"\x81",
    }.items(),
    ids=lambda case: case[0],
)
def test_getattr_names_an_attribute_of_a_class_alone(other_use: tuple[str, bytes], tmp_path: Path) -> None:
    good = tmp_path / "good.pt"
    good.write_bytes(one(tensor(), FIT))
    with open_checkpoint(good) as checkpoint:
        assert checkpoint.not_read == ("extra (name my.Stage.FIT)",)
    refuse_bytes(tmp_path, one(tensor(), other_use[1]), "only an attack needs")


@pytest.mark.parametrize("key", [NamedStage.FIT, Trainer, 3, None, (1, 2)], ids=str)
def test_tables_under_keys_that_are_not_text(key: object, tmp_path: Path) -> None:
    torch.save({key: STATE, "deeper": {key: STATE}, "state_dict": STATE}, tmp_path / "keys.pt")
    assert len(read_all(tmp_path / "keys.pt")) == len(STATE)


def test_a_nested_class_in_a_later_protocol() -> None:
    tree = run(pickle.dumps([Trainer.State, Stage.FIT], 4), later=True).tree
    assert "Trainer.State" in repr(tree)
    with pytest.raises(Fault, match="an attribute of something else"):
        run(pickle.dumps(Touchy.__setstate__, 4), later=True)


@pytest.mark.parametrize(
    "change",
    [
        OBJECT + DICT + b"q\x05" + BUILD + b"h\x05" + text("x") + NONE + SETITEM,
        name("torch.fx.graph_module", "reduce_graph_module") + DICT + b"q\x05" + NONE + b"\x86R0h\x05"
        + text("x") + NONE + SETITEM,
    ],
)  # fmt: skip
def test_what_an_object_was_built_from_stays(change: bytes, tmp_path: Path) -> None:
    refuse_bytes(tmp_path, one(tensor(), change), "changes what an object was built from")


def test_copies_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.pickle_reader.MAX_OPCODES", 1000)
    many = LIST + b"q\x05" + MARK + b"".join(map(text, "abcdefgh")) + b"e0"
    again = name("__builtin__", "set") + b"q\x06" + (b"h\x06h\x05\x85R0") * 100
    refuse_bytes(tmp_path, one(tensor(), many + b"h\x05\x850" + again + NONE), "copies more than 1000 items")


def test_many_lines_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    objects = b"".join(text(str(index)) + OBJECT for index in range(MAX_UNREAD + 50))
    path.write_bytes(one(tensor(), DICT + MARK + objects + b"u"))
    with open_checkpoint(path) as checkpoint:
        assert len(checkpoint.not_read) == MAX_UNREAD + 1
        assert checkpoint.not_read[-1] == "and 50 more"


def test_a_long_name_is_cut_quickly(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(one(tensor(), DICT + text("k" * 5_000_000) + OBJECT + SETITEM))
    with open_checkpoint(path) as checkpoint:
        assert len(checkpoint.not_read[0]) < 400


def test_storage_ids_that_contradict_each_other(tmp_path: Path) -> None:
    """torch takes the type of the first id for both."""
    whole = {"a": tensor(), "b": tensor(source=storage(cls="IntStorage"))}
    refuse_bytes(tmp_path, archive(pickled(table(whole))), "declared as 6 int32 and as 6 float32")
