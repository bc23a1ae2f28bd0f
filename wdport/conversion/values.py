"""Find unusual values of the tensors that a plan moves, as data; and read or convert single tensors, whole.

Findings do not refuse a file: unusual values may be right, and values that cannot be right are refused when they are
read. Arrays arrive whole or in pieces, each once; of a large one only the least and greatest value are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np

from wdport.base.errors import InputError, MisfitError
from wdport.base.shared_types import Count, about
from wdport.checkpoint import Checkpoint
from wdport.checkpoint.source import decode
from wdport.conversion.prepare import Prepared
from wdport.conversion.rounding import FLOATS, extremes, rounded_values
from wdport.mapping.moves import Move, Plan, Read
from wdport.models.interface import Array


@dataclass(frozen=True)
class ValueFinding:
    """Something unusual about the values of tensors; it does not stop a conversion."""

    kind: Annotated[str, about("Kind of the finding.")]
    level: Annotated[Literal["warning", "note"], about(
        "`warning` if the values probably indicate a fault, `note` if they may be intentional.")]  # fmt: skip
    names: Annotated[tuple[str, ...], about("Names of the tensors.")]
    count: Annotated[Count, about("Number of unusual values, channels or tensors.")]
    total: Annotated[Count, about("Total number of values, channels or tensors.")]
    text: Annotated[str, about("The finding in one sentence.")]


def _warning(kind: str, name: str, count: int, total: int, what: str) -> ValueFinding:
    """A warning on ``count`` of a tensor's ``total`` values."""
    return ValueFinding(kind, "warning", (name,), count, total, f"{name}: {count} of {total} values {what}")


See = Callable[[str, Array, str], None]
"""Receives the name of a stored tensor of the checkpoint, the tensor or its next piece, and its dtype."""

LARGEST: Final = {"float32": 3.4028234663852886e38, "bfloat16": 3.3895313892515355e38, "float16": 65504.0}
"""The largest number, by dtype of the port."""

LEAST: Final = {"float32": 2.0**-150, "bfloat16": 2.0**-134, "float16": 2.0**-25}
"""Values up to this one become zero in that dtype, by rounding to even."""

LOST: Final = 0.1
"""The least fraction of values becoming zero that is reported."""

DEAD: Final = 1e-12
"""A running variance up to this counts as that of a constant: such channels of trained networks have 1e-30 and less."""

CENTRED: Final = 0.25
"""Scales with a mean closer to 0, and a fifth of either sign, count as centred on 0. Others are seldom negative: in the
norms of the public packages that `make real` reads, at most 4 % of a norm's channels are."""

_BLOCK: Final = 1 << 16
_NORMS: Final = ("layer_norm", "rms_norm", "group_norm", "batch_norm")
_ROLES: Final = {"gamma": "scale", "scale": "scale", "beta": "shift", "moving_variance": "variance",
                 "moving_mean": "mean"}  # fmt: skip


@dataclass
class _Statistics:
    """Statistics of the part of a tensor seen so far."""

    size: int = 0
    low: float = inf
    high: float = -inf
    nonfinite: int = 0
    lost: int = 0
    first: bytes = b""
    arrays: list[Array] = field(default_factory=list)

    @property
    def zero(self) -> bool:
        return self.size > 0 and self.low == self.high == 0.0

    @property
    def values(self) -> Array:
        return np.concatenate([array.ravel() for array in self.arrays]) if self.arrays else np.zeros(0)


@dataclass(frozen=True)
class _Norm:
    """A norm's module, its kind, and the names of its tensors by role."""

    module: str
    kind: str
    tensors: dict[str, str]


