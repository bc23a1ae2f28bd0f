"""Compare a wavelet transform and its inverse with PyWavelets, level by level; the energy of levels and the share
that synthesis keeps.

With symmetric and most other boundary modes the transform is redundant (C > N): coefficient energy is not
signal energy, and synthesis R (N, C) maps C - N directions to nothing. Coefficients from a network are not in the range
of the analysis W (C, N) either. In any mode ||R c||^2 is the energy of the series.

The energies are per series and feature: (..., C, F) reduced over the axis C.

A round trip does not test a transform: a wrong boundary mode of equal shape, or any self-consistent wrong transform,
round-trips to rounding error. A single error over all levels hides the fine ones, which have one percent of the energy.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import NDArray

from wdport.compare.findings import Gate, Term, measure
from wdport.compare.gate_bounds import Bound
from wdport.models.interface import Array
from wdport.uses.wavelets.transform import WaveletTransform, apply_matrix


def level_energies(transform: WaveletTransform, c: Array | Tensor, axis: int = -2) -> Tensor:
    """Energy of the series synthesised from each single level: (levels + 1, ...) for coefficients (..., C, F).

    Levels are not orthogonal unless the mode is periodization, so these do not add up to the total.
    """
    c = jnp.asarray(c)
    axis_index = axis % c.ndim
    groups = transform.split(c, axis)
    only = [transform.join([g if i == j else jnp.zeros_like(g) for j, g in enumerate(groups)], axis_index)
            for i in range(len(groups))]  # fmt: skip
    return jnp.stack([_energy(transform.reconstruct(coefficients, axis_index), axis_index) for coefficients in only])


def dropped_share(transform: WaveletTransform, c: Array | Tensor, axis: int = -2) -> Tensor:
    """Share of a coefficient vector's energy in null(R), which synthesis discards; 0 for W x only if
    W's range is orthogonal to null(R), as with periodization and an orthogonal wavelet."""
    c = jnp.asarray(c)
    axis_index = axis % c.ndim
    # In 16 bits the projection's own rounding would look like dropped energy.
    c = c.astype(jnp.promote_types(c.dtype, jnp.float32))
    projection = apply_matrix(_row_space(transform).astype(c.dtype), c, axis_index)
    return _ratio(_energy(c - projection, axis_index), _energy(c, axis_index))


def off_range(transform: WaveletTransform, c: Array | Tensor, axis: int = -2) -> Tensor:
    """||W R c - c|| / ||c||: distance of a coefficient vector from the coefficients of its own series."""
    c = jnp.asarray(c)
    axis_index = axis % c.ndim
    again = transform.decompose(transform.reconstruct(c, axis_index), axis_index)
    return jnp.sqrt(_ratio(_energy(again - c, axis_index), _energy(c, axis_index)))


def parseval_ratio(transform: WaveletTransform, c: Array | Tensor, axis: int = -2) -> Tensor:
    """||c||^2 / ||R c||^2, coefficient energy over signal energy: 1 where the transform is orthogonal."""
    c = jnp.asarray(c)
    axis_index = axis % c.ndim
    return _ratio(_energy(c, axis_index), _energy(transform.reconstruct(c, axis_index), axis_index))


@lru_cache(maxsize=64)
def _row_space(transform: WaveletTransform) -> NDArray[np.float64]:
    """The projection (C, C) onto the rows of R, float64."""
    synthesis = transform.synthesis_matrix
    projection: NDArray[np.float64] = np.linalg.pinv(synthesis) @ synthesis
    return projection


def _energy(x: Tensor, axis: int) -> Tensor:
    return jnp.sum(jnp.square(x), axis=axis)


def _ratio(part: Tensor, total: Tensor) -> Tensor:
    """part / total, 0 where both are 0."""
    # The divisor is replaced as well: jnp.where computes both branches, and 0 / 0 would make gradients NaN.
    return jnp.where(total > 0, part / jnp.where(total > 0, total, 1.0), jnp.where(part > 0, jnp.inf, 0.0))


BATCH, FEATURES = 2, 3
# Relative to the whole transform: below it, the error of a level is measured against this floor, not its own size.
FLOOR = 1e-3
NOISE = 1e-13
"""Relative to the whole transform: smaller values are rounding errors of zero. PyWavelets leaves 6e-16 of two samples
that the third stage of coif12 annihilates."""

