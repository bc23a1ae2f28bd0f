"""The multilevel discrete wavelet transform and its inverse, in JAX.

Equal to PyWavelets' `wavedec` and `waverec` for all 106 discrete wavelets and 9 boundary modes. Every mode is
linear in the signal, so for a fixed length the whole transform is one matrix W (C, N) and its inverse one
matrix R (N, C); short signals are multiplied by these, long ones are filtered: weighted sums of strided slices of the
extended signal, whose axis is then the last but one, (..., N, F). XLA fuses a stage into one loop over its output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import DTypeLike

from wdport.base.errors import UsageError
from wdport.models.interface import Array
from wdport.uses.wavelets.lengths import filter_length
from wdport.uses.wavelets.plan import TransformPlan, TransformStage, make_plan

MATRIX_LENGTH_PER_TAP = 16
"""Signals of up to this many samples per filter tap go through the matrices, longer ones through the filters:
the crossover on a CPU, measured by `bench/wavelets.py` (64 samples for db2, 256 for db8)."""

T = TypeVar("T", Array, Tensor)

METHODS = ("auto", "matrix", "taps")


@dataclass(frozen=True)
class WaveletTransform:
    """Transform series of one length to wavelet coefficients and back.

    Args:
        length: N, samples per series.
        wavelet: name of one of PyWavelets' discrete wavelets.
        mode: boundary mode, one of PyWavelets' nine.
        level: number of stages; None for WaveletDiff's automatic choice (3 to 7, depending on length and wavelet).
        method: "matrix", "taps", or "auto" for the faster of the two; their results agree up to rounding.

    Coefficients are laid out as [cA_L, cD_L, ..., cD_1]. Instances are equal, and have the same hash, if their
    arguments are equal, so they can be static arguments of jitted functions. Works under jit, grad and vmap.

    Raises:
        UsageError: an argument is invalid; the message names it.
    """

    length: int
    wavelet: str = "db2"
    mode: str = "symmetric"
    level: int | None = None
    method: str = "auto"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError("method", f"unknown method {self.method!r}", f"use one of {', '.join(METHODS)}")
        # The automatic level is resolved, so that equal transforms compare and hash alike.
        object.__setattr__(self, "level", len(self.plan.stages))

    @property
    def plan(self) -> TransformPlan:
        """The stages of the transform."""
        return make_plan(self.length, self.wavelet, self.mode, self.level)

    @property
    def level_lengths(self) -> tuple[int, ...]:
        """Coefficients per group, (cA_L, cD_L, ..., cD_1)."""
        return self.plan.level_lengths

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of the groups: cA3, cD3, cD2, cD1 for three levels."""
        return self.plan.level_names

    @property
    def level_slices(self) -> tuple[slice, ...]:
        """Slice of each group along the coefficient axis."""
        return self.plan.level_slices

    @property
    def coefficients(self) -> int:
        """C, coefficients of one series in all groups."""
        return self.plan.coefficients

    @property
    def analysis_matrix(self) -> Array:
        """W (C, N), float64, read-only: ``decompose`` is W x."""
        return _matrices(self.length, self.wavelet, self.mode, self.level)[0]

    @property
    def synthesis_matrix(self) -> Array:
        """R (N, C), float64, read-only: ``reconstruct`` is R c."""
        return _matrices(self.length, self.wavelet, self.mode, self.level)[1]

    @property
    def by_matrix(self) -> bool:
        """Whether the matrices are used."""
        short = self.length <= MATRIX_LENGTH_PER_TAP * filter_length(self.wavelet)
        return self.method == "matrix" or (self.method == "auto" and short)

    def decompose(self, x: Array | Tensor, axis: int = -2) -> Tensor:
        """Transform series (..., N, F) to coefficients (..., C, F); ``axis`` is the axis of the signal.

        Computes in float64 for float64 input (under JAX x64), otherwise in float32 at full precision, whatever the
        Keras policy: in bfloat16 the round trip alone would lose 4e-2. A NaN or infinity spreads to all coefficients of
        its series (matrix) or to those whose filters overlap it (taps).
        """
        return _run(self, 0, *_checked("x", "samples", self.length, x, axis))

    def reconstruct(self, c: Array | Tensor, axis: int = -2) -> Tensor:
        """Transform coefficients (..., C, F) to series (..., N, F), dtypes as in :meth:`decompose`."""
        return _run(self, 1, *_checked("c", "coefficients", self.coefficients, c, axis))

    def split(self, c: T, axis: int = -2) -> list[T]:
        """Split coefficients (..., C, F) into groups [cA_L, cD_L, ..., cD_1]."""
        axis = _axis("c", c, axis)
        _require("c", "coefficients", self.coefficients, c, axis)
        before: tuple[slice, ...] = (slice(None),) * axis
        return [c[(*before, part)] for part in self.level_slices]

    def join(self, groups: Sequence[Array | Tensor], axis: int = -2) -> Tensor:
        """Concatenate groups; the inverse of :meth:`split`."""
        if len(groups) != len(self.level_lengths):
            what = f"are {len(groups)}, the transform has {len(self.level_lengths)}"
            raise UsageError("groups", what, f"give {', '.join(self.level_names)}")
        for name, size, group in zip(self.level_names, self.level_lengths, groups, strict=True):
            if group.shape[_axis(name, group, axis)] != size:
                raise UsageError(name, f"has shape {group.shape}", f"give {size} coefficients along axis {axis}")
        return jnp.concatenate([jnp.asarray(group) for group in groups], axis=axis)


