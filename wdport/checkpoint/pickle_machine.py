"""Interpret a pickle of protocol 2 as a tree of plain containers, numbers, text, symbols and unloaded objects, of
bounded depth and size.

Shared objects are normal (the same text or tensor occurs in several places). Refused are an object that contains
itself, and a few hundred bytes that unfold to billions of nodes when traversed. Unloaded objects are
not inspected: objects may refer to themselves.

The opcodes are the 31 that ``torch.save`` writes for checkpoints (counted over real files with ``pickletools.genops``),
and those that objects, tuples that contain themselves, and Python 2 add. Each is reimplemented here on a
:class:`~wdport.checkpoint.pickle_reader.Tape`; none imports, calls or sets an attribute of what the file names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from struct import unpack
from typing import Final

from wdport.base.limits import MAX_DEPTH, MAX_OPCODES, MAX_TENSORS
from wdport.checkpoint.faults import LOAD_AND_SAVE, NOT_WRITTEN_BY_TORCH, Fault
from wdport.checkpoint.pickle_reader import Tape, utf8
from wdport.checkpoint.symbols import (
    GETATTR,
    MAX_NAME_CHARS,
    ConstantSymbol,
    Constructor,
    attack,
    resolve,
)
from wdport.checkpoint.tensor import StorageClass, StorageRef, Storages, TensorRef
from wdport.checkpoint.unloaded_object import GRAPH_MODULE, Form, UnloadedObject, applied

_NAMES: Final = (ConstantSymbol, Constructor, StorageClass)
_LEAVES: Final = (str, int, float, bool, type(None), frozenset, TensorRef, StorageRef, UnloadedObject, *_NAMES)


def audit(tree: object) -> None:
    """Refuse cycles, depth over ``MAX_DEPTH``, and unfolded size over ``MAX_OPCODES``."""
    _Audit().measure(tree, 0)


class _Audit:
    def __init__(self) -> None:
        self.measured: dict[int, tuple[int, int]] = {}
        self.open: set[int] = set()

    def measure(self, node: object, depth: int) -> tuple[int, int]:
        """Return height and unfolded size of ``node``, at depth ``depth``; each object is visited once."""
        if isinstance(node, _LEAVES):
            return 0, 1
        # By identity: equal lists are distinct objects, and comparing them could take as long as unfolding them. The
        # tree keeps every node alive, so no id is used twice.
        measured = self.measured.get(id(node))
        height, size = measured if measured is not None else self._walk(node, depth)
        if depth + height > MAX_DEPTH:
            raise Fault(f"nested more than {MAX_DEPTH} deep", NOT_WRITTEN_BY_TORCH)
        if size > MAX_OPCODES:
            raise Fault(f"unfolds to more than {MAX_OPCODES} objects", NOT_WRITTEN_BY_TORCH)
        return height, size

    def _walk(self, node: object, depth: int) -> tuple[int, int]:
        if depth > MAX_DEPTH:
            raise Fault(f"nested more than {MAX_DEPTH} deep", NOT_WRITTEN_BY_TORCH)
        if id(node) in self.open:
            raise Fault("an object of the pickle contains itself")
        self.open.add(id(node))
        height, size = 0, 1
        for child in _children(node):
            child_height, child_size = self.measure(child, depth + 1)
            height, size = max(height, child_height + 1), size + child_size
        self.open.remove(id(node))
        self.measured[id(node)] = height, size
        return height, size


def _children(node: object) -> list[object] | tuple[object, ...]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, (list, tuple)) else ()


_MAX_ATTRIBUTES: Final = 100
_MAX_DIGITS: Final = 20
_KEY_LIMIT: Final = 1 << 32
"""Limit on integer keys, which count parameters: large ones can be chosen so that all hashes collide."""
_PAIR_WORK: Final = 4
"""An item of a copied OrderedDict takes about as much memory as four opcodes can allocate."""

_PROTO: Final = b"\x80\x02"
_PROTOS: Final = (_PROTO, b"\x80\x03", b"\x80\x04", b"\x80\x05")
_OTHER_PROTOCOL: Final = "the pickle is not of protocol 2"
_STOP: Final = 0x2E
_TELLING: Final = {0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL"}
"""Names, for messages, of the refused opcodes that can run code."""


@dataclass(frozen=True, slots=True)
class Pickled:
    """The object that a pickle describes, the position after its STOP, and the storages that it declares."""

    tree: object
    end: int
    storages: Storages


def run(
    data: bytes, start: int = 0, *, legacy: bool = False, max_opcodes: int | None = None, later: bool = False
) -> Pickled:
    """Return the object that the pickle at ``start`` describes, with symbols and inert leaves for non-plain parts.

    ``legacy`` reads the persistent ids of files before torch 1.6; ``max_opcodes`` caps the opcodes; ``later`` reads
    protocol 4, or 5 without its further opcodes, instead of 2.
    """
    storages = Storages(legacy)
    tape = Tape(data, start, storages.persistent)
    opcodes = {**_OPCODES, **_LATER} if later else _OPCODES
    if tape.take(2) not in (_PROTOS if later else (_PROTO,)):
        raise Fault(_OTHER_PROTOCOL, LOAD_AND_SAVE)
    max_opcodes = MAX_OPCODES if max_opcodes is None else max_opcodes
    for _ in range(max_opcodes):
        code = tape.code()
        if code == _STOP:
            if tape.frames or len(tape.stack) != 1:
                raise Fault("the pickle ends with other than one object on its stack")
            for name in +tape.uncalled:
                raise attack(name)
            return Pickled(tape.stack[0], tape.position, storages)
        step = opcodes.get(code)
        if step is None:
            name = _TELLING.get(code, f"{code:#04x}")
            raise Fault(f"the pickle uses opcode {name}, which weights do not need", NOT_WRITTEN_BY_TORCH)
        step(tape)
    raise Fault(f"the pickle has more than {max_opcodes} opcodes", NOT_WRITTEN_BY_TORCH)


def run_whole(data: bytes) -> Pickled:
    """Run a pickle that must fill ``data``."""
    if data[:2] != _PROTO:
        raise Fault(_OTHER_PROTOCOL, LOAD_AND_SAVE)
    pickled = run(data)
    if pickled.end != len(data):
        raise Fault(f"{len(data) - pickled.end} bytes follow the end of the pickle")
    return pickled


def _global(tape: Tape) -> None:
    module, name = tape.line(MAX_NAME_CHARS), tape.line(MAX_NAME_CHARS)
    _push_symbol(tape, resolve(module, name))


def _push_symbol(tape: Tape, symbol: object) -> None:
    if isinstance(symbol, Constructor) and symbol in GETATTR:  # must be called: nobody else passes it on or stores it
        tape.uncalled[symbol.name] += 1
    tape.push(symbol)


def _reduce(tape: Tape) -> None:
    arguments, function = tape.pop(), tape.pop()
    if type(arguments) is not tuple or not isinstance(function, Constructor):
        tape.push(_applied(tape, function, arguments, "call"))
        return
    # Copying a memoised list takes a few bytes of the file and any amount of work, so the items are counted.
    copied = arguments[0] if arguments and type(arguments[0]) is list else []
    tape.spend(_PAIR_WORK * len(copied))
    if function in GETATTR:
        tape.uncalled[function.name] -= 1
    result = function.build(arguments)
    if isinstance(result, TensorRef):
        tape.tensors += 1
        if tape.tensors > MAX_TENSORS:
            raise Fault(f"more than {MAX_TENSORS} tensors", NOT_WRITTEN_BY_TORCH)
    tape.push(result)
    if isinstance(result, OrderedDict) and copied:
        _set_items(tape, [part for pair in copied for part in _pair(pair)])


def _pair(pair: object) -> tuple[object, object]:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise Fault("an OrderedDict is built from something that is not a list of pairs", NOT_WRITTEN_BY_TORCH)
    return pair[0], pair[1]


def _applied(tape: Tape, function: object, arguments: object, form: Form) -> UnloadedObject:
    if isinstance(function, Constructor):  # such as OrderedDict by NEWOBJ, which torch never writes
        if function in GETATTR:
            raise attack(function.name)
        module, _, name = function.name.rpartition(".")
        function = UnloadedObject(module, name, "name")
    if not isinstance(function, UnloadedObject) or type(arguments) is not tuple:
        raise Fault("the pickle calls something that cannot be called", NOT_WRITTEN_BY_TORCH)
    # Its attributes are read later (modules.py), so no later opcode may change them.
    if function.full_name == GRAPH_MODULE and arguments:
        tape.frozen.add(id(arguments[0]))
    return applied(function, arguments, form)


def _new_object(tape: Tape) -> None:
    arguments, cls = tape.pop(), tape.pop()
    tape.push(_applied(tape, cls, arguments, "object"))


def _old_object(tape: Tape) -> None:
    cls, *arguments = tape.close_frame() or [None]
    tape.push(_applied(tape, cls, tuple(arguments), "object"))


def _instance(tape: Tape) -> None:
    module, name = tape.line(MAX_NAME_CHARS), tape.line(MAX_NAME_CHARS)
    tape.push(_applied(tape, resolve(module, name), tuple(tape.close_frame()), "object"))


def _build(tape: Tape) -> None:
    """Store an object's state with it; for a state_dict, drop ``_metadata`` (versions of modules)."""
    state, target = tape.pop(), tape.top()
    if isinstance(target, UnloadedObject) and target.form != "name":
        if isinstance(state, dict) and target.state is None:
            target.state = state
            tape.frozen.add(id(state))
        else:
            target.altered = True
        return
    # torch sets `_metadata` on a state_dict; a name with two underscores could replace a method of the dict.
    if type(target) is not OrderedDict or not _is_harmless(state):
        raise Fault("the pickle sets attributes of an object", NOT_WRITTEN_BY_TORCH)


