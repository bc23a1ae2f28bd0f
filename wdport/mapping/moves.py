"""Moves and plans: what is done with every tensor, in either direction.

A plan applies to anything with the parameters' shapes: weights, gradients, moments of an optimizer. Moves are applied
one at a time, so peak memory is that of one move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from wdport.base.errors import InternalError
from wdport.mapping.axes import Combine, FillValue, Rule, Shape
from wdport.mapping.rearrange import Array, apply_rule, combined, separated
from wdport.mapping.rows import Table

Read = Callable[[str], Array]
"""The array of this name."""


@dataclass(frozen=True)
class Move:
    """Source tensors and the target variables that they fill, through ``rule`` with ``sizes``.

    Attributes:
        sources: names in the checkpoint; several are stacked by the rule or combined by ``combine``.
        targets: paths of the variables.
        rule: the rule that fits the shapes.
        sizes: the size of every axis of the rule.
        combine: the arithmetic before the rule; empty if values are only moved.
        line: the line of the table.
        shapes: the sources' shapes.
        file: the included table that contains the line; empty for the table itself.
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
        """Whether values are only moved, so that the inverse restores every bit."""
        return not self.combine

    @property
    def source(self) -> str:
        """The only source, for code that supports a single one."""
        if len(self.sources) != 1:
            raise InternalError(self.sources[0], f"{len(self.sources)} tensors where one is expected", "report this")
        return self.sources[0]

    def apply(self, sources: Sequence[Array], rounded: bool = True) -> list[Array]:
        """Convert source arrays to target arrays.

        A move without arithmetic keeps dtype and bits. Arithmetic is computed in float64 and rounded once to float32,
        or not at all with ``rounded=False``; it is defined only for weights, not for gradients or moments.
        """
        if self.exact:
            return apply_rule(self.rule, sources, self.sizes)
        tensor = combined(self.combine, sources)
        # Rounded before it is moved: the rule works on half the memory, and moving does not change the values.
        return apply_rule(self.rule, [tensor.astype(np.float32) if rounded else tensor], self.sizes)

    def invert(self, targets: Sequence[Array]) -> list[Array]:
        """Convert target arrays to source arrays: bit for bit if the move is ``exact``, otherwise by the documented
        choice."""
        back = apply_rule(self.rule.inverse(), targets, self.sizes)
        return back if self.exact else separated(self.combine, back[0], self.shapes)


@dataclass(frozen=True)
class Fill:
    """A variable that no tensor fills.

    Attributes:
        target: path of the variable.
        fill: what every value of it is.
        shape: of the variable.
        line: the line of the table.
        file: the included table that contains the line; empty for the table itself.
    """

    target: str
    fill: FillValue
    shape: Shape
    line: int = 0
    file: str = ""

    @property
    def array(self) -> Array:
        """The float32 values, read-only and without memory of their own."""
        return np.broadcast_to(np.float32(self.fill == "ones"), self.shape)

    def holds(self, array: Array) -> bool:
        """Whether every value is the constant."""
        return bool((np.asarray(array) == float(self.fill == "ones")).all())


def digest_of(array: Array) -> str:
    """A digest of whole numbers."""
    return sha256(np.ascontiguousarray(array, dtype="<i8").tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Plan:
    """What is done with every tensor.

    Attributes:
        table: the table that it follows.
        moves: which tensors fill which variables.
        checks: by source, the constant that it must equal.
        drops: by source, the reason for leaving it out.
        ties: by source, the other source that it must equal bit for bit.
        digests: by source that is left out, the digest of the values that it must have.
        fills: which variables are filled with a constant.
    """

    table: Table
    moves: tuple[Move, ...]
    checks: Mapping[str, str]
    drops: Mapping[str, str]
    ties: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    fills: tuple[Fill, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """All filled variables, in the order of the moves, then those with a constant."""
        return (*(target for move in self.moves for target in move.targets), *(fill.target for fill in self.fills))

    @property
    def carried(self) -> dict[str, str]:
        """By source that the target model holds, the source that is moved: itself, or what it is tied to."""
        moved = {name: name for move in self.moves for name in move.sources}
        return {**moved, **{name: same for name, same in self.ties.items() if same in moved}}

    def apply(self, read: Read, rounded: bool = True) -> Iterator[tuple[str, Array]]:
        """Yield (target path, array) of every move, and of every variable with a constant; see :meth:`Move.apply`."""
        for move in self.moves:
            yield from zip(move.targets, move.apply([read(name) for name in move.sources], rounded), strict=True)
        yield from ((fill.target, fill.array) for fill in self.fills)

    def invert(self, read: Read) -> Iterator[tuple[str, Array]]:
        """Yield (source name, array) of every move and every tied tensor; see :meth:`Move.invert`.

        Checked and dropped tensors are not restored: they are not in the model. Nor is a variable with a constant, of
        which PyTorch has no tensor; see :meth:`changed_fills`.
        """
        tied: dict[str, list[str]] = {}
        for name, same in self.ties.items():
            tied.setdefault(same, []).append(name)
        for move in self.moves:
            arrays = move.invert([read(target) for target in move.targets])
            for name, array in zip(move.sources, arrays, strict=True):
                yield name, array
                yield from ((other, array) for other in tied.get(name, ()))

    def changed_fills(self, read: Read) -> list[Fill]:
        """The variables that do not hold their constant."""
        return [fill for fill in self.fills if not fill.holds(read(fill.target))]

    def unequal_ties(self, same: Callable[[str, str], bool]) -> list[str]:
        """Return a sentence for every tied tensor that ``same`` finds to differ from what it is tied to."""
        pairs = [pair for pair in self.ties.items() if not same(*pair)]
        return [f"{name} differs from {other}, which the table ties it to" for name, other in pairs]