class ValueLint:
    """Examines the tensors that ``plan`` moves while they are converted to variables of ``dtype``."""

    def __init__(self, plan: Plan, dtype: str = "float32") -> None:
        self._plan, self._dtype = plan, dtype
        self._norms = _norms(plan)
        self._small = {name for norm in self._norms for name in norm.tensors.values()}
        self._stats: dict[str, _Statistics] = {}

    def add(self, name: str, array: Array, dtype: str) -> None:
        """Process a tensor as it is stored in ``dtype``, bfloat16 as its bits, or its next piece."""
        if dtype not in FLOATS or not array.size:
            return
        stats = self._stats.setdefault(name, _Statistics())
        flat = array.reshape(-1)
        # With range, shape and dtype this separates nearly all tensors; those that remain are compared bit by bit.
        stats.first = stats.first or flat[:64].tobytes()
        stats.size += flat.size
        for offset in range(0, flat.size, _BLOCK):  # so small that the second look finds it in the processor's cache
            self._update(stats, flat[offset : offset + _BLOCK], dtype)
        if name in self._small:
            stats.arrays.append(decode(array, dtype).astype(np.float64))

    def _update(self, stats: _Statistics, block: Array, dtype: str) -> None:
        if (bounds := extremes(block, dtype)) is None:
            values = decode(block, dtype)
            finite = values[np.isfinite(values)]
            stats.nonfinite += block.size - finite.size
            if not finite.size:
                return
            bounds = float(finite.min()), float(finite.max())
        stats.low, stats.high = min(stats.low, bounds[0]), max(stats.high, bounds[1])
        # bfloat16 has float32's exponents, so only subnormal float32 values could underflow in it.
        if dtype == "float64" or (self._dtype == "float16" and dtype != "float16"):
            values = decode(block, dtype)
            small = np.abs(values) <= LEAST[self._dtype]
            stats.lost += int(np.count_nonzero(small)) - int(np.count_nonzero(values == 0)) if small.any() else 0

    def findings(self, checkpoint: Checkpoint) -> tuple[ValueFinding, ...]:
        """Return all findings, warnings first; tensors that look equal are read again to compare them."""
        moves = [move for move in self._plan.moves if all(name in self._stats for name in move.sources)]
        unordered = [*self._numbers(), *self._variances(), *self._centred(), *self._dead(), *self._zeros(moves),
                     *self._twice(moves, checkpoint)]  # fmt: skip
        return tuple(sorted(unordered, key=lambda finding: finding.level != "warning"))

    def _numbers(self) -> Iterator[ValueFinding]:
        """Find values that the dtype of the port cannot hold."""
        for name, stats in self._in_order():
            if stats.nonfinite:
                yield _warning("nonfinite", name, stats.nonfinite, stats.size, "are NaN or infinite")
            peak = max(abs(stats.low), abs(stats.high)) if stats.size > stats.nonfinite else 0.0
            if peak > LARGEST[self._dtype]:
                text = (
                    f"{name} reaches {peak:.3g}, which {self._dtype} cannot hold (at most {LARGEST[self._dtype]:.3g})"
                )
                yield ValueFinding("overflow", "warning", (name,), 1, stats.size, text)
            if stats.lost >= LOST * stats.size:
                what = f"are not zero and become zero in {self._dtype}"
                yield _warning("underflow", name, stats.lost, stats.size, what)

    def _in_order(self) -> Iterator[tuple[str, _Statistics]]:
        """The tensors in the order of the plan; they may have come in that of the file."""
        names = dict.fromkeys(name for move in self._plan.moves for name in move.sources)
        return ((name, self._stats[name]) for name in names if name in self._stats)

    def _variances(self) -> Iterator[ValueFinding]:
        for name in (norm.tensors["variance"] for norm in self._norms if "variance" in norm.tensors):
            if name in self._stats and (count := int(np.count_nonzero(self._stats[name].values < 0))):
                what = "are negative, which a variance cannot be"
                yield _warning("negative variance", name, count, self._stats[name].size, what)

    def _centred(self) -> Iterator[ValueFinding]:
        """Find norms that may multiply by 1 + scale; some batch and group norms are trained from 0."""
        for kind in dict.fromkeys(norm.kind for norm in self._norms):
            names = [norm.tensors["scale"] for norm in self._norms if norm.kind == kind and "scale" in norm.tensors]
            names = [
                name for name in names if name in self._stats and self._stats[name].size > self._stats[name].nonfinite
            ]
            scales = [name for name in names if _is_centred(self._stats[name].values)]
            # A layer or RMS norm is trained from 1. Some batch and group norms are trained from 0, so one of them is no
            # sign.
            if scales and (kind in ("layer_norm", "rms_norm") or 2 * len(scales) >= len(names)):
                mean = float(np.mean(self._stats[scales[0]].values))
                more = f" and {len(scales) - 1} more of {len(names)}" if len(scales) > 1 else ""
                text = (
                    f"{scales[0]}{more}: a {kind}'s scale centred on 0 (mean {mean:.2g}); "
                    "does it multiply by 1 + scale?"
                )
                yield ValueFinding("centred scale", "warning", tuple(scales), len(scales), len(names), text)

    def _dead(self) -> Iterator[ValueFinding]:
        """Find channels of a batch norm that are constant, or were constant during training."""
        for norm in (norm for norm in self._norms if norm.kind == "batch_norm"):
            values = {role: self._stats[name].values for role, name in norm.tensors.items() if name in self._stats}
            if "variance" in values and (count := int(np.count_nonzero(np.abs(values["variance"]) <= DEAD))):
                total = values["variance"].size
                text = f"{norm.module}: the running variance of {count} of {total} channels is 0, as of a constant"
                yield ValueFinding("dead channels", "note", (norm.tensors["variance"],), count, total, text)
            zeros = values["scale"] == 0 if "scale" in values else np.zeros(0, bool)
            if count := int(np.count_nonzero(zeros)):
                names = tuple(norm.tensors[role] for role in ("scale", "shift") if role in values)
                output = "0" if "shift" in values and not values["shift"][zeros].any() else "constant"
                text = f"{norm.module}: the scale of {count} of {zeros.size} channels is 0, so each is {output}"
                yield ValueFinding("dead channels", "note", names, count, zeros.size, text)

    def _zeros(self, moves: Sequence[Move]) -> Iterator[ValueFinding]:
        """Find weights, not biases, that are all zero."""
        scales = {
            norm.tensors["scale"] for norm in self._norms if "scale" in norm.tensors and norm.kind != "batch_norm"
        }
        for move in moves:
            for name, shape in zip(move.sources, move.shapes, strict=True):
                matrix = _is_matrix(shape) and "bias" not in name.rpartition(".")[2]
                if self._stats[name].zero and (matrix or name in scales):
                    size = prod(shape)
                    yield ValueFinding("all zero", "note", (name,), size, size, f"{name} {shape} is all zero")

    def _twice(self, moves: Sequence[Move], checkpoint: Checkpoint) -> Iterator[ValueFinding]:
        """Find matrices with equal bits that fill different variables. Vectors may be equal: the scales of queries and
        keys start equal and are trained alike."""
        alike: dict[object, list[str]] = {}
        for name in (name for move in moves for name in move.sources):
            stats, info = self._stats[name], checkpoint.tensors[name]
            if stats.low < stats.high and _is_matrix(info.shape):
                key = (info.dtype, info.shape, stats.low, stats.high, stats.first)
                alike.setdefault(key, []).append(name)
        for names in alike.values():
            same = [name for name in names[1:] if _equal_bytes(checkpoint.read, names[0], name)]
            if same:
                refs = {checkpoint.tensors[name].ref for name in (names[0], *same)}
                one = len(refs) == 1 and not checkpoint.format.endswith("sharded")
                relation = (
                    "one tensor in the checkpoint, different variables in the port" if one else "equal bit for bit"
                )
                others = same[0] + (f" and {len(same) - 1} more" if len(same) > 1 else "")
                text = f"{names[0]}, {others}: {relation}; if they are tied, add a row under tied:"
                yield ValueFinding("twice", "note", (names[0], *same), 1 + len(same), 1 + len(same), text)