def _is_harmless(state: object) -> bool:
    """Return whether these attributes of an OrderedDict leave its items unchanged."""
    if type(state) is not dict or len(state) > _MAX_ATTRIBUTES:
        return False
    return all(type(key) is str and not key.startswith("__") for key in state)


def _set_items(tape: Tape, items: list[object]) -> None:
    target = tape.top()
    if isinstance(target, UnloadedObject) and target.form != "name":
        target.altered = True
        return
    if not isinstance(target, dict) or len(items) % 2:
        raise Fault("the pickle sets items of something that is not a dict")
    tape.check_open(target)
    for key, value in zip(items[::2], items[1::2], strict=True):
        key = _key(key)
        if key in target:
            raise Fault(f"duplicate key {key!r} in a dict")
        target[key] = value


def _key(key: object) -> object:
    """Return a text or small integer key, or an inert leaf, which is never compared, in place of anything else."""
    if type(key) is str or (type(key) is int and -_KEY_LIMIT < key < _KEY_LIMIT) or isinstance(key, UnloadedObject):
        return key
    # Python's unpickler raises TypeError here, so such a file is damaged rather than unusual.
    if isinstance(key, (dict, list)):
        raise Fault("the pickle has a key that no dict can hold")
    return UnloadedObject("", type(key).__name__, "key")


