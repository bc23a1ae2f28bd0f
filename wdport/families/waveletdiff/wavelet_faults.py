"""Known bugs of wavelet transforms, and their results at wavelet (F).

Most affect both directions, so that the round trip is still exact: only a comparison with PyWavelets detects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log10

import numpy as np
from jax import Array as Tensor

from wdport.families.faults import Kill
from wdport.model import Array
from wdport.wavelets.check import BOUNDS, bound_name, wavelet_errors
from wdport.wavelets.filters import FilterBank
from wdport.wavelets.lengths import filter_length
from wdport.wavelets.plan import TransformPlan, make_plan
from wdport.wavelets.transform import WaveletTransform, apply_matrix

Matrices = tuple[Array, Array]
"""Analysis (C, N) and synthesis (N, C)."""

QUICK = "filters reversed"
"""The fault in the short self-test."""

BOTH = ("analysis", "synthesis")
OTHER_WAVELET = {"db2": "db3", "db4": "sym4"}
OTHER_MODE = {"symmetric": "periodic"}


@dataclass(frozen=True)
class WaveletFault:
    """A fault: maps a correct transform to wrong matrices, ``None`` if not applicable; ``ways`` are the affected
    directions."""

    name: str
    change: Callable[[WaveletTransform], Matrices | None]
    ways: tuple[str, ...] = BOTH


@dataclass(frozen=True)
class _Broken(WaveletTransform):
    """A transform with these matrices instead of the correct ones."""

    matrices: Matrices = field(kw_only=True, compare=False)

    def decompose(self, x: Array | Tensor, axis: int = -2) -> Tensor:
        return apply_matrix(self.matrices[0], x, axis % x.ndim)

    def reconstruct(self, c: Array | Tensor, axis: int = -2) -> Tensor:
        return apply_matrix(self.matrices[1], c, axis % c.ndim)


def run_wavelet_faults(
    transforms: Sequence[WaveletTransform], held: Mapping[str, float] | None = None, names: Sequence[str] | None = None
) -> Iterator[Kill]:
    """Run every fault, or those of these names, in every transform to which it applies."""
    limits = {**{name: bound.value for name, bound in BOUNDS.items()}, **(held or {})}
    for transform in transforms:
        for fault in FAULTS:
            matrices = fault.change(transform) if names is None or fault.name in names else None
            if matrices is not None:
                yield _judge(transform, fault, matrices, limits)


def _judge(transform: WaveletTransform, fault: WaveletFault, matrices: Matrices, held: Mapping[str, float]) -> Kill:
    t = transform
    errors = wavelet_errors(_Broken(t.length, t.wavelet, t.mode, t.level, matrices=matrices))
    limit = held[bound_name(t.mode)]
    ways = {"analysis": errors.analysis, "synthesis": errors.synthesis}
    sites = tuple(way for way, found in ways.items() if not max(found.values()) <= limit)
    over = errors.worst / limit
    margin = log10(over) if 0.0 < over < inf else (inf if over else -inf)
    name = f"{t.length}/{t.wavelet}, {t.mode}"
    return Kill(name, fault.name, " and ".join(fault.ways), "F" if sites else "", "F", sites, sites == fault.ways,
                margin)  # fmt: skip


def _filters(change: Callable[[FilterBank], FilterBank]) -> Callable[[WaveletTransform], Matrices]:
    """The transform with other filters in every stage."""

    def altered(transform: WaveletTransform) -> Matrices:
        stages = tuple(replace(stage, bank=change(stage.bank)) for stage in transform.plan.stages)
        plan = TransformPlan(transform.length, stages)
        return plan.analysis(), plan.synthesis()

    return altered


def _reversed(bank: FilterBank) -> FilterBank:
    return FilterBank(bank.dec_lo[::-1], bank.dec_hi[::-1], bank.rec_lo[::-1], bank.rec_hi[::-1])


def _exchanged(bank: FilterBank) -> FilterBank:
    return FilterBank(bank.dec_hi, bank.dec_lo, bank.rec_hi, bank.rec_lo)


def _flipped(bank: FilterBank) -> FilterBank:
    return FilterBank(bank.dec_lo, -bank.dec_hi, bank.rec_lo, -bank.rec_hi)


def _other_wavelet(transform: WaveletTransform) -> Matrices | None:
    """Another wavelet with the same sizes: for periodization, or with filters of the same length."""
    other = OTHER_WAVELET.get(transform.wavelet)
    alike = other and filter_length(other) == filter_length(transform.wavelet)
    if not other or not (alike or transform.mode == "periodization"):
        return None
    plan = make_plan(transform.length, other, transform.mode, transform.level)
    return plan.analysis(), plan.synthesis()


def _other_mode(transform: WaveletTransform) -> Matrices | None:
    """Another boundary mode; synthesis is the same for all but periodization, which has other sizes."""
    if transform.mode == "periodization":
        return None
    other = OTHER_MODE.get(transform.mode, "symmetric")
    plan = make_plan(transform.length, transform.wavelet, other, transform.level)
    return plan.analysis(), plan.synthesis()


def _rolled(transform: WaveletTransform) -> Matrices:
    return np.roll(transform.analysis_matrix, 1, axis=1), np.roll(transform.synthesis_matrix, 1, axis=0)


def _wrong_end(transform: WaveletTransform) -> Matrices | None:
    """A stage that restores one sample too many drops the first instead of the last."""
    plan = transform.plan
    if all(stage.restored == stage.length for stage in plan.stages):
        return None
    groups = [np.eye(plan.coefficients)[part] for part in plan.level_slices]
    series = groups[0]
    for stage, detail in zip(reversed(plan.stages), groups[1:], strict=True):
        low, high = stage.synthesis()
        series = (low @ series[-stage.count :] + high @ detail)[-stage.length :]
    return transform.analysis_matrix, series


FAULTS = (
    WaveletFault("filters reversed", _filters(_reversed)),
    WaveletFault("low and high exchanged", _filters(_exchanged)),
    WaveletFault("sign of the details flipped", _filters(_flipped)),
    WaveletFault("another wavelet", _other_wavelet),
    WaveletFault("another boundary mode", _other_mode, ("analysis",)),
    WaveletFault("rolled by one sample", _rolled),
    WaveletFault("cropped at the wrong end", _wrong_end, ("synthesis",)),
)
