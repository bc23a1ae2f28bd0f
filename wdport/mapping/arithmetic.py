"""Arithmetic on weights: several source tensors that become one by a sum or by weight normalisation.

It is separate from rules, which only move values. The result is computed in float64 from the stored values and rounded
once, when it is written; the inverse is a choice, stated here, and does not restore the stored bits:

* ``sum`` (two biases of a PyTorch LSTM): the inverse is the whole value and zeros;
* ``weight_norm`` (``torch.nn.utils.weight_norm``: a magnitude g and a direction v, w = g * v / ||v||): the inverse is
  the norm of w as magnitude, and w as direction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wdport.mapping.arrays import Array
from wdport.mapping.axes import AxisError, Combine, Shape


def combined_shape(combine: Combine, shapes: Sequence[Shape]) -> Shape:
    """Return the shape of the combined tensor; raises :class:`AxisError` if the sources do not fit."""
    if combine == "weight_norm":
        magnitude, direction = shapes
        lengths = [size for size in magnitude if size != 1]
        ranks = len(magnitude) in (0, len(direction))
        if not ranks or len(lengths) > 1 or any(g not in (1, v) for g, v in zip(magnitude, direction, strict=False)):
            raise AxisError(f"a magnitude of shape {magnitude} does not go with a direction of shape {direction}")
        return direction
    if len(set(shapes)) != 1:
        raise AxisError(f"tensors of shapes {', '.join(map(str, shapes))} cannot be added")
    return shapes[0]


def combined(combine: Combine, sources: Sequence[Array]) -> Array:
    """Return the combined tensor in float64."""
    exact = [source.astype(np.float64) for source in sources]
    if combine == "weight_norm":
        magnitude, direction = exact
        return np.asarray(magnitude * direction / _norm(direction, magnitude.shape))
    return np.asarray(sum(exact[1:], exact[0]))


def separated(combine: Combine, tensor: Array, shapes: Sequence[Shape]) -> list[Array]:
    """Return sources of these shapes that combine to ``tensor`` up to rounding, in its dtype."""
    if combine == "weight_norm":
        magnitude = _norm(tensor.astype(np.float64), shapes[0]).reshape(shapes[0])
        return [magnitude.astype(tensor.dtype), tensor]
    return [tensor, *(np.zeros_like(tensor) for _ in shapes[1:])]


def _norm(direction: Array, magnitude: Shape) -> Array:
    """Return the norm over all axes except the one where the magnitude's shape is not 1."""
    axes = tuple(range(direction.ndim))
    remaining = tuple(axis for axis in axes if magnitude and magnitude[axis] != 1)
    over = tuple(axis for axis in axes if axis not in remaining)
    return np.asarray(np.sqrt(np.sum(np.square(direction), axis=over, keepdims=True)))
