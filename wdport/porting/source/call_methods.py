"""The ways in which a module is called: a method for each, with what else differs as an argument."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wdport.porting.lowering.keras_graph import unused
from wdport.porting.settings import equal
from wdport.porting.source.body import Body
from wdport.porting.source.code import Code, Literal, literal
from wdport.porting.source.names import allowed
from wdport.porting.source.scopes import Scope

CALL = "call"


@dataclass(frozen=True)
class Way:
    """How a module is called: the method, and the arguments that are no tensors. If its class has the inputs in another
    order, ``order`` has the position of each, and the name of those that are given by name."""

    method: str = CALL
    arguments: Mapping[str, Literal] = field(default_factory=dict)
    order: tuple[tuple[int, str], ...] = ()


def ways_of(calls: Sequence[tuple[Scope, Body]], method: str = CALL) -> tuple[dict[str, Body], dict[int, Way]]:
    """The methods of a module, or of a function in it, and the way of each of its calls, by its serial. Calls that
    differ in constants alone are of one method."""
    groups: dict[str, list[tuple[Scope, Body]]] = {}
    for scope, body in calls:
        key = [(one.names, one.returns, [part if isinstance(part, str) else None for part in one.code.parts])
               for one in body.statements]  # fmt: skip
        groups.setdefault(repr((body.parameters, key)), []).append((scope, body))
    bodies: dict[str, Body] = {}
    ways: dict[int, Way] = {}
    for number, group in enumerate(groups.values(), 1):
        name = method if number == 1 else f"{method}_{number}"
        bodies[name], arguments = _joined(group)
        for index, (scope, body) in enumerate(group):
            ways[scope.serial] = Way(name, {key: column[index] for key, column in arguments.items()})
            bodies[name].helpers |= body.helpers
    return bodies, ways


def _joined(group: Sequence[tuple[Scope, Body]]) -> tuple[Body, dict[str, list[Literal]]]:
    """One body, with an argument for each constant that is not the same in all calls."""
    first = group[0][1]
    arguments: dict[str, list[Literal]] = {}
    statements = []
    for number, statement in enumerate(first.statements):
        parts: list[str | Literal] = []
        for place, part in enumerate(statement.code.parts):
            column = [body.statements[number].code.parts[place] for _, body in group]
            values = [one for one in column if isinstance(one, Literal)]
            if len({literal(one.value) for one in values}) > 1:
                parts.append(_argument(values, group, arguments, first))
            else:
                parts.append(part)
        statements.append(replace(statement, code=Code(tuple(parts), statement.code.level)))
    return replace(first, parameters=(*first.parameters, *arguments), statements=statements), arguments


def _argument(
    values: list[Literal], group: Sequence[tuple[Scope, Body]], arguments: dict[str, list[Literal]], body: Body
) -> str:
    """The argument with these values, with the name that PyTorch's has."""
    texts = [literal(one.value) for one in values]
    for name, column in arguments.items():
        if [literal(one.value) for one in column] == texts:
            return name
    stated = (name for name, _ in _plain(group[0][0])
              if all(equal(dict(_plain(scope)).get(name), one.value)
                     for (scope, _), one in zip(group, values, strict=True)))  # fmt: skip
    base = allowed(next(stated, values[0].hint or "value"))
    taken_names = {*body.parameters, *arguments, *(name for one in body.statements for name in one.names)}
    name = unused(base, taken_names)
    arguments[name] = values
    return name


def _plain(scope: Scope) -> Iterator[tuple[str, Any]]:
    """The arguments of a call in PyTorch that are numbers, texts and tuples of them."""
    for name, value in scope.node.kwargs.items():
        if isinstance(value, (int, float, str, tuple)):
            yield name, value
