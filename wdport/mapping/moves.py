"""Moves and plans: what becomes of every tensor, and how it is carried out in either direction.

A plan works on anything with the parameters' shapes: weights, gradients, moments of an optimiser. Arrays pass one
move at a time, so peak memory is that of one move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wdport.errors import InternalError
from wdport.mapping.arithmetic import combined, separated
from wdport.mapping.arrays import Array, apply_rule
from wdport.mapping.axes import Combine, Rule, Shape
from wdport.mapping.rows import Table

Read = Callable[[str], Array]
"""The array of this name."""


@dataclass(frozen=True)
class Move:
    """Source tensors and the target variables that they fill, through ``rule`` with ``sizes``.

    Attributes:
        sources: names in the checkpoint; several are stacked by the rule, or made one by ``combine``.
        targets: paths of the variables.
        rule: the rule that fits the shapes.
        sizes: the size of every axis of the rule.
        combine: the arithmetic before the rule; empty for a move of values.
        line: the line of the table.
        shapes: the sources' shapes.
        file: the included table that the line is in; empty for the table itself.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    rule: Rule
    sizes: Mapping[str, int]
    combine: Combine = ""
    line: int = 0
    shapes: tuple[Shape, ...] = ()
    file: str = ""

    @property
    def exact(self) -> bool:
        """Whether values are only moved, so that the inverse gives every bit back."""
        return not self.combine

    @property
    def source(self) -> str:
        """The one source; for code that knows of no others."""
        if len(self.sources) != 1:
            raise InternalError(self.sources[0], f"{len(self.sources)} tensors where one is expected", "report this")
        return self.sources[0]

    def apply(self, sources: Sequence[Array], rounded: bool = True) -> list[Array]:
        """Source arrays to target arrays.

        A move of values keeps dtype and bits. Arithmetic is computed in float64 and rounded once to float32, or
        with ``rounded=False`` not at all; it is defined for weights alone, not for gradients or moments.
        """
        if self.exact:
            return apply_rule(self.rule, sources, self.sizes)
        whole = combined(self.combine, sources)
        return apply_rule(self.rule, [whole.astype(np.float32) if rounded else whole], self.sizes)

    def invert(self, targets: Sequence[Array]) -> list[Array]:
        """Target arrays to source arrays: bit for bit where the move is ``exact``, else by the stated choice."""
        back = apply_rule(self.rule.inverse(), targets, self.sizes)
        return back if self.exact else separated(self.combine, back[0], self.shapes)


@dataclass(frozen=True)
class Plan:
    """What becomes of every tensor.

    Attributes:
        table: the table that it follows.
        moves: which tensors fill which variables.
        checks: by source, the constant that it must equal.
        drops: by source, the reason for leaving it out.
        ties: by source, the other source that it must equal bit for bit.
    """

    table: Table
    moves: tuple[Move, ...]
    checks: Mapping[str, str]
    drops: Mapping[str, str]
    ties: Mapping[str, str] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[str, ...]:
        """Every variable that is filled, in the order of the moves."""
        return tuple(target for move in self.moves for target in move.targets)

    def apply(self, read: Read, rounded: bool = True) -> Iterator[tuple[str, Array]]:
        """(target path, array) of every move; see :meth:`Move.apply`."""
        for move in self.moves:
            yield from zip(move.targets, move.apply([read(name) for name in move.sources], rounded), strict=True)

    def invert(self, read: Read) -> Iterator[tuple[str, Array]]:
        """(source name, array) of every move and every tied tensor; see :meth:`Move.invert`.

        Checked and dropped tensors do not come back: they are not in the model.
        """
        tied: dict[str, list[str]] = {}
        for name, same in self.ties.items():
            tied.setdefault(same, []).append(name)
        for move in self.moves:
            arrays = move.invert([read(target) for target in move.targets])
            for name, array in zip(move.sources, arrays, strict=True):
                yield name, array
                yield from ((other, array) for other in tied.get(name, ()))

    def unequal_ties(self, same: Callable[[str, str], bool]) -> list[str]:
        """A sentence for every tied tensor that is not, bit for bit, what it is tied to, as ``same`` finds it."""
        pairs = [pair for pair in self.ties.items() if not same(*pair)]
        return [f"{name} differs from {other}, which the table ties it to" for name, other in pairs]