def _equal_bytes(read: Read, first: str, second: str) -> bool:
    a, b = (np.ascontiguousarray(read(name)).reshape(-1).view(np.uint8) for name in (first, second))
    return bool(np.array_equal(a, b))


def _is_matrix(shape: Sequence[int]) -> bool:
    return sum(size > 1 for size in shape) > 1


def _is_centred(values: Array) -> bool:
    """Return whether a norm's scale is centred on 0 instead of 1; False for few channels."""
    if values.size < 8 or not values.any():
        return False
    negative = float(np.mean(values < 0))
    return abs(float(np.mean(values))) < CENTRED and 0.2 <= negative <= 0.8


def _norms(plan: Plan) -> list[_Norm]:
    """Return every norm of the plan, in its order, by its row's kind or, for a row without one, by its variables."""
    by_module: dict[str, _Norm] = {}
    taps = [tap for tap in plan.table.taps if tap.kind in _NORMS]
    for move in plan.moves:
        role = _ROLES.get(move.targets[0].rpartition("/")[2])
        if role is None or len(move.sources) != 1 or _is_matrix(move.shapes[0]):
            continue
        module = move.source.rpartition(".")[0]
        if module not in by_module:
            kinds = (tap.kind for tap in taps if tap.torch.match(module) is not None)
            if (kind := next(kinds, "")) or role in ("variance", "mean"):
                by_module[module] = _Norm(module, kind or "batch_norm", {})
        if module in by_module:
            by_module[module].tensors[role] = move.source
    return list(by_module.values())