def _append_items(tape: Tape, items: list[object]) -> None:
    target = tape.top()
    if isinstance(target, UnloadedObject) and target.form != "name":
        target.altered = True
        return
    if not isinstance(target, list):
        raise Fault("the pickle appends to something that is not a list")
    target.extend(items)


def _decimal(tape: Tape) -> None:
    """Parse INT: ``00`` and ``01`` are booleans; Python 2 uses it for integers of more than 32 bits."""
    text = tape.line(_MAX_DIGITS)
    if text in ("00", "01"):
        tape.push(text == "01")
    elif text.removeprefix("-").isdecimal() and text.isascii():
        tape.push(int(text))
    else:
        raise Fault("a number in the pickle is not decimal")


def _tuple_of(count: int) -> Callable[[Tape], None]:
    def step(tape: Tape) -> None:
        items = [tape.pop() for _ in range(count)]
        tape.push(tuple(reversed(items)))

    return step


def _recall(tape: Tape, index: int) -> None:
    if index not in tape.memo:
        raise Fault(f"the pickle recalls object {index}, which it never stored")
    _push_symbol(tape, tape.memo[index])


def _remember(tape: Tape, index: int) -> None:
    tape.memo[index] = tape.top()


def _set_item(tape: Tape) -> None:
    value, key = tape.pop(), tape.pop()
    _set_items(tape, [key, value])


