"""Statements, and loops for those that are repeated over the elements of lists of layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from wdport.porting.lowering.keras_graph import unused
from wdport.porting.source.code import Code, text
from wdport.porting.source.rolled import rolled
from wdport.porting.source.statements import NUMBER, Loop, Statement, equal_pieces

FEWEST: Final = 3
"""Repetitions that become a loop if it does not begin with the first element of its lists."""


def fold_loops(statements: Sequence[Statement], elements: Mapping[str, str]) -> list[Any]:
    """Statements, with a :class:`Loop` for repetitions over the elements of lists."""
    folded: list[Any] = []
    position = 0
    statements = _with_last_name(statements)
    while position < len(statements):
        best: tuple[int, int] = (1, 1)
        for period in range(1, min(12, (len(statements) - position) // 2) + 1):
            times = repetitions(statements, position, period)
            if times * period > best[0] * best[1] and times > 1:
                best = (period, times)
        period, times = best
        chunk = statements[position : position + period]
        if times > 1:
            after = statements[position + period : position + 2 * period]
            folded.append(loop_of(chunk, times, elements, after))
        else:
            carried = _carried(statements, position)
            if carried:
                first, times = carried
                loop = loop_of([statements[position + 1]], times, elements)
                folded += [first, replace(loop, starts={name: index - 1 for name, index in loop.starts.items()})]
            elif (rest := rolled(statements, position)) is not None:
                folded += [*rest.before, rest.loop]
                statements, position = rest.after, 0
                continue
            else:
                folded += chunk
        position += period * times
    return folded


def _with_last_name(statements: Sequence[Statement]) -> Sequence[Statement]:
    """Statements whose last step is assigned before it is returned, if it repeats one that is: it ends a loop."""
    *before, last = statements
    here = _elements(last)
    for one in before[-12:][::-1]:
        is_repeated = len(one.names) == 1 and _alike(replace(one, names=())) == _alike(replace(last, returns=False))
        if here and is_repeated and _elements(one) == [(name, index - 1) for name, index in here]:
            return [*before, replace(last, names=one.names, returns=False), Statement((), text(one.names[0]), True)]
    return statements


def loop_of(
    chunk: Sequence[Statement], times: int, elements: Mapping[str, str], after: Sequence[Statement] = ()
) -> Loop:
    """A loop over lists; ``after`` are the statements of its second element."""
    lists = {name: index for one in chunk for name, index in _elements(one)}
    used = {name for one in chunk for name in one.names}
    index = unused("i", {*used, *re.findall(r"\w+", " ".join(map(_alike, chunk)))})
    names: dict[str, str] = {}
    for name in lists:
        element = elements.get(name) or ("layer" if len(lists) == 1 else f"{name.rpartition('.')[2]}_layer")
        while element in used:
            element = f"{element}_layer"
        used.add(element)
        names[name] = element
    counted = [_counted(one, other, index) for one, other in zip(chunk, after, strict=True)] if after else list(chunk)
    is_counted = any(one is not other for one, other in zip(counted, chunk, strict=True))
    inner = [_in_loop(one, names) for one in counted]
    return Loop(names, times, inner, index if is_counted else "", lists)


def _counted(statement: Statement, after: Statement, index: str) -> Statement:
    """A statement with the loop's index in place of numbers that are 0 in the first pass and 1 in the second."""
    pieces, others = (NUMBER.split(ELEMENT.sub(r"\1[]", str(one.code))) for one in (statement, after))
    if pieces == others:
        return statement
    # The elements of lists are given their names later.
    code = iter(ELEMENT.findall(str(statement.code)))
    joined = "".join(piece if piece == other else index for piece, other in zip(pieces, others, strict=True))
    code_text = re.sub(r"(self(?:\.\w+|\[\d+\])*?\.\w+)\[\]", lambda _: "{}[{}]".format(*next(code)), joined)
    return replace(statement, code=text(code_text))


def _carried(statements: Sequence[Statement], position: int) -> tuple[Statement, int] | None:
    """A loop whose first step reads another name than the others, as ``x = layer(x)`` for ``x = layers[0](tokens)``:
    the assignment before it, and how often it is repeated."""
    if position + 1 >= len(statements):
        return None
    first, second = statements[position], statements[position + 1]
    if first.returns or len(first.names) != 1 or first.names != second.names:
        return None
    name, here, there = first.names[0], _elements(first), _elements(second)
    if len(here) != 1 or there != [(here[0][0], here[0][1] + 1)]:
        return None
    code = "".join(map(str, first.code.parts))
    start = here[0][1]
    match = re.fullmatch(rf"{re.escape(here[0][0])}\[{start}\]\((\w+)(.*)\)", code)
    if match is None or match.group(1) == name:
        return None
    if _alike(second) != f"{name} = {here[0][0]}[]({name}{match.group(2)})":
        return None
    times = 2
    while position + times < len(statements):
        one = statements[position + times]
        if _alike(one) != _alike(second) or [index for _, index in _elements(one)] != [start + times]:
            break
        times += 1
    return (Statement((name,), text(match.group(1))), times) if not start or times > FEWEST else None


ELEMENT = re.compile(r"(self(?:\.\w+|\[\d+\])*?\.\w+)\[(\d+)\]")


def _elements(statement: Statement) -> list[tuple[str, int]]:
    source = "".join(map(str, statement.parts))
    return [(match.group(1), int(match.group(2))) for match in ELEMENT.finditer(source)]


def repetitions(statements: Sequence[Statement], position: int, period: int) -> int:
    """How often the statements from here on are repeated with the next elements of the same lists."""
    first = [element for one in statements[position : position + period] for element in _elements(one)]
    starts = dict(first)
    if not first or any(index != starts[name] for name, index in first):
        return 1
    texts = [_alike(one) for one in statements[position : position + period]]
    times, second = 1, list[list[bool] | None]()
    while position + (times + 1) * period <= len(statements):
        chunk = statements[position + times * period : position + (times + 1) * period]
        pieces = [equal_pieces(text, _alike(one), times) for text, one in zip(texts, chunk, strict=True)]
        indices = [element for one in chunk for element in _elements(one)]
        if None in pieces or any(index != starts.get(name, -1) + times for name, index in indices):
            break
        if pieces != (second := second or pieces):
            break
        times += 1
    return times if not any(starts.values()) or times >= FEWEST else 1


def _alike(statement: Statement) -> str:
    return ELEMENT.sub(lambda match: f"{match.group(1)}[]", "".join(map(str, statement.parts)))


def _in_loop(statement: Statement, names: Mapping[str, str]) -> Statement:
    parts = tuple(ELEMENT.sub(lambda match: names[match.group(1)], part) if isinstance(part, str) else part
                  for part in statement.code.parts)  # fmt: skip
    return Statement(statement.names, Code(parts, statement.code.level), statement.returns, statement.unpacks)
