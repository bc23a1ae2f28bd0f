"""The names that the author of a PyTorch model gave to values, from the source at the place of a call."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wdport.porting.graph import CodePlace

Position = tuple[int, int, int, int]


@dataclass(frozen=True)
class AssignedNames:
    """What a statement assigns: one name, or several for a tuple; none for a return or a part of a statement."""

    names: tuple[str, ...] = ()
    unpacks: bool = False


@cache
def _targets(file: str) -> dict[Position, AssignedNames]:
    """The assignments of a file, by the position of their value."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    return dict(_assignments(tree))


def _assignments(tree: ast.AST) -> Iterator[tuple[Position, AssignedNames]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            values = [node.value]
            if isinstance(target, ast.Tuple) and all(isinstance(element, ast.Name) for element in target.elts):
                names = tuple(element.id for element in target.elts if isinstance(element, ast.Name))
                yield _position(node.value), AssignedNames(names, True)
                if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(names):
                    yield from ((_position(value), AssignedNames((name,)))
                                for value, name in zip(node.value.elts, names, strict=True))  # fmt: skip
            elif isinstance(target, ast.Name):
                yield from ((_position(value), AssignedNames((target.id,))) for value in values)
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                yield _position(target), AssignedNames((target.value.id,))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield _position(node), AssignedNames((node.target.id,))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield _position(node.value), AssignedNames((node.target.id,))


def _position(node: ast.expr | ast.stmt) -> Position:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def target_of(place: CodePlace | None) -> AssignedNames:
    """What is assigned where a call is the value of a statement."""
    if place is None:
        return AssignedNames()
    return _targets(place.file).get((place.line, place.column, place.end_line, place.end_column), AssignedNames())


@cache
def _callers(file: str) -> dict[Position, str]:
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return {_position(node): node.func.id for node in calls if isinstance(node.func, ast.Name)}


def caller_of(place: CodePlace | None) -> str:
    """The local name that a call at this place calls, such as ``block``; "" for an attribute."""
    if place is None:
        return ""
    return _callers(place.file).get((place.line, place.column, place.end_line, place.end_column), "")


def allowed(name: str, reserved: frozenset[str] = frozenset()) -> str:
    """A name that Python and Keras allow."""
    name = re.sub(r"\W", "_", name) or "x"
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in reserved else name