_OPCODES: Final[dict[int, Callable[[Tape], object]]] = {
    0x4E: lambda tape: tape.push(None),  # NONE
    0x88: lambda tape: tape.push(True),  # NEWTRUE
    0x89: lambda tape: tape.push(False),  # NEWFALSE
    0x4A: lambda tape: tape.push(int.from_bytes(tape.take(4), "little", signed=True)),  # BININT
    0x4B: lambda tape: tape.push(tape.code()),  # BININT1
    0x4D: lambda tape: tape.push(tape.number(2)),  # BININT2
    0x8A: lambda tape: tape.push(int.from_bytes(tape.take(tape.code()), "little", signed=True)),  # LONG1
    0x47: lambda tape: tape.push(unpack(">d", tape.take(8))[0]),  # BINFLOAT
    0x58: lambda tape: tape.push(utf8(tape.take(tape.number(4)))),  # BINUNICODE
    0x7D: lambda tape: tape.push({}),  # EMPTY_DICT
    0x5D: lambda tape: tape.push([]),  # EMPTY_LIST
    0x29: lambda tape: tape.push(()),  # EMPTY_TUPLE
    0x28: Tape.open_frame,  # MARK
    0x74: lambda tape: tape.push(tuple(tape.close_frame())),  # TUPLE
    0x85: _tuple_of(1),  # TUPLE1
    0x86: _tuple_of(2),  # TUPLE2
    0x87: _tuple_of(3),  # TUPLE3
    0x73: _set_item,  # SETITEM
    0x75: lambda tape: _set_items(tape, tape.close_frame()),  # SETITEMS
    0x61: lambda tape: _append_items(tape, [tape.pop()]),  # APPEND
    0x65: lambda tape: _append_items(tape, tape.close_frame()),  # APPENDS
    0x71: lambda tape: _remember(tape, tape.code()),  # BINPUT
    0x72: lambda tape: _remember(tape, tape.number(4)),  # LONG_BINPUT
    0x68: lambda tape: _recall(tape, tape.code()),  # BINGET
    0x6A: lambda tape: _recall(tape, tape.number(4)),  # LONG_BINGET
    0x63: _global,  # GLOBAL
    0x51: lambda tape: tape.push(tape.persistent(tape.pop())),  # BINPERSID
    0x52: _reduce,  # REDUCE
    0x62: _build,  # BUILD
    # Objects, and tuples that contain themselves. Above are 31, with PROTO, which may only come first, and STOP.
    0x81: _new_object,  # NEWOBJ
    0x6F: _old_object,  # OBJ
    0x69: _instance,  # INST
    0x30: Tape.pop,  # POP
    0x31: Tape.close_frame,  # POP_MARK
    # Python 2
    0x55: lambda tape: tape.push(utf8(tape.take(tape.code()))),  # SHORT_BINSTRING
    0x54: lambda tape: tape.push(utf8(tape.take(tape.number(4)))),  # BINSTRING
    0x49: _decimal,  # INT
}


def _stack_global(tape: Tape) -> None:
    name, module = tape.pop(), tape.pop()
    if not isinstance(name, str) or not isinstance(module, str) or len(module) + len(name) > MAX_NAME_CHARS:
        raise Fault("the pickle names something by other than a short text", NOT_WRITTEN_BY_TORCH)
    _push_symbol(tape, resolve(module, name))


_LATER: Final[dict[int, Callable[[Tape], object]]] = {
    0x95: lambda tape: tape.take(8),  # FRAME: a length, which need not be known
    0x8C: lambda tape: tape.push(utf8(tape.take(tape.code()))),  # SHORT_BINUNICODE
    0x94: lambda tape: _remember(tape, len(tape.memo)),  # MEMOIZE
    0x93: _stack_global,  # STACK_GLOBAL
}
"""Opcodes of protocol 4, in which the metadata of ``torch.distributed.checkpoint`` is written."""
