"""Compute relative float64 errors per tap from the calls of both sides, in the port's layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf

import numpy as np

from wdport.compare.bounds import FLOAT32_SHARE
from wdport.compare.calls import Call, Calls, Case, Expected, Outputs, leaves
from wdport.compare.findings import OUTPUT
from wdport.compare.layouts import fed_in_port, in_port, laid_out, leaf_names, mask_places
from wdport.compare.measure import float32_share, one_magnitude, relative_l2, sample_errors
from wdport.compare.relations import arrangement, same
from wdport.compare.taps import Tap
from wdport.mapping.axes import Rule
from wdport.model import Array
from wdport.recorder import TINY, inside


class InPort:
    """Converts the reference's calls to the port's layout; ``shapes`` are calls of the port, for their shapes.

    ``misfits`` describes shapes of a tap's call that do not fit, by the tap's reference; ``misfed`` are the taps whose
    inputs already do not.
    """

    def __init__(self, taps: Sequence[Tap], shapes: Calls) -> None:
        self._taps, self._shapes = taps, shapes
        self.misfits: dict[str, str] = {}
        self.misfed: set[str] = set()

    def __call__(self, calls: Calls) -> dict[str, Expected]:
        """The converted calls by the candidate's name."""
        found = {}
        for tap in self._taps:
            call, own = calls.get(tap.reference), self._shapes.get(tap.candidate)
            if call is None or own is None:
                continue
            names, masks = leaf_names(own), mask_places(own)
            given, made = ([tuple(leaf.shape) for leaf in leaves(list(side))] for side in (own.inputs, own.outputs))
            try:
                found[tap.candidate] = in_port(call, tap.layout, (given, made), names, masks=masks)
            except ValueError as error:
                self.misfits[tap.reference] = str(error)
                try:
                    fed_in_port(call, tap.layout, given, names, masks=masks)
                except ValueError:
                    self.misfed.add(tap.reference)
                with suppress(ValueError):  # so that what is behind the layer can still be looked at by itself
                    found[tap.candidate] = in_port(call, tap.layout, (given, made), names, False, masks)
            if (first := self._shapes.get(tap.fed)) is not None:
                with suppress(ValueError):
                    found[tap.fed] = _fed_alone(call, tap, first)
        return found


def _fed_alone(call: Call, tap: Tap, first: Call) -> Expected:
    """The expected inputs of the first layer of a stack; its outputs have no counterpart in the reference."""
    shapes = [tuple(leaf.shape) for leaf in leaves(list(first.inputs))]
    inputs = fed_in_port(call, tap.layout, shapes, leaf_names(first), masks=mask_places(first))
    return Expected(inputs, len(shapes), (), call.caller)


def outputs_in_port(
    outputs: Outputs, names: Sequence[str], shapes: Sequence[Array], wanted: Sequence[str], rules: Sequence[Rule]
) -> Outputs:
    """Convert the reference's outputs to the order and layout of the port's, whose names are ``wanted``.

    Raises ``ValueError`` if count or shapes do not fit.
    """
    if len(outputs) != len(shapes):
        raise ValueError(f"{len(outputs)} outputs where the port has {len(shapes)}")
    order = list(range(len(outputs)))
    if wanted and sorted(wanted) == sorted(names):
        order = [list(names).index(name) for name in wanted]
    pairs = zip(order, shapes, strict=True)
    return tuple(laid_out(outputs[at], tuple(shape.shape), rules) for at, shape in pairs)


def fed(own: Call, expected: Expected) -> list[tuple[Array, Array]] | None:
    """Pairs of actual and expected inputs of a layer of the port; ``None`` if their numbers differ."""
    given = leaves(list(own.inputs))
    if len(given) != expected.count:
        return None
    return [(np.asarray(given[at]), right) for at, right in expected.inputs.items()]


def made(tap: Tap, own: Call, expected: Expected) -> list[tuple[Array, Array]] | None:
    """Pairs of actual and expected outputs of a layer of the port; ``None`` if their numbers differ."""
    if len(own.outputs) != len(expected.outputs):
        return None
    ours, theirs = (comparable(tap, expected.cropped(side)) for side in (own.outputs, expected.outputs))
    return list(zip(ours, theirs, strict=True))


def floors_of(case: Case) -> tuple[float, ...]:
    """By sample of a case with extreme values, the floor of :func:`~wdport.compare.measure.sample_errors`: behind a
    norm, a sample of zeros holds nothing but rounding errors. Empty for other cases."""
    return tuple({"zeros": 1.0, "constant": 1.0, "small": TINY}.get(each, 0.0) for each in case.extremes)


def tap_errors(
    tap: Tap, candidate: Calls, expected: Mapping[str, Expected], floors: Sequence[float] = ()
) -> tuple[float, float] | None:
    """Relative errors of a tap's inputs and outputs; ``None`` if one side did not run it."""
    own, call = candidate.get(tap.candidate), expected.get(tap.candidate)
    if own is None or call is None:
        return None
    first, right = candidate.get(tap.fed), expected.get(tap.fed)
    before = _largest(fed(first, right), floors) if first is not None and right is not None else 0.0
    return max(before, _largest(fed(own, call), floors)), _largest(made(tap, own, call), floors)


