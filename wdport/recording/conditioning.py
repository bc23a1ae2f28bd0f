"""How far rounding errors spread in a network, and what it computes in float32."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Collection, Mapping, Sequence

import numpy as np

from .calls import MASKING, Call, Calls, Outputs, cast, silent
from .cases import Case
from .float64 import lifted
from .inner_calls import is_attention, recompute
from .nested import as_tensor, leaves, tensors_of, to_array
from .observation import answers_of, tapped
from .runs import isolate, record, run
from .sample_rows import squares_by_sample
from .torch_functions import highest_precision
from .watching import watched, with_tensors

if TYPE_CHECKING:
    from torch.nn import Module

    from .shared_types import Array, Compute, Given, Nested


DRAWS = 3
RERUNS = 8
SPREAD_SEED = 11
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53}
"""Largest relative error of rounding to a dtype."""


@dataclass
class Spread:
    """How far one tap moves when everything that it is given is perturbed by one rounding: sums of squares and largest
    values, the maximum over the draws, of its inputs, its isolated outputs, and its outputs in the running network.

    ``samples`` has the sums of squares of every sample of the batch by part.
    """

    fed: tuple[float, float] = (0.0, 0.0)
    made: tuple[float, float] = (0.0, 0.0)
    running: tuple[float, float] = (0.0, 0.0)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, part: str, moved: Nested, still: Nested, samples: int = 0) -> None:
        """Add one draw: how far the values of ``part`` have ``moved`` from ``still``, also by sample if their number is
        given."""
        every = zip(leaves(list(moved)), leaves(list(still)))
        alike = [(a, b) for a, b in every if a.shape == b.shape]  # rounding may choose others
        moves = [(_distance(a, b), b.dtype.kind) for a, b in alike]
        distances = [distance for distance, kind in moves if kind == "f"]
        square = float(sum(float(np.sum(distance * distance)) for distance in distances))
        largest = [float(np.max(distance, initial=0.0)) for distance in distances]
        before = getattr(self, part)
        setattr(self, part, (max(before[0], square), max([before[1], *largest])))
        # With integers, such as the place of a maximum, to see whether a rounding decides them.
        squares = squares_by_sample([distance for distance, _ in moves], samples)
        if squares is not None:
            self.samples[part] = np.maximum(squares, self.samples.get(part, 0.0)).tolist()


@dataclass
class Conditioning:
    """One case in float64, perturbed by the rounding of a dtype: the spread by call, and the largest change of each
    value of the outputs."""

    taps: dict[str, Spread]
    outputs: Outputs

    def add_outputs(self, moved: Outputs, still: Outputs) -> None:
        """Add one draw: how far the outputs have ``moved`` from ``still``."""
        distances = tuple(_distance(a, b) for a, b in zip(moved, still))
        pairs = zip(self.outputs or distances, distances)
        self.outputs = tuple(np.maximum(largest, distance) for largest, distance in pairs)


def conditioning(
    module: Module, case: Case, inputs: tuple[Array, ...], taps: Collection[str] | None = None
) -> Conditioning:
    """Run a float64 module with random relative errors of the size of its rounding in all tensors between its
    submodules; ``taps`` are those to isolate, as for :func:`observe`."""
    unit = ROUNDING["float64"]
    with highest_precision(), lifted():
        outputs, calls = record(module, inputs)
        result = Conditioning({name: Spread() for name in calls}, tuple(map(np.zeros_like, outputs)))
        for draw in range(DRAWS):
            rng = np.random.default_rng([SPREAD_SEED, case.seed, draw])
            moved, fed = _moved_calls(tapped(calls, taps), rng, unit), _moved(inputs, rng, unit)
            _, isolated = isolate(module, fed, moved)
            disturbed, running = _disturbed(module, _moved(inputs, rng, unit), rng, unit)
            result.add_outputs(disturbed, outputs)
            for name, spread in result.taps.items():
                if name in isolated:
                    spread.add("fed", isolated[name].inputs, calls[name].inputs, case.samples)
                    spread.add("made", isolated[name].outputs, calls[name].outputs, case.samples)
                if name in running:
                    spread.add("running", running[name].outputs, calls[name].outputs, case.samples)
    return result


def float32_errors(
    modules: Mapping[str, Module], case: Case, inputs: tuple[Array, ...], taps: Collection[str] | None = None
) -> Conditioning:
    """The largest errors of the float32 module itself over :data:`RERUNS` runs on inputs that are moved by one
    rounding, each relative to the float64 module on the same inputs: those of a single run may be small by chance.
    ``taps`` are the modules to isolate, as for :func:`observe`: with others isolated, the code between two taps would
    have the errors of its last part alone."""
    double, single = modules["float64"], modules["float32"]
    with highest_precision():
        with lifted():
            _, calls = record(double, inputs)
        answers = answers_of(case, tapped(calls, taps))
        result = Conditioning({name: Spread() for name in calls}, ())
        for rerun in range(RERUNS):
            rng = np.random.default_rng([SPREAD_SEED, case.seed, rerun])
            # Twice the largest rounding error, since the moved values are rounded again.
            unit = 2.0 * ROUNDING["float32"]
            fed = cast(_moved(cast(inputs, np.float32), rng, unit), np.float32)
            moved = {name: cast(call, np.float32) for name, call in _moved_calls(answers, rng, unit).items()}
            outputs, (_, isolated) = run(single, fed), isolate(single, fed, moved)
            with lifted():
                truth = cast(fed, np.float64)
                exact = run(double, truth)
                _, right = isolate(double, truth, {name: cast(call, np.float64) for name, call in moved.items()})
            result.add_outputs(cast(outputs, np.float64), exact)
            for name, spread in result.taps.items():
                if name in isolated and name in right:
                    sides = cast(isolated[name], np.float64), right[name]
                    spread.add("fed", sides[0].inputs, sides[1].inputs)
                    spread.add("made", sides[0].outputs, sides[1].outputs)
    return result


def _moved_calls(calls: Calls, rng: np.random.Generator, unit: float) -> dict[str, Call]:
    return {name: replace(call, inputs=_moved(call.inputs, rng, unit), outputs=_moved(call.outputs, rng, unit))
            for name, call in calls.items()}  # fmt: skip


def _moved(value: Any, rng: np.random.Generator, unit: float) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, rng, unit) for item in value)
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return array
    factors = 1.0 + unit * rng.uniform(-1.0, 1.0, array.shape)
    return array * np.where(np.abs(array) >= MASKING, 1.0, factors)


def _distance(first: Array, second: Array) -> Array:
    """|a - b|, which is 0 where both are the same infinity or the lowest number of a dtype, as masks hold, and for
    booleans 1 where they differ."""
    if first.dtype.kind in "biu":
        return np.abs(np.subtract(first, second, dtype=np.float64))
    masked = (np.abs(first) >= MASKING) & (np.abs(second) >= MASKING) & (np.sign(first) == np.sign(second))
    where = (first != second) & ~masked
    return np.abs(np.subtract(first, second, where=where, out=np.zeros(first.shape, first.dtype)))


def _disturbed(
    module: Module, inputs: Sequence[Nested], rng: np.random.Generator, unit: float
) -> tuple[Outputs, dict[str, Call]]:
    """A run in which every submodule's output is perturbed by one rounding."""
    calls: dict[str, Call] = {}

    def disturb(name: str, caller: str, part: Module, compute: Compute, arguments: Given) -> object:
        output = compute(*arguments)
        moved = [as_tensor(_moved(to_array(tensor), rng, unit)) for tensor in tensors_of(output)]
        calls.update(recompute(name, part, arguments, {}, silent)[0])
        calls[name] = Call((), tuple(to_array(tensor) for tensor in moved[: 1 if is_attention(part) else None]), caller)
        return with_tensors(part, output, moved)

    with watched({name: part for name, part in module.named_modules() if name}, disturb):
        outputs = run(module, inputs)
    return outputs, calls