WAVELET: Final = Term("F", "wavelet", "the transform agrees with PyWavelets, level by level and both ways, in float64")

BOUNDS: Final[Mapping[str, Bound]] = {
    "wavelet": Bound(1e-12, "relative float64 error per level against PyWavelets", "wavelet (F)"),
    "wavelet_extrapolated": Bound(1e-10, "the same for boundary modes that extrapolate", "wavelet (F)"),
}
"""Measured: 2e-15 over seven boundary modes, 7e-14 for smooth and antireflect, whose extensions grow beyond the
signal."""


@dataclass(frozen=True)
class WaveletErrors:
    """Relative float64 errors of one transform: per level of coefficients, and of the series synthesised from each
    level only."""

    analysis: dict[str, float]
    synthesis: dict[str, float]

    @property
    def worst(self) -> float:
        return max(*self.analysis.values(), *self.synthesis.values())


def bound_name(mode: str) -> str:
    """The name of the bound of a transform's errors for this boundary mode."""
    return "wavelet_extrapolated" if mode in ("smooth", "antireflect") else "wavelet"


def bound(mode: str) -> float:
    """The largest permitted error of a transform for this boundary mode."""
    return BOUNDS[bound_name(mode)].value


def wavelet_errors(transform: WaveletTransform, seed: int = 0) -> WaveletErrors:
    """Compare one transform with `pywt.wavedec` and `pywt.waverec` on series and on free coefficients.

    Each level's error is relative to the size of that level. Each level is synthesised separately, so that a level
    missing from the transform is not hidden by the others.
    """
    import pywt

    rng = np.random.default_rng(seed)
    x = rng.standard_normal((BATCH, transform.length, FEATURES))
    free = rng.standard_normal((BATCH, transform.coefficients, FEATURES))
    arguments = {"mode": transform.mode, "axis": 1}
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Level value", category=UserWarning)  # deeper than useful is allowed
        truth = pywt.wavedec(x, transform.wavelet, level=transform.level, **arguments)
        c = np.asarray(transform.decompose(x))
        ours = [c[:, part] for part in transform.level_slices]
        scale = _rms(np.concatenate(truth, axis=1))
        analysis = {name: _error(a, b, scale) for name, a, b in zip(transform.level_names, ours, truth, strict=True)}
        synthesis = {}
        for name, part in zip(transform.level_names, transform.level_slices, strict=True):
            single = np.zeros_like(free)
            single[:, part] = free[:, part]
            groups = [single[:, level_slice] for level_slice in transform.level_slices]
            # waverec returns one sample more for a series of odd length.
            series = pywt.waverec(groups, transform.wavelet, **arguments)[:, : transform.length]
            synthesis[name] = _error(np.asarray(transform.reconstruct(single)), series, 1.0)
    return WaveletErrors(analysis, synthesis)


def _error(candidate: Array, reference: Array, scale: float) -> float:
    """RMS error over the reference's RMS, or over a thousandth of ``scale`` where the reference is below that.

    Over ``scale`` itself if the reference is only rounding noise, which is not reproducible: a long wavelet may
    annihilate a short signal.
    """
    if candidate.shape != reference.shape:
        return inf
    error, size = _rms(candidate - reference), _rms(reference)
    over = scale if size < NOISE * scale else max(size, FLOOR * scale)
    return error / over if isfinite(error) else inf


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values * values)))


def wavelet_gate(transform: WaveletTransform, series: Mapping[str, float] | None = None) -> Gate:
    """Gate wavelet (F) of one model: its own transform, both ways, and ``series``, the errors of its series in the
    units of the data, omitted to check only the transform."""
    result = wavelet_errors(transform)
    errors = {f"{name} analysis": value for name, value in result.analysis.items()}
    errors |= {f"{name} synthesis": value for name, value in result.synthesis.items()}
    errors |= series or {}
    limit = bound_name(transform.mode)
    measures = tuple(measure(name, "error", value, limit, family_bounds=BOUNDS) for name, value in errors.items())
    expected = 2 * len(transform.level_names) + (0 if series is None else max(len(series), 1))
    return WAVELET.gate(len(errors), expected, measures)