@lru_cache(maxsize=256)
def _matrices(length: int, wavelet: str, mode: str, level: int | None) -> tuple[Array, Array]:
    plan = make_plan(length, wavelet, mode, level)
    matrices = plan.analysis(), plan.synthesis()
    for matrix in matrices:
        # The cache hands out the same arrays to every caller.
        matrix.setflags(write=False)
    return matrices


def _checked(name: str, what: str, size: int, x: Array | Tensor, axis: int) -> tuple[Tensor, int]:
    """The input in float32 or float64, and its axis counted from the front."""
    x = jnp.asarray(x)
    axis = _axis(name, x, axis)
    _require(name, what, size, x, axis)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise UsageError(name, f"is {x.dtype.name}", "transform the real and the imaginary part separately")
    # Integers and 16-bit floats are computed in float32.
    return x.astype(jnp.promote_types(x.dtype, jnp.float32)), axis


def _axis(name: str, x: Array | Tensor, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        fix = "specify the axis of the signal with axis="
        raise UsageError(name, f"of shape {tuple(x.shape)} has no axis {axis}", fix)
    return axis % int(x.ndim)


def _require(name: str, what: str, size: int, x: Array | Tensor, axis: int) -> None:
    if x.shape[axis] != size:
        fix = f"give {size} {what} or make the transform for another length"
        raise UsageError(name, f"has {x.shape[axis]} {what} along axis {axis}, not {size}", fix)
    if 0 in x.shape:
        raise UsageError(name, f"is empty, of shape {tuple(x.shape)}", "give at least one series")


def _run(transform: WaveletTransform, way: int, x: Tensor, axis: int) -> Tensor:
    """Analysis (``way`` 0) or synthesis (1) along an axis."""
    result: Tensor
    if transform.by_matrix:
        result = apply_matrix(_cast(transform, way, x.dtype), x, axis)
    else:
        result = _by_taps(transform.plan, (_decomposed, _reconstructed)[way], axis, x)
    return result


@lru_cache(maxsize=256)
def _cast(transform: WaveletTransform, way: int, dtype: DTypeLike) -> Array:
    return (transform.analysis_matrix, transform.synthesis_matrix)[way].astype(dtype)


@partial(jax.jit, static_argnums=2)
def apply_matrix(matrix: Array | Tensor, x: Tensor, axis: int) -> Tensor:
    """Multiply one axis by a matrix (out, in), at full precision.

    One product over everything else, which XLA:CPU runs as one large gemm. The matrix is an argument, so
    transforms of equal sizes share one program.
    """
    # dot_general puts the new axis last, whichever axis was contracted.
    product = jax.lax.dot_general(x, matrix, (((axis,), (1,)), ((), ())), precision=jax.lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, axis)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _by_taps(plan: TransformPlan, function: Callable[[TransformPlan, Tensor], Tensor], axis: int, x: Tensor) -> Tensor:
    # The filters work on the last axis but one; any other one is moved there, with a feature axis of size 1 after it.
    if axis == x.ndim - 2:
        return function(plan, x)
    return jnp.moveaxis(function(plan, jnp.moveaxis(x, axis, -1)[..., None])[..., 0], -1, axis)


def _decomposed(plan: TransformPlan, x: Tensor) -> Tensor:
    """(..., N, F) to (..., C, F)."""
    details: list[Tensor] = []
    for stage in plan.stages:
        extended, bank = _extended(stage, x), stage.bank
        # Both filters read the same extension, which is computed once per stage.
        x = _filtered(extended, bank.dec_lo, stage.count)
        details.insert(0, _filtered(extended, bank.dec_hi, stage.count))
    return jnp.concatenate([x, *details], axis=-2)


def _reconstructed(plan: TransformPlan, coefficients: Tensor) -> Tensor:
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
    total: Tensor | float = 0.0
    # Unrolled over the taps, 102 at most, so that XLA fuses the sum into one loop.
    for j, weight in enumerate(taps[::-1].astype(extended.dtype)):
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
