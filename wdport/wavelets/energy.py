"""Energy of coefficient vectors: its distribution over levels, and the share that synthesis keeps.

With symmetric and most other boundary modes the transform is redundant (C > N): coefficient energy is not
signal energy, and synthesis R (N, C) maps C - N directions to nothing. Coefficients from a network are not in the range
of the analysis W (C, N) either. In any mode ||R c||^2 is the energy of the series.

Everything here is per series and feature: (..., C, F) reduced over the axis C.
"""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import NDArray

from wdport.mapping.arrays import Array
from wdport.wavelets.transform import WaveletTransform, apply_matrix


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
    """part / whole, 0 where both are 0."""
    return jnp.where(total > 0, part / jnp.where(total > 0, total, 1.0), jnp.where(part > 0, jnp.inf, 0.0))
