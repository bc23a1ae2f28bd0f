"""Compute relative float64 errors per tap from the calls of both sides, in the port's layout."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from wdport.compare.calls import Call, Calls, Case, ExpectedCall, Outputs, leaves
from wdport.compare.findings import OUTPUT
from wdport.compare.gate_bounds import FLOAT32_SHARE
from wdport.compare.layouts import axes, fed_in_port, in_port, leaf_names, mask_places, output_laid_out, stated_rules
from wdport.compare.measure import float32_share, one_magnitude, relative_l2, sample_errors, wrong_samples
from wdport.compare.relations import arrangement, same
from wdport.compare.taps import Tap
from wdport.mapping.axes import Shape
from wdport.models.interface import Array, Signature
from wdport.recording.calls import inside
from wdport.recording.cases import TINY
from wdport.recording.sample_rows import by_sample, rows_of_sample


class InPort:
    """Converts the reference's calls to the port's layout; ``shapes`` are calls of the port, for their shapes.

    ``misfits`` describes shapes of a tap's call that do not fit, by the tap's reference; ``misfed`` are the taps whose
    inputs already do not.
    """

    def __init__(self, taps: Sequence[Tap], shapes: Calls) -> None:
        self._taps, self._shapes = taps, shapes
        self.misfits: dict[str, str] = {}
        self.misfed: set[str] = set()

    def __call__(self, calls: Calls) -> dict[str, ExpectedCall]:
        """The converted calls by the candidate's name."""
        converted = {}
        for tap in self._taps:
            call, port_call = calls.get(tap.reference), self._shapes.get(tap.candidate)
            if call is None or port_call is None:
                continue
            shapes = _shapes(port_call.inputs), _shapes(port_call.outputs)
            names, masks = leaf_names(port_call), mask_places(port_call)
            convert = partial(in_port, call, tap.layout, shapes, names, masks=masks)
            try:
                converted[tap.candidate] = convert()
            except ValueError as error:
                self.misfits[tap.reference] = str(error)
                try:
                    fed_in_port(call, tap.layout, shapes[0], names, masks=masks)
                except ValueError:
                    self.misfed.add(tap.reference)
                with suppress(ValueError):  # so that what follows the layer is still compared
                    converted[tap.candidate] = convert(strict=False)
            if (first := self._shapes.get(tap.fed)) is not None:
                with suppress(ValueError):
                    converted[tap.fed] = _fed_alone(call, tap, first)
        return converted


def _fed_alone(call: Call, tap: Tap, first: Call) -> ExpectedCall:
    """The expected inputs of the first layer of a stack; its outputs have no counterpart in the reference."""
    shapes = _shapes(first.inputs)
    inputs = fed_in_port(call, tap.layout, shapes, leaf_names(first), masks=mask_places(first))
    return ExpectedCall(inputs, len(shapes), (), call.caller)


def _shapes(side: Sequence[object]) -> list[Shape]:
    return [tuple(leaf.shape) for leaf in leaves(list(side))]


def outputs_in_port(
    outputs: Outputs, names: Sequence[str], shapes: Sequence[Array], port_names: Sequence[str], signature: Signature
) -> Outputs:
    """Convert the reference's outputs to the order and layout of the port's, whose names are ``port_names``.

    Raises ``ValueError`` if count, names, shapes or kinds of dtypes do not fit: unlike those of layers, these outputs
    are what other code uses.
    """
    if len(outputs) != len(shapes):
        raise ValueError(f"{len(outputs)} outputs where the port has {len(shapes)}")
    order = list(range(len(outputs)))
    # By name if both sides have names, or else by position.
    if port_names and names and all(names):
        if sorted(port_names) != sorted(names):
            raise ValueError(f"names {', '.join(sorted(names))} where the port has {', '.join(sorted(port_names))}")
        order = [list(names).index(name) for name in port_names]
    rules, stated = [axes(text) for text in signature.axes], stated_rules(signature, len(outputs))
    pairs = [(outputs[index], shape, stated[index]) for index, shape in zip(order, shapes, strict=True)]
    for output, shape, _ in pairs:
        if _kind(output) != _kind(shape):
            raise ValueError(f"dtype {output.dtype} where the port has {shape.dtype}")
    return tuple(output_laid_out(output, tuple(shape.shape), rules, rule) for output, shape, rule in pairs)


def _kind(array: Any) -> str:
    """Boolean, integer or floating-point; NumPy's bfloat16 is of a kind of its own."""
    return {"b": "boolean", "i": "integer", "u": "integer"}.get(np.dtype(array.dtype).kind, "floating-point")