def rearranged(tap: Tap, candidate: Calls, expected: Mapping[str, Expected], reference: Calls) -> str | None:
    """How a tap's arrays are rearrangements of the reference's, or differ only at steps that a mask leaves out; "" if
    they are equal, ``None`` if they are neither.

    ``reference`` are the reference's calls in its own layout, for shapes that differ from the port's.
    """
    own, call, theirs = candidate.get(tap.candidate), expected.get(tap.candidate), reference.get(tap.reference)
    if own is None or theirs is None:
        return None
    found = ""
    if call is not None:
        inputs, outputs = fed(own, call), made(tap, own, call)
    else:
        sides = [[leaves(list(each.inputs)), leaves(list(each.outputs))] for each in (own, theirs)]
        if [len(each) for each in sides[0]] != [len(each) for each in sides[1]]:
            return None
        inputs, outputs = (list(zip(*each, strict=True)) for each in zip(*sides, strict=True))
    if inputs is None or outputs is None:
        return None
    masks = [*(each.mask for each in candidate.values() if each.mask is not None), *_seeing(reference)]
    for c, r in [*inputs, *outputs]:
        how = arrangement(*_alike(np.asarray(c), np.asarray(r)))
        if how is None and any(_counted_alike(np.asarray(c), np.asarray(r), mask) for mask in masks):
            how = "at steps that a mask leaves out"
        if how is None:
            return None
        found = found or how
    return found


def _seeing(reference: Calls) -> Iterator[Array]:
    """For every attention of the reference, the queries (B, L) that see a key in all heads, if some do not."""
    for name, call in reference.items():
        out, masks = reference.get(inside(name, "out")), dict(zip(call.names, call.inputs, strict=False))
        attended, padded = (masks.get(each) for each in ("attn_mask", "key_padding_mask"))
        if out is None or (attended is None and padded is None):
            continue
        count, length = np.shape(out.inputs[0])[:2]
        hidden = np.zeros((1, 1, length, 1), bool)
        if attended is not None:
            shape = (count, -1) if np.ndim(attended) == 3 else (1, 1)
            hidden = hidden | _hides(attended).reshape(*shape, *np.shape(attended)[-2:])
        if padded is not None:
            hidden = hidden | _hides(padded)[:, None, None]
        sees = np.broadcast_to(~np.any(np.all(hidden, -1), 1), (count, length))
        if not sees.all():
            yield sees


def _hides(mask: object) -> Array:
    """Where a mask of PyTorch's attention hides a key."""
    array = np.asarray(mask)
    return array if array.dtype == bool else np.isneginf(array)


def _counted_alike(candidate: Array, reference: Array, mask: Array) -> bool:
    """Whether two arrays (B, T, ...) agree at the steps that a mask (B, T) counts."""
    if candidate.shape != reference.shape or candidate.shape[:2] != mask.shape:
        return False
    return bool(mask.any()) and same(candidate[mask], reference[mask])


def _alike(candidate: Array, reference: Array) -> tuple[Array, Array]:
    """Both arrays with the same number of axes, if one has a separate axis for heads."""
    if candidate.ndim != reference.ndim and min(candidate.ndim, reference.ndim) > 2:
        return candidate.reshape(*candidate.shape[:2], -1), reference.reshape(*reference.shape[:2], -1)
    return candidate, reference


def comparable(tap: Tap, outputs: Sequence[Array]) -> list[Array]:
    """Outputs of either side without the part that the tap leaves open."""
    return [array - array.mean(axis=1, keepdims=True) for array in outputs] if tap.shift else list(outputs)


def _largest(pairs: Sequence[tuple[Array, Array]] | None, floors: Sequence[float]) -> float:
    if pairs is None:
        return inf
    return max((_error(c, r, floors) for c, r in pairs), default=0.0)


def _error(candidate: Array, reference: Array, floors: Sequence[float]) -> float:
    if candidate.shape != reference.shape:
        return inf
    whole = relative_l2(candidate, reference)
    return max(whole, sample_errors(candidate, reference, floors)) if floors else whole


def narrowed(call: Call) -> float:
    """The share of outputs that float32 holds exactly, if the layer's inputs are wider; an embedding's are its
    weights, as are those of a norm over one channel, which all have one magnitude."""
    floats = [leaf for leaf in leaves(list(call.inputs)) if np.asarray(leaf).dtype.kind == "f"]
    if not any(float32_share(np.asarray(leaf)) <= FLOAT32_SHARE for leaf in floats):
        return 0.0
    return max((float32_share(part) for part in call.outputs if not one_magnitude(part)), default=0.0)


def output_errors(outputs: Outputs, reference: Outputs, floors: Sequence[float] = ()) -> list[float]:
    """Relative errors of outputs; infinite where shapes differ."""
    return [_error(c, r, floors) for c, r in zip(outputs, reference, strict=True)]


def output_names(known: Sequence[Sequence[str]], count: int) -> tuple[str, ...]:
    """Names of the port's outputs in results: the first of the ``known`` lists that names all of them."""
    if count == 1:
        return (OUTPUT,)
    chosen = next((names for names in known if len(names) == count and all(names)), range(count))
    return tuple(f"{OUTPUT}.{name}" for name in chosen)
