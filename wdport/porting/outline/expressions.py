"""Render functions of torch as text: ``x + conv1``, ``softmax([12], dim=-1)``, ``pe[:, :7]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from wdport.porting.outline.events import Event, Slice, TracedTensor
from wdport.porting.outline.functions import bound, canonical
from wdport.porting.outline.settings import equal

Name = Callable[[TracedTensor], str]
"""The name of a tensor."""

INFIX: Mapping[str, str] = MappingProxyType({
    "add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "pow": "**", "floor_divide": "//",
    "remainder": "%", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!=", "logical_and": "&",
    "logical_or": "|", "logical_xor": "^",
})  # fmt: skip
_REVERSED: Mapping[str, str] = MappingProxyType({
    "rsub": "-", "rdiv": "/", "rpow": "**", "rmatmul": "@", "rfloordiv": "//", "rmod": "%",
})  # fmt: skip
_PLAIN = (None, False, "constant", "none")
"""Named arguments that are omitted: the defaults of most functions."""

_DROPPED = ("_stacklevel", "inplace", "out", "device", "layout", "pin_memory", "requires_grad", "memory_format",
            "non_blocking", "copy", "generator")  # fmt: skip


def expression(event: Event, name: Name, usual: Mapping[str, object] = MappingProxyType({})) -> str:
    """One function call as text, without arguments that equal those in ``usual``."""
    function, values = canonical(event.name), bound(event)

    def text(value: object) -> str:
        return argument(value, name)

    operands = [value for key, value in values.items() if key not in _DROPPED]
    if function in INFIX and len(operands) == 2:
        return f"{_inner(text(operands[0]))} {INFIX[function]} {_inner(text(operands[1]))}"
    if function in _REVERSED and len(operands) == 2:
        return f"{_inner(text(operands[1]))} {_REVERSED[function]} {_inner(text(operands[0]))}"
    if function in ("add", "sub") and "alpha" in values:
        first, second = list(event.args[:2])
        return f"{_inner(text(first))} {INFIX[function]} {text(values['alpha'])} * {_inner(text(second))}"
    if function == "neg":
        return f"-{_inner(text(operands[0]))}"
    if function == "logical_not":
        return f"~{_inner(text(operands[0]))}"
    if function == "getitem":
        return f"{_inner(text(values['input']))}[{index(values.get('index'), name)}]"
    if function == "setitem":
        return f"{_inner(text(values['input']))}[{index(values.get('index'), name)}] = {text(values.get('value'))}"
    if function.startswith("new_"):  # of the first tensor's dtype, which is all that it is asked for
        function, values = (
            function.removeprefix("new_"),
            {key: value for key, value in values.items() if key != "input"},
        )
    words = []
    for key, value in values.items():
        if key in _DROPPED or (
            key != "input" and not isinstance(value, (int, TracedTensor, tuple)) and value in _PLAIN
        ):
            continue
        if not isinstance(value, TracedTensor) and (equal(value, usual[key]) if key in usual else value is False):
            continue
        if key == "more":
            words += [text(element) for element in value]
        elif any(isinstance(element, TracedTensor) for element in (value if isinstance(value, tuple) else (value,))):
            unpacked = isinstance(value, tuple) and key in ("tensors", "operands")
            words.append(", ".join(map(text, value)) if unpacked else text(value))
        else:
            words.append(text(value) if key in ("input", "equation") else f"{key}={text(value)}")
    return f"{function}({', '.join(words)})"


def argument(value: object, name: Name) -> str:
    if isinstance(value, TracedTensor):
        return name(value)
    if isinstance(value, tuple):
        inner = ", ".join(argument(element, name) for element in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, Slice):
        return _slice(value, name)
    if value is ...:
        return "..."
    if isinstance(value, str) and value.startswith("torch."):
        return value.removeprefix("torch.")  # a dtype
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def index(value: object, name: Name) -> str:
    """The text in the brackets."""
    items = value if isinstance(value, tuple) else (value,)
    return ", ".join(argument(item, name) for item in items)


def _slice(bounds: Slice, name: Name) -> str:
    start, stop, step = (
        "" if limit is None else argument(limit, name) for limit in (bounds.start, bounds.stop, bounds.step)
    )
    return f"{start}:{stop}" + (f":{step}" if step else "")


def _inner(text: str) -> str:
    """An operand, in parentheses if it is an operation."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter == " ":
            return f"({text})"
        if depth == 0 and letter == "-" and position == 0:
            return f"({text})"
    return text
