"""Find from values in which order axes were flattened before a layer.

Both inputs are recorded, each as flattened by its own code. Each pair of axis orders defines a rearrangement; the table
should state the pair that maps PyTorch's input to the port's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from math import prod

import numpy as np

from wdport.compare.calls import Call, ExpectedCall, leaves
from wdport.compare.layouts import Layout
from wdport.compare.relations import same
from wdport.compare.taps import Tap
from wdport.mapping.axes import AxisError, Rule
from wdport.mapping.kinds import KINDS
from wdport.mapping.rearrange import apply_rule
from wdport.models.interface import Array

MOST_AXES = 4
"""Maximum number of flattened axes of which all orders are tried."""

Sizes = Mapping[str, int]


def flatten_order(tap: Tap, port_call: Call, answers: Mapping[str, ExpectedCall], taps: Sequence[Tap]) -> list[str]:
    """The ``flatten`` under which the inputs of the layer of ``tap``, whose call in the port is ``port_call``, agree
    with the reference's: one sentence, or none.

    Axes that the table does not state are those of a layer among ``taps`` with as many output values.
    """
    expected, arrays = answers.get(tap.candidate), leaves(list(port_call.inputs))
    if expected is None or tap.kind not in KINDS or not KINDS[tap.kind].flattens or len(arrays) != 1:
        return []
    if 0 not in expected.inputs or np.shape(arrays[0]) != np.shape(expected.inputs[0]):
        return []
    ours, laid = np.asarray(arrays[0]), np.asarray(expected.inputs[0])
    if (stated := _stated(tap.layout, laid)) is not None:
        rule, sizes = stated
        theirs = apply_rule(rule.inverse(), [laid], dict(sizes))[0]
        flat = tuple(rule.source.groups[-1]), tuple(rule.target.groups[-1])
        flatten = agreeing(theirs, ours, {name: sizes[name] for name in flat[1]}, flat)
        return [f'flatten "{flatten}" agrees where "{_text(*flat)}" does not'] if flatten else []
    for axis_sizes in _output_sizes(answers, taps, laid.shape[-1]) if laid.ndim == 2 else ():
        if flatten := agreeing(laid, ours, axis_sizes, (tuple(axis_sizes), tuple(axis_sizes))):
            size_text = ", ".join(f"{name}: {size}" for name, size in list(axis_sizes.items())[:-1])
            return [f'flatten "{flatten}" agrees, with sizes {{{size_text}}}; the table states none']
    return []


def agreeing(theirs: Array, ours: Array, sizes: Sizes, first: tuple[Sequence[str], Sequence[str]]) -> str:
    """The orders under which ``theirs`` (..., n) equals ``ours``, such as ``w h c -> h w c``; "" if there are none.

    The orders nearest to ``first``, PyTorch's and Keras's, are tried first.
    """
    if prod(sizes.values()) != theirs.shape[-1] or len(sizes) > MOST_AXES:
        return ""
    # The first that agrees wins; orders near the stated one come first, since equal sizes make several agree.
    for source, target in _orders(sizes, first):
        split = theirs.reshape(*theirs.shape[:-1], *(sizes[name] for name in source))
        lead = theirs.ndim - 1
        axes = [*range(lead), *(lead + source.index(name) for name in target)]
        if same(split.transpose(axes).reshape(ours.shape), ours):
            return _text(source, target)
    return ""


def _orders(sizes: Sizes, first: tuple[Sequence[str], Sequence[str]]) -> Iterator[tuple[tuple[str, ...], ...]]:
    every = list(permutations(sizes))
    for target in sorted(every, key=lambda order: order != tuple(first[1])):
        for source in sorted(every, key=lambda order: order != tuple(first[0])):
            yield source, target


def _text(source: Sequence[str], target: Sequence[str]) -> str:
    return f"{' '.join(source)} -> {' '.join(target)}"


def _stated(layout: Layout, laid: Array) -> tuple[Rule, dict[str, int]] | None:
    """The table's rule for a flattened input, and the sizes of its axes."""
    for rule in layout.inputs:
        if rule.source.any_axes or len(rule.target.groups) != laid.ndim or len(rule.target.groups[-1]) < 2:
            continue
        try:
            return rule, rule.inverse().sizes([laid.shape], [laid.shape], layout.sizes)
        except AxisError:
            continue
    return None


def _output_sizes(answers: Mapping[str, ExpectedCall], taps: Sequence[Tap], count: int) -> Iterator[Sizes]:
    """Axes, by name in the port's order, of layer outputs with ``count`` values per sample."""
    previous = []
    for tap in (tap for tap in taps if tap.candidate in answers):
        for shape in {tuple(np.shape(array)) for array in answers[tap.candidate].outputs}:
            for rule in tap.layout.outputs:
                names = [group[0] for group in rule.target.groups if len(group) == 1]
                if len(names) != len(shape) or len(shape) < 3 or prod(shape[1:]) != count:
                    continue
                sizes = dict(zip(names[1:], shape[1:], strict=True))
                if sizes not in previous:
                    previous.append(sizes)
                    yield sizes
