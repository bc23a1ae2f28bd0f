"""What becomes of every tensor under a table, complete or not, and whether two tables say the same of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wdport.mapping.moves import Move
from wdport.mapping.plan import _Draft
from wdport.mapping.table import Table
from wdport.model import Array

UNCOUNTED = "num_batches_tracked"
"""Batch norms count training batches; every table drops the number by kind."""


@dataclass(frozen=True)
class Fates:
    """Moves and ties of a table, the tensors by their honest names."""

    moves: tuple[Move, ...]
    ties: Mapping[str, str]

    def fills(self, tensor: str) -> frozenset[str]:
        """The variables that a tensor fills, by itself or as part of what fills them."""
        name = self.ties.get(tensor, tensor)
        return frozenset(target for move in self.moves if name in move.sources for target in move.targets)

    def apply(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """Every variable that is filled, in float64."""
        found: dict[str, Array] = {}
        for move in self.moves:
            made = move.apply([np.asarray(state[name], np.float64) for name in move.sources], rounded=False)
            found |= dict(zip(move.targets, made, strict=True))
        return found


def fates_of(
    table: Table,
    sources: Mapping[str, tuple[int, ...]],
    targets: Mapping[str, tuple[int, ...]],
    honest: Mapping[str, str],
) -> Fates:
    """What a table that may be incomplete says of these tensors.

    The public :func:`wdport.mapping.plan.make_plan` gives misfits or a whole plan; a table of a search that stopped is
    half of one, so its draft is looked at.
    """
    draft = _Draft([row for row in table.rows if row.when is None], sources, targets, {})
    draft.place_all()
    moves = (
        replace(move, sources=tuple(honest.get(name, name) for name in move.sources))
        for move in draft.moves
        if all(target in targets for target in move.targets)
    )
    return Fates(tuple(moves), {honest.get(a, a): honest.get(b, b) for a, b in draft.ties.items()})


def compared(truth: Fates, found: Fates, state: Mapping[str, Array]) -> dict[str, bool]:
    """Whether the second says of every tensor what the first does: it fills the same variables with the same values."""
    ours, theirs = truth.apply(state), found.apply(state)
    return {
        tensor: found.fills(tensor) <= truth.fills(tensor)
        and all(_same(ours[path], theirs.get(path)) for path in truth.fills(tensor))
        for tensor in state
        if not tensor.endswith(UNCOUNTED)
    }


def _same(ours: Array, theirs: Array | None) -> bool:
    return theirs is not None and ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-12, atol=1e-300)


def doubted(doubts: Sequence[str], tensor: str, given: str, fills: frozenset[str]) -> bool:
    """Whether a doubt names the tensor (by its given name), its module, or a variable of the truth or its layer.

    A doubt about everything, or about a block of several layers, is none about a tensor.
    """
    paths = {given, given.rpartition(".")[0]}
    for path in fills:
        paths |= {path, path.rpartition("/")[0]}
    return any(_matches(word, path) for text in doubts for word in _paths(text) for path in paths if path)


def _paths(text: str) -> Iterator[str]:
    for word in re.findall(r"[\w./<>+-]+", text):
        yield word.strip(".,:/-")


def _matches(word: str, path: str) -> bool:
    if not word:
        return False
    pattern = "".join(r"\d+" if part.startswith("<") else re.escape(part) for part in re.split(r"(<[^>]*>)", word))
    return re.fullmatch(pattern, path) is not None
