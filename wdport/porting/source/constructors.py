"""Print the constructors of layers and the lines of calls."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.outline.counterparts import defaults
from wdport.porting.settings import equal
from wdport.porting.source.body import Body
from wdport.porting.source.classes import Attribute, SourceLine
from wdport.porting.source.code import Code, Literal, call, constant, listed
from wdport.porting.source.loops import fold_loops
from wdport.porting.source.statements import Loop
from wdport.porting.traced_arguments import is_element

_EMPTY = inspect.Parameter.empty

_SPATIAL = ("kernel_size", "strides", "dilation_rate", "pool_size", "padding", "size", "cropping")


def shown_arguments(layer: KerasCall, declared: Mapping[str, object]) -> list[str]:
    """The arguments of a layer that do not have Keras's defaults, and those that are one of several numbers."""
    values = layer.arguments
    return [key for key, default in declared.items() if key in values and (
            default is _EMPTY or not equal(values[key], default) or is_element(values[key]))]  # fmt: skip


def layer_code(layer: KerasCall, more: Sequence[tuple[str, Code]] = ()) -> Code:
    """The constructor of a layer, without arguments that have Keras's defaults; ``more`` are further arguments."""
    declared = defaults(layer.name)
    stated_keys = [
        *shown_arguments(layer, declared),
        *(key for key, mark in layer.origin.items() if mark == "stated"),
    ]
    args, kwargs = [], []
    by_name = False
    for position, (key, default) in enumerate(declared.items()):
        if key not in stated_keys:
            by_name = True
            continue
        value = layer.arguments[key]
        code = layer_code(value) if isinstance(value, KerasCall) else constant(_plain(key, value), key)
        if not by_name and (default is _EMPTY or (position == 0 and key not in _BY_NAME)):
            args.append(code)
        else:
            by_name = True
            kwargs.append((key, code))
    kwargs += [(key, constant(value, key)) for key, value in layer.arguments.items() if key not in declared]
    return call(layer.name, args, [*kwargs, *more])


def made_by(elements: Sequence[tuple[Attribute, Code]]) -> Code:
    """The value of an attribute: one constructor, or a list."""
    if elements[0][0].index is None:
        return elements[0][1]
    codes = [code for _, code in sorted(elements, key=lambda element: element[0].index or 0)]
    if len(codes) > 1 and len({str(code) for code in codes}) == 1:
        return Code(("[", *codes[0].parts, " for _ in range(", Literal(len(codes), "depth"), ")]"))
    return listed(codes, "[]")


def body_lines(body: Body, lengths: Mapping[str, int], method: str = "") -> list[SourceLine]:
    """The lines of a call, with loops over lists of these lengths."""
    lines: list[SourceLine] = []
    for one in fold_loops(body.statements, body.elements):
        if not isinstance(one, Loop):
            lines.append(SourceLine(Code(one.parts), method=method))
            continue
        if not one.names:
            head: list[str | Literal] = [f"for {one.index or '_'} in range(", Literal(one.times, "depth"), "):"]
            lines.append(_loop_line(head, one, method))
            continue
        spans = [one.span(name, lengths.get(name)) for name in one.names]
        over, names = spans[0] if len(spans) == 1 else f"zip({', '.join(spans)})", ", ".join(one.names.values())
        if one.index:
            over, names = f"enumerate({over})", f"{one.index}, {f'({names})' if len(spans) > 1 else names}"
        lines.append(_loop_line([f"for {names} in {over}:"], one, method))
    return lines


def _loop_line(head: Sequence[str | Literal], loop: Loop, method: str) -> SourceLine:
    parts: list[Any] = list(head)
    for statement in loop.statements:
        parts += ["\n    ", *statement.parts]
    return SourceLine(Code(tuple(parts)), method=method)


_BY_NAME = ("axis", "epsilon", "max_value", "negative_slope", "alpha", "approximate", "keepdims")


def _plain(key: str, value: Any) -> Any:
    """One number for equal numbers along all axes."""
    if (
        isinstance(value, tuple)
        and key in _SPATIAL
        and value
        and all(isinstance(number, int) and number == value[0] for number in value)
    ):
        return _plain(key, value[0])
    return value
