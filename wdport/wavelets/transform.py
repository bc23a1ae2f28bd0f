"""The multilevel discrete wavelet transform and its inverse, in JAX.

Equal to PyWavelets' `wavedec` and `waverec` for all 106 discrete wavelets and 9 boundary modes. Every mode is
linear in the signal, so for a fixed length the whole transform is one matrix W (C, N) and its inverse one
matrix R (N, C); short signals are multiplied by these, long ones are filtered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array as Tensor
from numpy.typing import DTypeLike

from wdport.errors import UsageError
from wdport.mapping.arrays import Array
from wdport.wavelets import filter_taps as taps
from wdport.wavelets.lengths import filter_length
from wdport.wavelets.plan import TransformPlan, make_plan

MATRIX_LENGTH_PER_TAP = 16
"""Signals of up to this many samples per filter tap go through the matrices, longer ones through the filters:
the crossover on a CPU, measured by `bench/wavelets.py` (64 samples for db2, 256 for db8)."""

Way = Callable[["WaveletTransform", int, Tensor], Tensor]
"""Transform, axis and input to the result."""

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
        return _run(self, "x", "samples", self.length, x, axis, _decompose)

    def reconstruct(self, c: Array | Tensor, axis: int = -2) -> Tensor:
        """Transform coefficients (..., C, F) to series (..., N, F), dtypes as in :meth:`decompose`."""
        return _run(self, "c", "coefficients", self.coefficients, c, axis, _reconstruct)

    def split(self, c: T, axis: int = -2) -> list[T]:
        """Split coefficients (..., C, F) into groups [cA_L, cD_L, ..., cD_1]."""
        axis = _axis("c", c, axis)
        _require(self, "c", "coefficients", self.coefficients, c, axis)
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


def _run(
    transform: WaveletTransform, name: str, what: str, size: int, x: Array | Tensor, axis: int, function: Way
) -> Tensor:
    """Check the input, move its axis, cast it to float32 or float64, and run."""
    x = jnp.asarray(x)
    axis = _axis(name, x, axis)
    _require(transform, name, what, size, x, axis)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise UsageError(name, f"is {x.dtype.name}", "transform the real and the imaginary part separately")
    # Integers and 16-bit floats are computed in float32.
    return function(transform, axis, x.astype(jnp.promote_types(x.dtype, jnp.float32)))


def _axis(name: str, x: Array | Tensor, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        fix = "specify the axis of the signal with axis="
        raise UsageError(name, f"of shape {tuple(x.shape)} has no axis {axis}", fix)
    return axis % int(x.ndim)


def _require(transform: WaveletTransform, name: str, what: str, size: int, x: Array | Tensor, axis: int) -> None:
    if x.shape[axis] != size:
        fix = f"give {size} {what} or make the transform for another length"
        raise UsageError(name, f"has {x.shape[axis]} {what} along axis {axis}, not {size}", fix)
    if 0 in x.shape:
        raise UsageError(name, f"is empty, of shape {tuple(x.shape)}", "give at least one series")


def _decompose(transform: WaveletTransform, axis: int, x: Tensor) -> Tensor:
    coefficients: Tensor
    if transform.by_matrix:
        coefficients = apply_matrix(_cast(transform, 0, x.dtype), x, axis)
    else:
        coefficients = _by_taps(transform.plan, taps.decompose, axis, x)
    return coefficients


def _reconstruct(transform: WaveletTransform, axis: int, c: Tensor) -> Tensor:
    series: Tensor
    if transform.by_matrix:
        series = apply_matrix(_cast(transform, 1, c.dtype), c, axis)
    else:
        series = _by_taps(transform.plan, taps.reconstruct, axis, c)
    return series


@lru_cache(maxsize=256)
def _cast(transform: WaveletTransform, which: int, dtype: DTypeLike) -> Array:
    return (transform.analysis_matrix, transform.synthesis_matrix)[which].astype(dtype)


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
    """Run a function of (..., N, F) along any axis."""
    # The filters work on the last axis but one; any other one is moved there, with a feature axis of size 1 after it.
    if axis == x.ndim - 2:
        return function(plan, x)
    return jnp.moveaxis(function(plan, jnp.moveaxis(x, axis, -1)[..., None])[..., 0], -1, axis)
