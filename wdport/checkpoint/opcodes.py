"""A pickle of protocol 2 goes in; a tree of plain containers, numbers, text and symbols comes out.

The 31 opcodes are those that ``torch.save`` writes for checkpoints (counted over real files with
``pickletools.genops``). Each is restated here over a :class:`~wdport.checkpoint.tape.Tape`; none imports,
calls or sets an attribute of anything that the file names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from struct import unpack
from typing import Final

from wdport.checkpoint.faults import STATE_DICT_ONLY, Fault
from wdport.checkpoint.symbols import Constructor, resolve, storage
from wdport.checkpoint.tape import Tape, utf8
from wdport.checkpoint.tensor import TensorRef
from wdport.limits import MAX_OPCODES, MAX_TENSORS

_MAX_GLOBAL_CHARS: Final = 500
_KEY_LIMIT: Final = 1 << 32
"""Integer keys, which count parameters, stay small: large ones can be chosen so that all collide."""

_STOP: Final = 0x2E
_TELLING: Final = {
    0x69: "INST",
    0x6F: "OBJ",
    0x81: "NEWOBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL",
}
"""Names, for messages, of the refused opcodes that can run code."""


def run(data: bytes) -> object:
    """The object that the pickle describes, built of symbols where it is not plain."""
    if data[:2] != b"\x80\x02":
        raise Fault("the pickle is not of protocol 2", "save it again without pickle_protocol=")
    tape = Tape(data)
    tape.position = 2
    for _ in range(MAX_OPCODES):
        code = tape.code()
        if code == _STOP:
            return _result(tape)
        step = _OPCODES.get(code)
        if step is None:
            name = _TELLING.get(code, f"{code:#04x}")
            raise Fault(f"the pickle uses opcode {name}, which weights do not need", STATE_DICT_ONLY)
        step(tape)
    raise Fault(f"the pickle has more than {MAX_OPCODES} opcodes", STATE_DICT_ONLY)


def _result(tape: Tape) -> object:
    if tape.position != len(tape.data):
        raise Fault(f"{len(tape.data) - tape.position} bytes follow the end of the pickle")
    if tape.frames or len(tape.stack) != 1:
        raise Fault("the pickle ends with other than one object on its stack")
    return tape.stack[0]


def _global(tape: Tape) -> None:
    outermost = not tape.stack and not tape.frames
    module, name = tape.line(_MAX_GLOBAL_CHARS), tape.line(_MAX_GLOBAL_CHARS)
    try:
        tape.push(resolve(module, name))
    except Fault as fault:
        if (outermost and name[:1].isupper()) or module.startswith("torch.nn."):
            what = f"is a pickled object of class {module}.{name}, not a state_dict"
            raise Fault(what, STATE_DICT_ONLY) from None
        # The item below is the key under which this object would be stored: often the tensor's name.
        if tape.stack and isinstance(tape.stack[-1], str):
            fault.part = tape.stack[-1]
        raise


def _reduce(tape: Tape) -> None:
    arguments, function = tape.pop(), tape.pop()
    if not isinstance(function, Constructor) or type(arguments) is not tuple:
        raise Fault("the pickle calls something that cannot be called", STATE_DICT_ONLY)
    result = function.build(arguments)
    if isinstance(result, TensorRef):
        tape.tensors += 1
        if tape.tensors > MAX_TENSORS:
            raise Fault(f"more than {MAX_TENSORS} tensors", STATE_DICT_ONLY)
    tape.push(result)


def _build(tape: Tape) -> None:
    """Only ``state_dict._metadata`` is attached this way; it numbers versions of modules and is dropped."""
    state, target = tape.pop(), tape.top()
    if type(target) is not OrderedDict or type(state) is not dict or list(state) != ["_metadata"]:
        raise Fault("the pickle sets attributes of an object", STATE_DICT_ONLY)


def _set_items(tape: Tape, items: list[object]) -> None:
    target = tape.top()
    if not isinstance(target, dict) or len(items) % 2:
        raise Fault("the pickle sets items of something that is not a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) is not str and not (type(key) is int and -_KEY_LIMIT < key < _KEY_LIMIT):
            raise Fault("a dict key is neither text nor a small integer", STATE_DICT_ONLY)
        if key in target:
            raise Fault(f"key {key!r} stands twice in a dict")
        target[key] = value


def _append_items(tape: Tape, items: list[object]) -> None:
    target = tape.top()
    if not isinstance(target, list):
        raise Fault("the pickle appends to something that is not a list")
    target.extend(items)


def _tuple_of(count: int) -> Callable[[Tape], None]:
    def step(tape: Tape) -> None:
        items = [tape.pop() for _ in range(count)]
        tape.push(tuple(reversed(items)))

    return step


def _recall(tape: Tape, index: int) -> None:
    if index not in tape.memo:
        raise Fault(f"the pickle recalls object {index}, which it never stored")
    tape.push(tape.memo[index])


def _remember(tape: Tape, index: int) -> None:
    tape.memo[index] = tape.top()


def _set_item(tape: Tape) -> None:
    value, key = tape.pop(), tape.pop()
    _set_items(tape, [key, value])


def _long(tape: Tape) -> None:
    tape.push(int.from_bytes(tape.take(tape.code()), "little", signed=True))


_OPCODES: Final[dict[int, Callable[[Tape], None]]] = {
    0x4E: lambda tape: tape.push(None),  # NONE
    0x88: lambda tape: tape.push(True),  # NEWTRUE
    0x89: lambda tape: tape.push(False),  # NEWFALSE
    0x4A: lambda tape: tape.push(int.from_bytes(tape.take(4), "little", signed=True)),  # BININT
    0x4B: lambda tape: tape.push(tape.code()),  # BININT1
    0x4D: lambda tape: tape.push(tape.number(2)),  # BININT2
    0x8A: _long,  # LONG1
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
    0x51: lambda tape: tape.push(storage(tape.pop())),  # BINPERSID
    0x52: _reduce,  # REDUCE
    0x62: _build,  # BUILD
}
"""With PROTO, which may only come first, and STOP, 31 opcodes."""