def fed(port_call: Call, expected: ExpectedCall) -> list[tuple[Array, Array]] | None:
    """Pairs of actual and expected inputs of a layer of the port; ``None`` if their numbers differ."""
    inputs = leaves(list(port_call.inputs))
    if len(inputs) != expected.count:
        return None
    return [(np.asarray(inputs[index]), right) for index, right in expected.inputs.items()]


def made(tap: Tap, port_call: Call, expected: ExpectedCall) -> list[tuple[Array, Array]] | None:
    """Pairs of actual and expected outputs of a layer of the port; ``None`` if their numbers differ."""
    if len(port_call.outputs) != len(expected.outputs):
        return None
    ours, theirs = (comparable(tap, expected.cropped(side)) for side in (port_call.outputs, expected.outputs))
    return list(zip(ours, theirs, strict=True))


def floors_of(case: Case) -> tuple[float, ...]:
    """By sample of a case with extreme values, the floor of :func:`~wdport.compare.measure.sample_errors`: after a
    norm, a sample of zeros holds nothing but rounding errors. Empty for other cases."""
    return tuple({"zeros": 1.0, "constant": 1.0, "small": TINY}.get(extreme, 0.0) for extreme in case.extremes)


def without(floors: Sequence[float], samples: Collection[int]) -> tuple[float, ...]:
    """Floors with which these samples are left out."""
    return tuple(inf if index in samples else floor for index, floor in enumerate(floors))


def tap_errors(
    tap: Tap, candidate: Calls, expected: Mapping[str, ExpectedCall], floors: Sequence[float] = (),
    made_floors: Sequence[float] | None = None, ordinary: Mapping[str, ExpectedCall] = MappingProxyType({}),
) -> tuple[float, float] | None:  # fmt: skip
    """Relative errors of a tap's inputs and outputs; ``None`` if one side did not run it. ``floors`` are by sample, see
    :func:`floors_of`; those of the outputs may differ. ``ordinary`` are the calls on ordinary values, where all values
    are one sample."""
    port_call, call = candidate.get(tap.candidate), expected.get(tap.candidate)
    if port_call is None or call is None:
        return None
    first, right = candidate.get(tap.fed), expected.get(tap.fed)
    before = _largest(fed(first, right), floors) if first is not None and right is not None else 0.0
    made_floors = floors if made_floors is None else made_floors
    usual = ordinary.get(tap.candidate, ExpectedCall({}, 0, ()))
    sizes = norms([usual.inputs[index] for index in call.inputs if index in usual.inputs])
    made_sizes = norms(comparable(tap, usual.cropped(usual.outputs)))
    before = max(before, _largest(fed(port_call, call), floors, sizes))
    return before, _largest(made(tap, port_call, call), made_floors, made_sizes)


def wrong_samples_of(
    tap: Tap, candidate: Calls, expected: Mapping[str, ExpectedCall], floors: Sequence[float], bound: float
) -> set[int]:
    """The samples of the batch in which a tap's inputs or outputs are off by more than the bound; empty if that cannot
    be told."""
    port_call, call = candidate.get(tap.candidate), expected.get(tap.candidate)
    if port_call is None or call is None:
        return set()
    pairs = [*(fed(port_call, call) or []), *(made(tap, port_call, call) or [])]
    return set().union(*(wrong_samples(np.asarray(c), r, floors, bound) for c, r in pairs))


def rearranged(tap: Tap, candidate: Calls, expected: Mapping[str, ExpectedCall], reference: Calls) -> str | None:
    """How a tap's arrays are rearrangements of the reference's, or differ only at steps that a mask leaves out; "" if
    they are equal, ``None`` if they are neither.

    ``reference`` are the reference's calls in its own layout, for shapes that differ from the port's.
    """
    port_call, call, theirs = candidate.get(tap.candidate), expected.get(tap.candidate), reference.get(tap.reference)
    if port_call is None or theirs is None:
        return None
    first_relation = ""
    if call is not None:
        inputs, outputs = fed(port_call, call), made(tap, port_call, call)
    else:
        sides = [[leaves(list(side_call.inputs)), leaves(list(side_call.outputs))] for side_call in (port_call, theirs)]
        if [len(arrays) for arrays in sides[0]] != [len(arrays) for arrays in sides[1]]:
            return None
        inputs, outputs = (list(zip(*arrays, strict=True)) for arrays in zip(*sides, strict=True))
    if inputs is None or outputs is None:
        return None
    masks = [*(masked.mask for masked in candidate.values() if masked.mask is not None), *_seeing(reference)]
    for c, r in [*inputs, *outputs]:
        relation = arrangement(*_alike(np.asarray(c), np.asarray(r)))
        if relation is None and any(_counted_alike(np.asarray(c), np.asarray(r), mask) for mask in masks):
            relation = "at steps that a mask leaves out"
        if relation is None:
            return None
        first_relation = first_relation or relation
    return first_relation


