"""One case of a network: its outputs and calls, in float64 and with rounded inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Collection, Mapping

import numpy as np

from .calls import MASKING, Call, Calls, Note, Outputs, cast, layer_of, silent
from .cases import Case
from .float64 import lifted
from .runs import isolate, record, run
from .torch_functions import highest_precision

if TYPE_CHECKING:
    from torch.nn import Module

    from .shared_types import Array


@dataclass(frozen=True)
class Single:
    """One case in float32 and in float64 from the same rounded inputs: the outputs, and the outputs and calls with each
    tap's output replaced by its rounded float64 reference (activation patching), ``None`` with extreme values. Each
    pair is float32, then float64."""

    inputs: tuple[Array, ...]
    outputs: tuple[Outputs, Outputs]
    isolated: tuple[tuple[Outputs, Calls], tuple[Outputs, Calls]] | None


@dataclass(frozen=True)
class Observation:
    """One case in float64: inputs, outputs, every call in order of completion; and in float32 if requested.

    ``names`` are the names of the outputs, "" for unnamed ones.
    """

    inputs: tuple[Array, ...]
    outputs: Outputs
    calls: Calls
    single: Single | None = None
    names: tuple[str, ...] = ()


def observe(
    modules: Mapping[str, Module], case: Case, inputs: tuple[Array, ...], names: Collection[str] | None = None,
    taps: Collection[str] | None = None, note: Note = silent,
) -> Observation:  # fmt: skip
    """Run one case: ``names`` are the modules to record, ``taps`` those to isolate; all if ``None``."""
    double, single = modules["float64"], modules["float32"]
    with highest_precision():
        with lifted():
            output_names: list[str] = []
            outputs, calls = record(double, inputs, names, note, output_names)
        if not (case.numerics or case.extreme):
            return Observation(inputs, outputs, calls, names=tuple(output_names))
        rounded = cast(inputs, np.float32)
        if case.extreme:
            with lifted():
                wide_outputs = run(double, cast(rounded, np.float64))
            numerics = Single(rounded, (run(single, rounded), wide_outputs), None)
            return Observation(inputs, outputs, calls, numerics, tuple(output_names))
        answers = answers_of(case, tapped(calls, taps))
        plain, isolated = run(single, rounded), isolate(single, rounded, answers)
        with lifted():
            truth, wide = cast(rounded, np.float64), {name: cast(call, np.float64) for name, call in answers.items()}
            exact = (run(double, truth), isolate(double, truth, wide))
    numerics = Single(rounded, (plain, exact[0]), (isolated, exact[1]))
    return Observation(inputs, outputs, calls, numerics, tuple(output_names))


def tapped(calls: Calls, taps: Collection[str] | None) -> Calls:
    """The calls of the modules that are isolated: those among ``taps``; all if ``None``."""
    layers = None if taps is None else set(map(layer_of, taps))
    return {name: call for name, call in calls.items() if layers is None or layer_of(name) in layers}


def answers_of(case: Case, calls: Calls) -> dict[str, Call]:
    """The recorded ``calls`` as isolated layers get them in float32: rounded, and those of at least three axes, such as
    tokens and pixels, or of two if there is no batch, times the case's gain. The logits of attention then grow by its
    square, to hundreds.

    Numbers as large as those of a mask are not changed.
    """
    rounded = {name: cast(call, np.float32) for name, call in calls.items()}
    if case.gain == 1.0:
        return rounded

    def amplified(array: Array) -> Array:
        # Where it does not multiply, NumPy leaves in `out` what was there.
        product = array.copy()
        np.multiply(array, array.dtype.type(case.gain), where=np.abs(array) < MASKING, out=product)
        return product

    return changed_tokens(rounded, amplified, 3 if case.batched else 2)


def changed_tokens(calls: Calls, change: Callable[[Array], Array], axes: int = 3) -> dict[str, Call]:
    """``calls`` with ``change`` of their floating-point arrays of at least this number of ``axes``, such as tokens and
    pixels; times and vectors, which have fewer, stay."""

    def changed(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(changed(item) for item in value)
        array = np.asarray(value)
        return change(array) if array.dtype.kind == "f" and array.ndim >= axes else value

    return {name: replace(call, inputs=changed(call.inputs), outputs=changed(call.outputs))
            for name, call in calls.items()}  # fmt: skip
