"""The filter form of the transform, for long signals: weighted sums of strided slices of the extended signal.

The signal's axis is the last but one, (..., N, F). XLA fuses a stage into one loop over its output.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.mapping.arrays import Array
from wdport.wavelets.plan import TransformPlan, TransformStage


def decompose(plan: TransformPlan, x: Tensor) -> Tensor:
    """(..., N, F) to (..., C, F)."""
    details: list[Tensor] = []
    for stage in plan.stages:
        extended, bank = _extended(stage, x), stage.bank
        # Both filters read the same extension, which is computed once per stage.
        x = _filtered(extended, bank.dec_lo, stage.count)
        details.insert(0, _filtered(extended, bank.dec_hi, stage.count))
    return jnp.concatenate([x, *details], axis=-2)


def reconstruct(plan: TransformPlan, coefficients: Tensor) -> Tensor:
    """(..., C, F) to (..., N, F)."""
    groups = [coefficients[..., part, :] for part in plan.level_slices]
    x = groups[0]
    for stage, detail in zip(reversed(plan.stages), groups[1:], strict=True):
        # An inverse stage may return one sample more than the next detail has, which waverec drops.
        x = _restored(stage, x[..., : stage.count, :], detail)[..., : stage.length, :]
    return x


def _extended(stage: TransformStage, x: Tensor) -> Tensor:
    """The signal extended at both ends by the length of the filters: (..., N, F) to (..., P, F)."""
    before = -stage.first
    parts = [_outside(stage, x, slice(0, before)), x, _outside(stage, x, slice(before + stage.length, None))]
    return jnp.concatenate(parts, axis=-2)


def _outside(stage: TransformStage, x: Tensor, part: slice) -> Tensor:
    """Some of the extension's samples, each the weighted sum of its terms."""
    indices, weights = stage.extension.indices[part], stage.extension.weights[part].astype(x.dtype)
    terms = [x[..., indices[:, k], :] * weights[:, k, None] for k in range(indices.shape[1])]
    return sum(terms[1:], terms[0])


def _filtered(extended: Tensor, taps: Array, count: int) -> Tensor:
    """sum_j taps[Lf - 1 - j] * extended[2o + j] for o = 0 ... count - 1."""
    axis = extended.ndim - 2
    # Reversed: the transform is a convolution, and the sum of slices a correlation.
    weights = taps[::-1].astype(extended.dtype)
    total: Tensor | float = 0.0
    # Unrolled over the taps, 102 at most, so that XLA fuses the sum into one loop.
    for j, weight in enumerate(weights):
        total = total + weight * jax.lax.slice_in_dim(extended, j, j + 2 * count - 1, 2, axis)
    return jnp.asarray(total)


def _restored(stage: TransformStage, approximation: Tensor, detail: Tensor) -> Tensor:
    """One `idwt`: even and odd samples by two short convolutions, interleaved."""
    half, parts = stage.restored // 2, []
    for phase in stage.phases():
        first = phase.shift - len(phase.low) + 1
        sources = [_reached(stage, group, first, half - 1 + phase.shift) for group in (approximation, detail)]
        total: Tensor | float = 0.0
        for source, taps in zip(sources, (phase.low, phase.high), strict=True):
            for t, weight in enumerate(taps.astype(source.dtype)):
                start = phase.shift - t - first
                total = total + weight * source[..., start : start + half, :]
        parts.append(total)
    shape = (*approximation.shape[:-2], stage.restored, approximation.shape[-1])
    return jnp.stack(parts, axis=-2).reshape(shape)


def _reached(stage: TransformStage, group: Tensor, first: int, last: int) -> Tensor:
    """Coefficients ``first`` to ``last`` of one group, which for periodization wrap around."""
    if not stage.periodization:
        return group[..., first : last + 1, :]
    return group[..., np.arange(first, last + 1) % stage.count, :]
