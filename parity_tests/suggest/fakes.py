"""Answers that the bench is tried on: the truth itself, and the truth with two tensors of one shape exchanged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from wdport.mapping.moves import Move

from .asking import Answer
from .corpus import Pair
from .names import How
from .scoring import sides_of


def tell_truth(pair: Pair, names: How, output: Path) -> Answer:
    """A row for every tensor, as the truth has it."""
    return _answer(pair, names, output, pair.plan(sides_of(pair.name)[0].variables).moves)


def exchange_two(pair: Pair, names: How, output: Path) -> Answer:
    """The same, but for the first two tensors that could be each other's by shape and rule; no doubt is stated."""
    moves = list(pair.plan(sides_of(pair.name)[0].variables).moves)
    at, other = exchangeable(moves)
    first, second = moves[at], moves[other]
    moves[at], moves[other] = replace(first, targets=second.targets), replace(second, targets=first.targets)
    return _answer(pair, names, output, moves)


def branches_exchanged(pair: Pair, names: How, output: Path) -> Answer:
    """Of the pairs with two branches: each branch's tensors in the other."""
    plan = pair.plan(sides_of(pair.name)[0].variables)
    by_source = {move.sources[0]: move for move in plan.moves}
    other = {"alpha": "beta", "beta": "alpha"}

    def turned(name: str) -> str:
        first, dot, rest = name.partition(".")
        return f"{other.get(first, first)}{dot}{rest}"

    moves = [replace(move, targets=by_source[turned(move.sources[0])].targets) for move in plan.moves]
    return _answer(pair, names, output, moves)


def exchangeable(moves: Iterable[Move]) -> tuple[int, int]:
    """The places of two weights, or else vectors, that could be each other's; ``ValueError`` if there are none."""
    moves = list(moves)
    for least in (2, 1):
        seen: dict[str, int] = {}
        for at, move in enumerate(moves):
            key = f"{move.shapes} {move.rule.source} {move.rule.target} {sorted(move.sizes.items())} {move.combine}"
            if key in seen and len(move.shapes[0]) >= least:
                return seen[key], at
            seen.setdefault(key, at)
    raise ValueError("no two tensors are of one shape")


def _answer(pair: Pair, names: How, output: Path, moves: Iterable[Move]) -> Answer:
    given = {old: new for new, old in pair.honest(names).items()}
    plan = pair.plan(sides_of(pair.name)[0].variables)
    rows = [_row(move, given) for move in moves]
    used = {name for move in plan.moves for name in move.sources}
    rows += [
        {"torch": given[name], "drop": "not in the port"} for name in (*plan.drops, *plan.checks) if name not in used
    ]
    document = {
        "format": 2,
        "torch": pair.reference(names),
        "keras": pair.model,
        "inputs": list(pair.inputs),
        "tied": [{"torch": given[a], "same_as": given[b]} for a, b in plan.ties.items()],
        "tensors": rows,
    }
    output.write_text(json.dumps({name: value for name, value in document.items() if value}), encoding="utf-8")
    return Answer(0, output)


def _row(move: Move, given: Mapping[str, str]) -> dict[str, object]:
    anything = move.rule.source.any_axes
    row: dict[str, object] = {
        "torch": [given[name] for name in move.sources],
        "keras": list(move.targets),
        "rule": "... -> ..." if anything else f"{move.rule.source} -> {move.rule.target}",
    }
    if move.combine:
        row["combine"] = move.combine
    if move.sizes and not anything:
        row["sizes"] = dict(move.sizes)
    return row
