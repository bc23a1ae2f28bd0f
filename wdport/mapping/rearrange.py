"""Apply rules to arrays: rearrange source arrays into target arrays, bit for bit, in either direction; sums and
weight normalisation.

One function serves both directions, because the inverse of a rule is a rule. Rules only move values; arithmetic is
computed in float64 from the stored values and rounded once, when it is written. Its inverse is a choice, stated here,
and does not restore the stored bits:

* ``sum`` (two biases of a PyTorch LSTM): the inverse is the whole value and zeros;
* ``weight_norm`` (``torch.nn.utils.weight_norm``: a magnitude g and a direction v, w = g * v / ||v||): the inverse is
  the norm of w as magnitude, and w as direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdport.mapping.axes import AxisError, Combine, ExpressionSide, Rule, Shape

Array = NDArray[Any]


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
    # In float64 and not in the stored dtype: the only rounding is the one when the result is written.
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
    # A magnitude without axes (dim=None) is the norm of the whole tensor.
    over = tuple(axis for axis in axes if axis not in remaining)
    return np.asarray(np.sqrt(np.sum(np.square(direction), axis=over, keepdims=True)))


def apply_rule(rule: Rule, sources: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
    """Rearrange ``sources`` (one array, or one per index of the stacked axis) into target arrays.

    ``sizes`` are the axis sizes from :meth:`wdport.mapping.axes.Rule.sizes`. The results are C-contiguous; they share
    memory with the sources if no values have to move.
    """
    if rule.source.any_axes:
        # Not ascontiguousarray, which turns an array without axes into one of shape (1,).
        return [np.require(sources[0], requirements="C")]
    split = [array.reshape([sizes[n] for group in rule.source.groups for n in group]) for array in sources]
    names = [name for group in rule.source.groups for name in group]
    stacked = np.stack(split) if rule.source.stacked else split[0]
    if rule.source.stacked:
        names.insert(0, rule.source.stacked)
    # Labels: the target's index reads the source's index of the same label.
    for name, order in rule.orders.items():
        stacked = np.take(stacked, order, axis=names.index(name))
    ordered = stacked.transpose([names.index(name) for name in rule.target.names])
    shape = rule.target.shape(sizes)
    parts = list(ordered) if rule.target.stacked else [ordered]
    return [np.ascontiguousarray(part).reshape(shape) for part in parts]


def rearrangement(
    rule: Rule, sizes: Mapping[str, int], sources: Sequence[Array], targets: Sequence[Array]
) -> Iterator[tuple[Array, Array]]:
    """Yield :func:`apply_rule` as copies without extra memory: (view of a target, view of a source) of the same shape.

    Sources may have any strides; targets are C-contiguous, and all pairs together fill them exactly once.
    """
    if rule.source.any_axes:
        yield targets[0], sources[0]
        return
    ours = [named_axes(target, rule.target, sizes) for target in targets]
    theirs = [named_axes(source, rule.source, sizes) for source in sources]
    fixed = [name for name in rule.target.names if name in (rule.source.stacked, rule.target.stacked, *rule.orders)]
    free = [name for name in rule.target.names if name not in fixed]
    for index in product(*(range(sizes[name]) for name in fixed)):
        here = dict(zip(fixed, index, strict=True))
        there = {name: rule.orders[name][n] if name in rule.orders else n for name, n in here.items()}
        yield _picked(rule.target, ours, here, free), _picked(rule.source, theirs, there, free)


def named_axes(array: Array, side: ExpressionSide, sizes: Mapping[str, int]) -> Array:
    """Return a view of one of a side's tensors with one axis per name; raises ``ValueError`` if a view is
    impossible."""
    # A silent copy would leave the target unwritten, so NumPy is asked to refuse it.
    return array.reshape(tuple(sizes[name] for group in side.groups for name in group), copy=False)


def _picked(side: ExpressionSide, arrays: Sequence[Array], indices: Mapping[str, int], free: Sequence[str]) -> Array:
    """Return the stacked index's array at these indices of other axes, with its ``free`` axes in this order."""
    array = arrays[indices[side.stacked]] if side.stacked else arrays[0]
    names = [name for group in side.groups for name in group]
    picked = array[tuple(indices[name] if name in indices else slice(None) for name in names)]
    left = [name for name in names if name not in indices]
    return picked.transpose([left.index(name) for name in free])


def copy_blocks(target: Array, source: Array, change: Callable[[Array], Array] | None = None) -> None:
    """Copy ``source`` to ``target``, of the same shape, in cache-sized blocks, each transformed by ``change``.

    Cache lines limit the speed of a transposition: copying 16 values of the target's last axis at a time is eight
    times as fast as copying all of it at once (0.3 to 2.5 GB/s, 4096 x 14336 of two bytes, into memory that was
    written before).
    """
    for block in _blocks(target, source):
        target[block] = source[block] if change is None else change(source[block])


def _blocks(target: Array, source: Array) -> Iterator[tuple[slice, ...]]:
    if not target.ndim or not target.size:
        yield ()
        return
    steps = list(target.shape)
    # The source jumps along the target's last axis: a block is then as narrow as a cache line.
    if abs(source.strides[-1]) != source.itemsize and target.shape[-1] > 1:
        steps[-1] = min(_LINE, steps[-1])
    for axis in range(target.ndim):  # the slowest axes are cut first
        if prod(steps) <= _BLOCK:
            break
        steps[axis] = max(1, min(steps[axis], _BLOCK * steps[axis] // prod(steps)))
    for start in product(*(range(0, size, step) for size, step in zip(target.shape, steps, strict=True))):
        yield tuple(slice(offset, offset + step) for offset, step in zip(start, steps, strict=True))


_LINE = 16
"""Values of the target's last axis that are written at a time if the source is strided along it."""

_BLOCK = 1 << 16
"""Values in a block, so that the result of ``change`` stays in a cache of 1 MiB."""
