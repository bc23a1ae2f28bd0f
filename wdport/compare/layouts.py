"""Convert activations of the reference to the port's layout: axes are moved by name, never reshaped only by size.

A table states the axes of a layer's activations in the language of its rules (``b c h w -> b h w c``); inputs and
outputs of the network state theirs. Other arrays stay unchanged, or have their last axis divided, as for heads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from wdport.compare.calls import Call, ExpectedCall, leaves
from wdport.mapping.axes import AxisError, Rule, Shape, parse_rule
from wdport.mapping.kinds.windows import PADDING_MODES
from wdport.mapping.rearrange import apply_rule
from wdport.models.interface import Array, Signature

Shapes = Sequence[Shape]

AFTER: Mapping[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: _in_dtype(special.expit, x),
    "tanh": np.tanh,
    "silu": lambda x: x * _in_dtype(special.expit, x),
    "gelu": lambda x: x * _in_dtype(special.ndtr, x),
    "softmax": lambda x: _in_dtype(lambda y: special.softmax(y, axis=-1), x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "relu6": lambda x: np.clip(x, 0, 6),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3))),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_silu": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "log_softmax": lambda x: _in_dtype(lambda y: special.log_softmax(y, axis=-1), x),
}
"""Functions that a table may state after a module of the reference within one layer of the port."""


def _in_dtype(function: Callable[[Array], Array], values: Array) -> Array:
    # In float64, and rounded once: scipy computes float32 arrays in float32.
    return np.asarray(function(values.astype(np.float64))).astype(values.dtype)


@dataclass(frozen=True)
class Layout:
    """The layout of one tap's activations in the port: rules for its inputs and for its outputs, of which the first
    that fits is used. ``after`` names a function that follows the reference's module, ``sizes`` are axis sizes that no
    shape determines, ``padded`` is the padding that the port may have applied to the input before the layer: a key of
    :data:`PADDING_MODES`, or one of :attr:`wdport.mapping.kinds.kind.Kind.padded`.

    If ``cropped``, the port may crop the output in a following layer; ``before`` is how much PyTorch's layer crops in
    front along each spatial axis, if known.

    With ``outputs_only`` the layer is the last of several that correspond to one module of the reference, so it is fed
    by the one before it; :func:`fed_in_port` gives the inputs of the first.
    """

    inputs: tuple[Rule, ...] = ()
    outputs: tuple[Rule, ...] = ()
    after: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    padded: str = ""
    outputs_only: bool = False
    cropped: bool = False
    before: tuple[int, ...] = ()


def axes(text: str) -> Rule:
    """The rule of ``b c h w -> b h w c``."""
    return parse_rule(text, text)


def stated_rules(signature: Signature, count: int) -> list[Rule | None]:
    """The rules that are stated for each of the outputs of the reference; raises ``ValueError`` if there are others."""
    texts = [port.axes for port in signature.outputs]
    if not any(texts):
        return [None] * count
    if len(texts) != count:
        raise ValueError(f"{count} outputs where {len(texts)} are stated")
    return [axes(text) if text else None for text in texts]


def output_laid_out(array: Array, shape: Shape, rules: Sequence[Rule], stated: Rule | None) -> Array:
    """Convert an output of the reference to the port's ``shape``, by the rule that is ``stated`` or by one that fits;
    raises ``ValueError`` if it does not fit."""
    if stated is None:
        return laid_out(array, shape, rules, exact=True)
    return apply_rule(stated, [array], stated.sizes([array.shape], [shape], {}))[0]


def laid_out(
    array: Array, shape: Shape, rules: Sequence[Rule], sizes: Mapping[str, int] | None = None, exact: bool = False
) -> Array:
    """Convert an array of the reference to the port's ``shape``; raises ``ValueError`` if it does not fit. If
    ``exact``, the axes are the same, or channels are second on one side and last on the other, unless a rule states how
    they differ."""
    for rule in rules:
        try:
            axis_sizes = rule.sizes([array.shape], [shape], sizes or {})
        except AxisError:
            continue
        return apply_rule(rule, [array], axis_sizes)[0]
    if array.shape == (1, *shape) and not exact:
        return np.asarray(array[0])  # the state of one recurrent layer
    if shape == (1, *array.shape) and not exact:
        return array[np.newaxis]  # a batch of one, where PyTorch's layer takes none
    if array.shape != shape and array.ndim == len(shape) > 2:
        # Channels second on one side and last on the other, which no input's axes state.
        for second, last in ((1, -1), (-1, 1)):
            if np.moveaxis(array, second, last).shape == shape:
                return np.moveaxis(array, second, last)
    if array.ndim == len(shape) and all(a == b or 1 in (a, b) for a, b in zip(array.shape, shape, strict=True)):
        return array  # the same shape, or what differs by a broadcast
    shared = min(array.ndim, len(shape)) - 1
    if exact or array.ndim == len(shape) or array.size != np.prod(shape) or array.shape[:shared] != shape[:shared]:
        raise ValueError(f"shape {array.shape} where the port has {shape}")
    return array.reshape(shape)


def moved(array: Array, rank: int, rules: Sequence[Rule]) -> Array:
    """Move the axes of an array whose sizes are not the port's into the port's order, by the first rule that its own
    shape determines. Raises ``ValueError`` if there is none."""
    for rule in rules:
        names = [group[0] for group in rule.source.groups if len(group) == 1]
        if len(names) == array.ndim == len(rule.source.groups) == len(rule.target.groups) == rank:
            sizes = dict(zip(names, array.shape, strict=True))
            return laid_out(array, rule.target.shape(sizes), [rule])
    if array.ndim != rank:
        raise ValueError(f"{array.ndim} axes where the port has {rank}")
    return array


def margins(array: Array, shape: Shape, rules: Sequence[Rule]) -> list[int] | None:
    """How much larger than the reference's input the port's input of this shape is along every axis; negative numbers
    if it is smaller, ``None`` if it is neither."""
    try:
        placed = moved(array, len(shape), rules)
    except ValueError:
        return None
    more = [target - size for target, size in zip(shape, placed.shape, strict=True)]
    return more if min(more) == 0 < max(more) or min(more) < 0 == max(more) else None


def in_port(
    call: Call, layout: Layout, shapes: tuple[Shapes, Shapes], names: Sequence[str] = (), strict: bool = True,
    masks: Collection[int] = (),
) -> ExpectedCall:  # fmt: skip
    """Convert a call of the reference to the port's layout, given the flat shapes of the inputs and outputs, and the
    names and masks of the inputs, of the port's call.

    Raises ``ValueError`` if counts do not fit, or, if ``strict``, shapes.
    """
    inputs = {} if layout.outputs_only else fed_in_port(call, layout, shapes[0], names, strict, masks)
    arrays = _chosen(leaves(list(call.outputs)), shapes[1])
    if layout.after:
        arrays = [AFTER[layout.after](array) for array in arrays]
    single = layout.cropped and len(arrays) == 1
    uncropped = _uncropped(arrays[0], tuple(shapes[1][0]), layout) if single else None
    if uncropped is not None:
        return ExpectedCall(inputs, len(shapes[0]), (uncropped[0],), call.caller, uncropped[1])
    pairs = zip(arrays, shapes[1], strict=True)
    outputs = tuple(_fitted(array, shape, layout.outputs, layout, strict) for array, shape in pairs)
    return ExpectedCall(inputs, len(shapes[0]), outputs, call.caller)


def _uncropped(array: Array, shape: Shape, layout: Layout) -> tuple[Array, tuple[slice, ...]] | None:
    """An output of the reference within zeros of the port's ``shape``, and where it is; ``None`` if the port's layer
    has its size. If the cropping is not known, it is what the sizes require: the same at both ends, or one more
    at the start, as PyTorch's ``output_padding`` of one leaves it."""
    try:
        placed = moved(array, len(shape), layout.outputs)
    except ValueError:
        return None
    first = 1 if layout.outputs else 2  # channels last, or the reference's own order
    spatial = range(first, first + len(shape) - 2)
    unequal = {axis for axis, sizes in enumerate(zip(shape, placed.shape, strict=True)) if sizes[0] != sizes[1]}
    if not unequal or not unequal.issubset(spatial):
        return None
    window, source = [slice(None)] * len(shape), [slice(None)] * len(shape)
    for axis in spatial:
        more = shape[axis] - placed.shape[axis]
        before = layout.before[axis - first] if layout.before else (max(more, 0) + 1) // 2
        count = min(placed.shape[axis], shape[axis] - before)
        if count < 1:
            return None
        window[axis], source[axis] = slice(before, before + count), slice(count)
    padded = np.zeros(shape, placed.dtype)
    padded[tuple(window)] = placed[tuple(source)]
    return padded, tuple(window)


