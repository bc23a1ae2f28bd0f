"""Rotary positions: the two halves of a head are turned by angles that grow with the position."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from keras import layers, ops

from wdport.model import Array
from wdport.model import KerasTensor as Tensor


def rotary_frequencies(width: int, theta: float, dtype: str = "float64") -> Array:
    """(width / 2,) frequencies ``theta ** (-2 k / width)``.

    In float32 every step is rounded as PyTorch's code rounds it: exponent, power, reciprocal. For widths up to 128 that
    moves a frequency by up to 5 units in the last place, which the network was trained with; PyTorch's own power, on a
    CPU, differs from the rounded one by at most 1.
    """
    kind = np.dtype(dtype)
    exponents = (np.arange(0, width, 2).astype(kind) / kind.type(width)).astype(np.float64)
    frequencies: Array = kind.type(1.0) / (np.float64(theta) ** exponents).astype(kind)
    return frequencies


class Rotary(layers.Layer):
    """Positions (1 or B, N) -> cosines and sines (1 or B, N, D) of the angles; both halves of D have the same angles.

    The angles are computed in at least float32 under any policy: bfloat16 cannot tell neighbouring positions apart.
    """

    def __init__(self, width: int, theta: float, **kwargs: object) -> None:
        super().__init__(autocast=False, **kwargs)
        exact = "float64" if self.compute_dtype == "float64" else "float32"
        self.frequencies = rotary_frequencies(width, theta, exact)

    def call(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = ops.cast(position_ids, self.frequencies.dtype.name)[..., None] * self.frequencies
        angles = jnp.concatenate([angles, angles], axis=-1)
        return ops.cast(jnp.cos(angles), self.compute_dtype), ops.cast(jnp.sin(angles), self.compute_dtype)


def turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Heads (..., N, D) turned in the planes of the k-th and the (k + D / 2)-th feature."""
    first, second = jnp.split(x, 2, axis=-1)
    return x * cosines + jnp.concatenate([-second, first], axis=-1) * sines
