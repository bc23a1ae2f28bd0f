"""The results of a comparison as data: errors of layers and of parts of an output, faults, and evidence of a fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wdport.compare.bounds import LOGIC, NUMERICS
from wdport.compare.calls import Calls
from wdport.compare.probe import Answers
from wdport.model import Array


@dataclass
class TapResult:
    """One tap, with every other tap's output replaced by the reference's unless stated otherwise.

    Relative float64 errors: ``isolated`` of its outputs when fed the reference's inputs; ``inputs`` of the inputs that
    the surrounding code would have fed it; ``cumulative`` of its outputs in the running network. Float32
    errors as multiples of the reference's own: ``rms_ratio``, ``max_ratio`` of its outputs, ``inputs_ratio``.
    ``gradient`` is the float64 error of the gradient by its outputs, ``None`` where gradients (C) was not run;
    ``bfloat16`` the error under a bfloat16 policy as a multiple of the reference's own, ``None`` likewise.
    ``caller`` is the tap in whose code the port calls the layer, "" for the network. ``conditioned`` is the largest
    float64 error that is left out of the others, since one rounding of the layer's inputs explains it.
    """

    reference: str
    candidate: str
    part: int | None
    isolated: float = 0.0
    inputs: float = 0.0
    cumulative: float = 0.0
    rms_ratio: float = 0.0
    max_ratio: float = 0.0
    inputs_ratio: float = 0.0
    bias: float = 0.0
    share32: tuple[float, float] = (0.0, 0.0)
    gradient: float | None = None
    bfloat16: float | None = None
    caller: str = ""
    conditioned: float = 0.0

    def sound(self, logic: float = LOGIC, numerics: float = NUMERICS) -> bool:
        """Whether the layer, fed the reference's inputs, is within the bounds of float64 (A) and float32 (B)."""
        return self.isolated <= logic and max(self.rms_ratio, self.max_ratio) <= numerics

    def fed(self, logic: float = LOGIC, numerics: float = NUMERICS) -> bool:
        """Whether the surrounding code feeds it the reference's inputs, within the same bounds."""
        return self.inputs <= logic and self.inputs_ratio <= numerics


@dataclass(frozen=True)
class Fault:
    """A place where the port differs from the reference when everything around it is fed the reference's values.

    ``reference`` and ``candidate`` name the layer whose own computation is wrong. ``feeds`` is the layer
    inside it that it feeds wrongly, "" if its outputs are wrong. ``logic`` is the relative
    float64 error, ``ratio`` the float32 error as a multiple of the reference's own.
    """

    reference: str
    candidate: str
    feeds: str
    logic: float
    ratio: float


@dataclass(frozen=True)
class PartResult:
    """One part of the output: float64 error of its values and of their decoding with all other parts zero (``None`` if
    unknown), its worst channel's float32 ratio, and its share of the decoded reference's energy (``None`` if unknown).
    ``gradient`` is the float64 error of the gradient by the same part of the input, ``None`` if gradients (C) was not
    run."""

    name: str
    values: float
    decoded: float | None
    ratio: float
    energy: float | None
    gradient: float | None = None


@dataclass(frozen=True)
class Overlay:
    """One channel of one sample, decoded from one part only: the reference in float64 and the port in float32, to be
    plotted over each other."""

    part: str
    reference: tuple[float, ...]
    candidate: tuple[float, ...]


@dataclass(frozen=True)
class Evidence:
    """One case in float64: the network's inputs, the isolated calls of the faulty port's layers (its output under ""),
    and the reference's calls, by the candidate's paths; ``random_biases`` says with which weights."""

    inputs: tuple[Array, ...]
    port: Calls
    answers: Answers
    random_biases: bool = False


def locate(taps: Iterable[TapResult], logic: float = LOGIC, numerics: float = NUMERICS) -> tuple[Fault, ...]:
    """Every place that is wrong in isolation, by these bounds, in the order of ``taps``: each is one probable bug.

    A layer that is fed wrongly is the fault of the innermost tapped layer that calls it.
    """
    taps = tuple(taps)
    known = {tap.reference: tap for tap in taps}
    found: dict[tuple[str, bool], Fault] = {}
    for tap in taps:
        if not tap.fed(logic, numerics):
            candidate = known[tap.caller].candidate if tap.caller else ""
            fault = Fault(tap.caller, candidate, tap.reference, tap.inputs, tap.inputs_ratio)
            found.setdefault((tap.caller, True), fault)
        if not tap.sound(logic, numerics):
            ratio = max(tap.rms_ratio, tap.max_ratio)
            found[tap.reference, False] = Fault(tap.reference, tap.candidate, "", tap.isolated, ratio)
    return tuple(found.values())
