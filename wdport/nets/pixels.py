"""Pixels from -1 to 1 as bytes, computed on the device."""

from __future__ import annotations

import jax.numpy as jnp

from wdport.model import KerasTensor as Tensor
from wdport.nets.precision import wide


def to_bytes(x: Tensor, truncate: bool = False) -> Tensor:
    """Values from -1 to 1, clipped, as uint8 from 0 to 255: the nearest of the 256 levels.

    ``truncate`` drops the fraction, as a plain cast does: images get darker by half a level on average, and only an
    exact 1 gives 255.
    """
    scaled = jnp.clip((wide(x) + 1.0) * 127.5, 0.0, 255.0)
    return (scaled if truncate else jnp.round(scaled)).astype(jnp.uint8)
