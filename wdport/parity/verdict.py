"""What a parity run found: plain objects first, text and JSON from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import overload

from wdport.compare.bounds import LOGIC, NUMERICS
from wdport.compare.findings import Gate
from wdport.compare.setting import SettingsReport
from wdport.model import PartWords

SCHEMA = 4
TERMS = ("P", "R", "S")
"""Gates of a policy, a baseline and the known faults tried first: what is asked for, beyond what was compared."""


@dataclass
class TapResult:
    """One tap, with every other tap answered for by the reference unless said otherwise.

    Relative float64 errors: ``isolated`` of its outputs, fed the reference's inputs; ``inputs`` of what
    the code around it would have fed it; ``cumulative`` of its outputs within the running network. Float32
    errors as multiples of the reference's own: ``rms_ratio``, ``max_ratio`` of its outputs, ``inputs_ratio``.
    ``gradient`` is the float64 error of the gradient by its outputs, ``None`` where gate C was not run;
    ``bfloat16`` the error under a bfloat16 policy as a multiple of the reference's own, ``None`` likewise.
    ``caller`` is the tap in whose code the port calls the layer, "" the network. ``conditioned`` is the largest
    float64 error that is left out of the others, since one rounding of what the layer is given does as much.
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
        """Whether the layer, fed the reference's inputs, is within the bounds of gates A and B."""
        return self.isolated <= logic and max(self.rms_ratio, self.max_ratio) <= numerics

    def fed(self, logic: float = LOGIC, numerics: float = NUMERICS) -> bool:
        """Whether the code around it feeds it what the reference is fed."""
        return self.inputs <= logic and self.inputs_ratio <= numerics


@dataclass(frozen=True)
class Fault:
    """A place where the port departs from the reference, with everything around it answered for.

    ``reference`` and ``candidate`` name the layer whose own computation is off. ``feeds`` is the layer
    inside it that it feeds wrongly, "" where its outputs are what is wrong. ``logic`` is the relative
    float64 error, ``ratio`` the float32 error as a multiple of the reference's own.
    """

    reference: str
    candidate: str
    feeds: str
    logic: float
    ratio: float


@dataclass
class VariableResult:
    """One variable of the port, filled from the tensor ``reference``; relative float64 errors.

    ``gradient`` with a random cotangent at the output, gate C; the largest over gate D's optimiser steps of
    ``step_gradient``, ``first`` and ``second`` moment, and of the variable's own ``value``.
    """

    reference: str
    candidate: str
    gradient: float = 0.0
    step_gradient: float = 0.0
    first: float = 0.0
    second: float = 0.0
    value: float = 0.0


@dataclass(frozen=True)
class PartResult:
    """One part of the output: float64 error of its values and of what they alone decode to (``None`` where that is
    unknown), its worst channel's float32 ratio, and the share of the decoded reference's energy that it has (``None``
    likewise). ``gradient`` is the float64 error of the gradient by the same part of the input, ``None`` where gate C
    was not run."""

    name: str
    values: float
    decoded: float | None
    ratio: float
    energy: float | None
    gradient: float | None = None


@dataclass(frozen=True)
class Overlay:
    """One channel of one sample, decoded from one part alone: the reference in float64 and the port in float32, for
    drawing one over the other."""

    part: str
    reference: tuple[float, ...]
    candidate: tuple[float, ...]


@dataclass(frozen=True)
class Trajectory:
    """Gate E: one sampler run on both sides from one state and one noise tape.

    ``steps`` are the diffusion steps in the order of the run; ``logic`` the relative float64 error of the
    state after each; ``single`` that of the float32 port against float64, and ``ratio`` its root mean square over the
    run as a multiple of the float32 reference's, ``None`` where that was not run. ``logic`` and ``ratio`` are gated.
    """

    sampler: str
    steps: tuple[int, ...]
    logic: tuple[float, ...]
    single: tuple[float, ...]
    ratio: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The outcome of :func:`wdport.verify`; true if everything that had to be compared was, and agrees.

    ``parts`` are those of the output, ``decoded`` the float64 error of what the whole decodes to, and ``words`` what
    both are called. ``assumed`` are the values of the configuration that nothing told, and ``rests_on`` the gates whose
    outcome rests on one of them, where the network's does not. ``reference`` is the user's own model, as
    ``module:factory`` or a recording of it, and "" where wdport's own implementation is the reference. ``digests`` are
    the SHA-256 of the files that were compared, by what they are. ``settings`` are hyper-parameters that the two models
    were told differently: they fail nothing, since numbers judge.
    """

    checkpoint: str
    converted: str
    gates: tuple[Gate, ...]
    taps: tuple[TapResult, ...]
    parts: tuple[PartResult, ...]
    decoded: float | None
    assumed: dict[str, object]
    inputs: tuple[str, ...]
    environment: dict[str, str]
    bounds: dict[str, float] = field(default_factory=dict)
    overlays: tuple[Overlay, ...] = ()
    trajectories: tuple[Trajectory, ...] = ()
    variables: tuple[VariableResult, ...] = ()
    settings: SettingsReport = field(default_factory=SettingsReport)
    causes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reference: str = ""
    words: PartWords = field(default_factory=PartWords)
    rests_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    def __bool__(self) -> bool:
        return self.complete and all(gate.passed for gate in self.gates)

    @property
    def complete(self) -> bool:
        """Whether everything that had to be compared was."""
        return bool(self.gates) and all(gate.complete for gate in self.gates)

    @property
    def assuming(self) -> dict[str, object]:
        """The assumed values that this outcome rests on: what both sides took for granted.

        What makes up the network is not among them where the user's own model computes the same.
        """
        run = {gate.name for gate in self.gates}
        confirmed = bool(self.reference) and bool(self)
        return {
            name: value
            for name, value in self.assumed.items()
            if value is not None
            and (not run.isdisjoint(self.rests_on[name]) if name in self.rests_on else not confirmed)
        }

    @property
    def exit_code(self) -> int:
        """0 equal, 1 different, 6 not everything compared.

        A difference says more than what is missing; what is missing says more than an unmet policy or baseline.
        """
        if self:
            return 0
        differs = any(gate.differs for gate in self.gates if gate.name not in TERMS)
        return 1 if self.complete or differs else 6

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every place that is off by itself, in the order of the computation: each is one probable bug.

        A layer that is fed wrongly is the fault of the innermost tapped layer that calls it.
        """
        return locate(self.taps)

    def to_json(self) -> dict[str, object]:
        """Plain JSON values; infinities as text, since JSON has none."""
        facts = {"schema": SCHEMA, "passed": bool(self), "complete": self.complete, "exit_code": self.exit_code}
        faults = [asdict(fault) for fault in self.faults]
        told = {**asdict(replace(self, gates=())), "gates": [gate.to_json() for gate in self.gates]}
        return {**facts, **plain(told), "assuming": plain(self.assuming), "faults": plain(faults)}


def locate(taps: Iterable[TapResult], logic: float = LOGIC, numerics: float = NUMERICS) -> tuple[Fault, ...]:
    """Every place that is off by itself, by these bounds, in the order of ``taps``: each is one probable bug.

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


@overload
def plain(value: dict[str, object]) -> dict[str, object]: ...


@overload
def plain(value: object) -> object: ...


def plain(value: object) -> object:
    """JSON values: tuples as lists, infinities and NaN as text."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value