def fed_in_port(
    call: Call, layout: Layout, shapes: Shapes, names: Sequence[str] = (), strict: bool = True,
    masks: Collection[int] = (),
) -> dict[int, Array]:  # fmt: skip
    """The inputs of a call of the reference in the port's layout, by their position among the port's inputs; ``names``
    and ``masks`` are those of the port's, see :func:`leaf_names` and :func:`mask_places`.

    Inputs are matched by name if both sides name all of theirs and share several, or all of the port's, otherwise by
    position; those that only one side has are left out. So are masks without a common name or of different sizes, since
    each library has its own forms, and the layer's output shows a wrong one. An array that the reference was given
    several times, as in self-attention, the port may take once, and the other way round. Positions, as whole numbers or
    as several arrays in one argument, such as their cosines and sines, the port may compute itself. The port may pad
    before the layer what PyTorch's layer pads itself, and its layer what PyTorch pads before: such an input is left out
    if the padding is not known, since the layer's output is compared.
    """
    arrays = leaves(list(call.inputs))
    # Names first: Keras's MultiHeadAttention takes query, value, key, PyTorch's query, key, value, of equal shapes.
    order = matched(leaf_names(call), names, len(arrays), len(shapes))
    if order is None:
        order = _matched_by_place(arrays, len(shapes), mask_places(call), masks)
    if order is None:
        spare = {place for place, name in enumerate(leaf_names(call)) if name.endswith("]")}
        spare |= {place for place, array in enumerate(arrays) if np.asarray(array).dtype.kind in "iu"}
        order = _matched_by_place(arrays, len(shapes), mask_places(call) | spare, masks) if spare else None
    if order is None:
        raise ValueError(f"{len(arrays)} inputs where the port has {len(shapes)}")
    inputs, theirs_masks = {}, mask_places(call)
    for theirs, ours in order:
        array, shape = np.asarray(arrays[theirs]), tuple(shapes[ours])
        if theirs in theirs_masks and ours in masks and sorted(array.shape) != sorted(shape):
            continue
        more = margins(array, shape, layout.inputs) if layout.padded else None
        # An odd difference may be padded on either side, so the padding is not known.
        even = more is not None and min(more) == 0 and not any(extra % 2 for extra in more)
        if more is None or (min(more) == 0 and not even and layout.padded != "any"):
            inputs[ours] = _fitted(array, shape, layout.inputs, layout, strict)
        elif even and layout.padded in PADDING_MODES:
            apart = [(extra // 2, extra // 2) for extra in more]
            mode: Any = PADDING_MODES[layout.padded]
            inputs[ours] = np.pad(moved(array, len(shape), layout.inputs), apart, mode)
    return inputs


def _fitted(array: Array, shape: Shape, rules: Sequence[Rule], layout: Layout, strict: bool) -> Array:
    try:
        return laid_out(np.asarray(array), tuple(shape), rules, layout.sizes)
    except ValueError:
        if strict:
            raise
        return moved(np.asarray(array), len(shape), rules)


def leaf_names(call: Call) -> tuple[str, ...]:
    """A name for every array that a call is given: that of its argument, with its place if the argument holds several;
    empty if the names are not known."""
    if len(call.names) != len(call.inputs):
        return ()
    counts = [(name, len(leaves(value))) for name, value in zip(call.names, call.inputs, strict=True)]
    return tuple(name and (f"{name}[{position}]" if count > 1 else name)
                 for name, count in counts for position in range(count))  # fmt: skip


def matched(theirs: Sequence[str], ours: Sequence[str], count: int, port_count: int) -> list[tuple[int, int]] | None:
    """Pairs of positions of inputs with corresponding names; ``None`` if the names do not determine them."""
    if theirs and ours and all(theirs) and all(ours) and len(theirs) == count and len(ours) == port_count:
        both = [(theirs.index(name), position) for position, name in enumerate(ours) if name in theirs]
        if len(both) > 1 or len(both) == len(ours) < len(theirs):
            return both
    return None


def mask_places(call: Call) -> frozenset[int]:
    """The positions of a call's inputs that are masks: arrays of bool, and arguments named so."""
    arrays = leaves(list(call.inputs))
    names = leaf_names(call) or [""] * len(arrays)
    pairs = enumerate(zip(arrays, names, strict=True))
    return frozenset(position for position, (array, name) in pairs if array.dtype == bool or name.endswith("mask"))


def _matched_by_place(
    arrays: Sequence[Array], port_count: int, theirs: Collection[int], ours: Collection[int]
) -> list[tuple[int, int]] | None:
    """Pairs of positions of inputs in their order, without the masks if other inputs remain on both sides and fit."""
    counted = ((len(arrays), theirs), (port_count, ours))
    places = [[place for place in range(count) if place not in masks] for count, masks in counted]
    for left, right in (places, [list(range(len(arrays))), list(range(port_count))]):
        if len(left) != len(right):  # the port may take bitwise equal arrays once
            left = [place for n, place in enumerate(left)
                    if not any(_equal(arrays[place], arrays[one]) for one in left[:n])]  # fmt: skip
            left = left * len(right) if len(left) == 1 else left  # or the same array several times
        if left and len(left) == len(right):
            return list(zip(left, right, strict=True))
    return None if arrays or port_count else []


def _equal(first: Array, second: Array) -> bool:
    return first is second or (np.shape(first) == np.shape(second) and bool(np.array_equal(first, second)))


def _chosen(outputs: list[Array], shapes: Shapes) -> list[Array]:
    """Select the outputs of a recurrent layer: of its sequence (B, T, H) and last states (layers * ways, B, H), the
    port may return the sequence or the last step, and after it, as Keras does, the states of each way of the last
    layer."""
    if outputs and len(outputs) + 1 == len(shapes) and set(map(np.shape, outputs)) == set(map(tuple, shapes)):
        return [outputs[0], *outputs]  # a cell of Keras returns its output and its states, the first of which equals it
    if len(outputs) > len(shapes) == 1 and np.ndim(outputs[0]) == len(shapes[0]) == 3:
        return outputs[:1]  # also of an attention that returns its weights
    states = [np.asarray(output) for output in outputs[1:]]
    recurrent = bool(states) and {array.ndim for array in (outputs[0], *states)} == {3}
    if (
        recurrent
        and shapes
        and len(shapes[0]) in (2, 3)
        and {len(shape) for shape in shapes[1:]} <= {2}
        and (len(shapes) - 1) % len(states) == 0
    ):
        ways = (len(shapes) - 1) // len(states) or max(shapes[0][-1] // states[0].shape[-1], 1)
        if ways <= len(states[0]):
            last = [array[-ways:] for array in states]
            first = outputs[0] if len(shapes[0]) == 3 else np.concatenate(list(last[0]), axis=-1)
            return [first, *(array[way] for way in range(ways) for array in last)][: len(shapes)]
    if len(outputs) == len(shapes):
        return outputs
    raise ValueError(f"{len(outputs)} outputs where the port has {len(shapes)}")