def find_unusual_values(plan: Plan, checkpoint: Checkpoint, dtype: str = "float32") -> tuple[ValueFinding, ...]:
    """Return all findings on the tensors that a plan moves, read one after another."""
    lint = ValueLint(plan, dtype)
    for name in dict.fromkeys(name for move in plan.moves for name in move.sources):
        lint.add(name, checkpoint.read_stored(name), checkpoint.tensors[name].dtype)
    return lint.findings(checkpoint)


def require_equal_ties(prepared: Prepared) -> None:
    """Raise ``MisfitError`` if a tied tensor is not bit for bit equal to the tensor that it is tied to."""
    if faults := prepared.plan.unequal_ties(prepared.checkpoint.same):
        fix = "correct the checkpoint, or write a separate row for the tensor"
        raise MisfitError(prepared.checkpoint.path, faults[0], fix, faults)


def moved_arrays(prepared: Prepared, move: Move) -> list[Array]:
    """Return the float32 variables that one move computes from whole tensors, without the stream's buffers, so that
    what it wrote can be compared with them; raises as :func:`source_array` does.

    Arithmetic uses the stored values, so that it is rounded once.
    """
    sources = [source_array(prepared, name) for name in move.sources]
    if not move.exact:
        # Read again in the stored dtype: float64 values that are rounded to float32 first would be rounded twice.
        sources = [prepared.checkpoint.read(name) for name in move.sources]
    return move.apply(sources)


def source_array(prepared: Prepared, name: str) -> Array:
    """Return one tensor of the checkpoint as float32; a table that 16-bit storage has ruined is recomputed.

    Raises ``InputError`` for a NaN or infinity.
    """
    if name in prepared.recomputed:
        return prepared.constants[prepared.plan.checks[name]].values.astype(np.float32)
    stored = prepared.checkpoint.read(name)
    require_finite(prepared, name, bool(np.isfinite(stored).all()))
    with np.errstate(over="ignore"):
        return stored.astype(np.float32, copy=False)


def require_finite(prepared: Prepared, name: str, finite: bool) -> None:
    """Raise ``InputError`` unless a tensor is finite."""
    if not finite:
        fix = "use an undamaged checkpoint, or `--allow-nonfinite`"
        raise InputError((prepared.checkpoint.path, name), "has NaN or infinite values", fix)


def source_tensors(prepared: Prepared, rounded: Mapping[str, str], path: Path) -> dict[str, Array]:
    """The checkpoint's tensors, rounded if the variables of the converted file at ``path`` are: ``rounded`` are the
    16-bit dtypes by variable.

    Raises :class:`MisfitError` if a result of arithmetic was rounded, since no tensors reproduce it.
    """
    tensors = {name: _tensor(prepared, name) for name in prepared.checkpoint.tensors}
    for move in prepared.plan.moves:
        dtype = rounded.get(move.targets[0])
        if dtype is not None and not move.exact:
            what = f"{move.targets[0]} is a computed variable rounded to {dtype}, which no reference reproduces"
            raise MisfitError(path, what, "verify a float32 conversion of the checkpoint")
        if dtype is not None:
            tied = [name for name, same in prepared.plan.ties.items() if same in move.sources]
            tensors |= {name: rounded_values(tensors[name], dtype) for name in (*move.sources, *tied)}
    return tensors


def _tensor(prepared: Prepared, name: str) -> Array:
    if name in prepared.plan.drops or (name in prepared.plan.checks and name not in prepared.recomputed):
        return prepared.checkpoint.read(name)
    return source_array(prepared, name)