def _seeing(reference: Calls) -> Iterator[Array]:
    """For every attention of the reference, the queries (B, L) that see a key in all heads, if some do not."""
    for name, call in reference.items():
        out, masks = reference.get(inside(name, "out")), dict(zip(call.names, call.inputs, strict=False))
        attended, padded = (masks.get(argument) for argument in ("attn_mask", "key_padding_mask"))
        if out is None or (attended is None and padded is None):
            continue
        count, length = np.shape(out.inputs[0])[:2]
        hidden = np.zeros((1, 1, length, 1), bool)
        if attended is not None:
            shape = (count, -1) if np.ndim(attended) == 3 else (1, 1)
            hidden = hidden | _hides(attended).reshape(*shape, *np.shape(attended)[-2:])
        if padded is not None:
            hidden = hidden | np.atleast_2d(_hides(padded))[:, None, None]
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
    # Softmax over the keys cancels a constant along the tokens, such as the bias of the keys.
    return [array - array.mean(axis=1, keepdims=True) for array in outputs] if tap.shift else list(outputs)


def norms(arrays: Sequence[Array]) -> list[float]:
    return [float(np.linalg.norm(np.asarray(array, np.float64))) for array in arrays]


def _largest(
    pairs: Sequence[tuple[Array, Array]] | None, floors: Sequence[float], sizes: Sequence[float] = ()
) -> float:
    if pairs is None:
        return inf
    every = sizes if len(sizes) == len(pairs) else [0.0] * len(pairs)
    return max((_error(c, r, floors, size) for (c, r), size in zip(pairs, every, strict=True)), default=0.0)


def _error(candidate: Array, reference: Array, floors: Sequence[float], ordinary: float = 0.0) -> float:
    if candidate.shape != reference.shape:
        return inf
    if inf in floors and by_sample(candidate, len(floors)) is not None:
        counted = np.isfinite(floors)
        if not counted.any():
            return 0.0
        candidate, reference = candidate[counted], reference[counted]
        floors = tuple(floor for floor in floors if floor < inf)
    elif inf in floors and candidate.ndim and len(candidate) % len(floors) == 0:
        lost = [row for index, floor in enumerate(floors) if floor == inf
                for rows in rows_of_sample(len(candidate), len(floors), index) for row in rows]  # fmt: skip
        candidate, reference, floors = np.delete(candidate, lost, 0), np.delete(reference, lost, 0), ()
    of_samples = sample_errors(candidate, reference, floors, ordinary) if floors else 0.0
    return of_samples if len(floors) == 1 else max(relative_l2(candidate, reference), of_samples)


def narrowed(call: Call) -> float:
    """The share of outputs that float32 holds exactly, if the layer's inputs are wider; an embedding's are its
    weights, as are those of a norm over one channel, which all have one magnitude."""
    # Of zeros, such as behind a ReLU that is off, a layer returns its bias.
    floats = [leaf for leaf in leaves(list(call.inputs)) if np.asarray(leaf).dtype.kind == "f" and np.any(leaf)]
    # If the inputs are float32 values as well, the values were narrowed before this layer, or are meant to be.
    if not any(float32_share(np.asarray(leaf), short=True) <= FLOAT32_SHARE for leaf in floats):
        return 0.0
    return max((float32_share(part) for part in call.outputs if not one_magnitude(part)), default=0.0)


def output_errors(
    outputs: Outputs, reference: Outputs, floors: Sequence[float] = (), sizes: Sequence[float] = ()
) -> list[float]:
    """Relative errors of outputs; infinite where shapes differ. ``sizes`` are the norms of ordinary outputs, as for
    :func:`tap_errors`."""
    return [_largest([pair], floors, sizes[index : index + 1])
            for index, pair in enumerate(zip(outputs, reference, strict=True))]  # fmt: skip


def output_names(name_lists: Sequence[Sequence[str]], count: int) -> tuple[str, ...]:
    """Names of the port's outputs in results: the first of ``name_lists`` that names all of them."""
    if count == 1:
        return (OUTPUT,)
    chosen = next((names for names in name_lists if len(names) == count and all(names)), range(count))
    return tuple(f"{OUTPUT}.{name}" for name in chosen)
