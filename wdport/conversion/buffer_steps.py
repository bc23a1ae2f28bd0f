"""Divide a plan into steps that fit buffers of a given size: what is read at a time, and which part of a variable it
fills.

A tensor that fits is one step. A larger one, if its values are only moved from one tensor to one variable, is divided:
if the slowest axis stays the slowest, into blocks that are each read once; otherwise into strips of the variable, for
each of which the whole tensor is read once. The steps depend only on shapes and are determined before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from wdport.base.errors import UsageError
from wdport.checkpoint.tensor import ITEMSIZE, TensorInfo
from wdport.mapping.axes import ExpressionSide, Rule, Shape
from wdport.mapping.moves import Move

Range = tuple[int, int]

ALIGNED: Final = 64
"""Alignment in bytes of the arrays in a buffer."""

_ARITHMETIC: Final = 40
"""Bytes of memory that float64 arithmetic needs for each value, in addition to the buffers."""

FLAT: Final = Rule("flat", ExpressionSide((("flat",),)), ExpressionSide((("flat",),)))
"""The text of the rule that leaves all axes unchanged."""


@dataclass(frozen=True)
class Budget:
    """Total bytes for tensors: two buffers to read into, two to write from, and an eighth for everything else."""

    total: int

    @property
    def buffer(self) -> int:
        # Four buffers share seven eighths of the budget.
        return self.total * 7 // 32

    @property
    def rest(self) -> int:
        return self.total // 8

    @staticmethod
    def for_buffer(size: int) -> int:
        """The smallest budget with such buffers."""
        return -(-size * 32 // 7)


@dataclass(frozen=True)
class BufferStep:
    """One read. ``source`` and ``target`` are indices of the slowest axes of both sides, None for whole arrays;
    ``last`` marks the last step for this part of the target."""

    move: Move
    rule: Rule
    sizes: Mapping[str, int]
    source: Range | None = None
    target: Range | None = None
    last: bool = True
    ends: bool = True
    """Whether this step completes the move."""
    again: bool = False
    """Whether the same values were read before, for another strip."""
    once: bool = True
    """Whether the values are read only for this step."""


@dataclass(frozen=True)
class SizedMove:
    """What the steps of a move depend on: its tensors, and its variables with shape and dtype."""

    move: Move
    tensors: tuple[TensorInfo, ...]
    targets: tuple[tuple[Shape, str], ...]

    @property
    def source_bytes(self) -> int:
        return sum(aligned(info.ref.extent * ITEMSIZE[info.dtype]) for info in self.tensors)

    @property
    def target_bytes(self) -> int:
        return sum(aligned(prod(shape) * ITEMSIZE[dtype]) for shape, dtype in self.targets)

    @property
    def undivided(self) -> int:
        """The budget for doing the move in one step."""
        rest = 0 if self.move.exact else 8 * _ARITHMETIC * sum(info.ref.numel for info in self.tensors)
        return max(Budget.for_buffer(max(self.source_bytes, self.target_bytes)), rest)

    @property
    def divisible(self) -> bool:
        """Whether the move can be divided."""
        rule = self.move.rule
        plain = not (rule.source.stacked or rule.target.stacked or rule.orders)
        return self.move.exact and plain and len(self.tensors) == 1 and self.tensors[0].ref.contiguous

    def cut(self, budget: Budget) -> Iterator[BufferStep]:
        """Yield the steps; raises :class:`TooSmall`, which callers report as :class:`UsageError`."""
        if self.undivided <= budget.total:
            yield BufferStep(self.move, self.move.rule, self.move.sizes)
            return
        if not self.divisible:
            raise TooSmall(self.undivided)
        yield from self._pieces(budget.buffer)

    def _pieces(self, room: int) -> Iterator[BufferStep]:
        info, (shape, dtype) = self.tensors[0], self.targets[0]
        count = prod(shape)
        flat = self.move.rule.source.any_axes
        # If no axis moves, the tensor is a sequence of values and may be cut anywhere.
        rule, sizes = (FLAT, {"flat": count}) if flat else (self.move.rule, dict(self.move.sizes))
        ours, theirs = slowest(rule.target, sizes), slowest(rule.source, sizes)
        target = count // sizes[ours] * ITEMSIZE[dtype]
        source = count // sizes[theirs] * ITEMSIZE[info.dtype]
        if (slice_bytes := max(target, source)) > room:
            raise TooSmall(Budget.for_buffer(slice_bytes))
        # The same axis varies slowest on both sides: a block of the tensor is a block of the variable.
        if ours == theirs:
            blocks = list(_ranges(sizes[ours], room // slice_bytes))
            for block in blocks:
                yield BufferStep(self.move, rule, sizes, block, block, ends=block is blocks[-1])
            return
        strips = list(_ranges(sizes[ours], room // target))
        reads = list(_ranges(sizes[theirs], room // source))
        for strip in strips:
            for read in reads:
                last = read is reads[-1]
                yield BufferStep(self.move, rule, sizes, read, strip, last, last and strip is strips[-1],
                           strip is not strips[0], len(strips) == 1)  # fmt: skip


class TooSmall(Exception):
    """The budget is too small; ``needed`` bytes are enough."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


def all_steps(shaped: list[SizedMove], budget: Budget) -> list[BufferStep]:
    """Return the steps of all moves; raises :class:`UsageError` with the smallest sufficient budget, and the tensor."""
    steps: list[BufferStep] = []
    needed = {}
    for sized in shaped:
        try:
            steps += sized.cut(budget)
        except TooSmall as small:
            needed[sized.tensors[0].name] = small.needed
    if needed:
        name = max(needed, key=needed.__getitem__)
        fix = f"give `--max-memory {-(-needed[name] >> 20)}MiB` or more"
        size = f"{budget.total >> 20}MiB" if budget.total >= 1 << 20 else str(budget.total)
        raise UsageError(name, f"does not fit into `--max-memory {size}`", fix)
    return steps


def slowest(side: ExpressionSide, sizes: Mapping[str, int]) -> str:
    """Return the slowest-varying axis of those with more than one index."""
    # An axis of length one does not vary; cutting along it would make one piece.
    return next((name for name in side.names if sizes[name] > 1), side.names[0])


def aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _ranges(size: int, step: int) -> Iterator[Range]:
    for start in range(0, size, step):
        yield start, min(start + step, size)
