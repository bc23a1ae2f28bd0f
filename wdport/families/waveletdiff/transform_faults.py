"""Known bugs of wavelet transforms, their results at wavelet (F), and the canary's.

Most affect both directions, so that the round trip is still exact: only a comparison with PyWavelets detects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log10

from jax import Array as Tensor

from wdport.families.faults import Kill
from wdport.model import Array
from wdport.wavelets.check import BOUNDS, bound_name, wavelet_errors
from wdport.wavelets.filters import FilterBank
from wdport.wavelets.plan import TransformPlan
from wdport.wavelets.transform import WaveletTransform, apply_matrix

Matrices = tuple[Array, Array]
"""Analysis (C, N) and synthesis (N, C)."""

BOTH = ("analysis", "synthesis")


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
    transforms: Sequence[WaveletTransform], faults: Sequence[WaveletFault], held: Mapping[str, float] | None = None
) -> Iterator[Kill]:
    """Run every one of these faults in every transform to which it applies."""
    limits = {**{name: bound.value for name, bound in BOUNDS.items()}, **(held or {})}
    for transform in transforms:
        for fault in faults:
            matrices = fault.change(transform)
            if matrices is not None:
                yield _judge(transform, fault, matrices, limits)


def _judge(transform: WaveletTransform, fault: WaveletFault, matrices: Matrices, held: Mapping[str, float]) -> Kill:
    t = transform
    errors = wavelet_errors(_Broken(t.length, t.wavelet, t.mode, t.level, matrices=matrices))
    limit = held[bound_name(t.mode)]
    ways = {"analysis": errors.analysis, "synthesis": errors.synthesis}
    sites = tuple(way for way, way_errors in ways.items() if not max(way_errors.values()) <= limit)
    over = errors.worst / limit
    margin = log10(over) if 0.0 < over < inf else (inf if over else -inf)
    name = f"{t.length}/{t.wavelet}, {t.mode}"
    return Kill(name, fault.name, " and ".join(fault.ways), "F" if sites else "", "F", sites, sites == fault.ways,
                margin)  # fmt: skip


def with_filters(change: Callable[[FilterBank], FilterBank]) -> Callable[[WaveletTransform], Matrices]:
    """The transform with other filters in every stage."""

    def altered(transform: WaveletTransform) -> Matrices:
        stages = tuple(replace(stage, bank=change(stage.bank)) for stage in transform.plan.stages)
        plan = TransformPlan(transform.length, stages)
        return plan.analysis(), plan.synthesis()

    return altered


def _reversed(bank: FilterBank) -> FilterBank:
    return FilterBank(bank.dec_lo[::-1], bank.dec_hi[::-1], bank.rec_lo[::-1], bank.rec_hi[::-1])


FILTERS_REVERSED = WaveletFault("filters reversed", with_filters(_reversed))
"""The canary's."""
