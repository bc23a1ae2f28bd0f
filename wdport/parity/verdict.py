"""The results of a parity run: plain objects, from which text and JSON are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Final, Literal, overload

from wdport.compare.bounds import bounds
from wdport.compare.findings import Gate
from wdport.compare.results import Fault as Fault
from wdport.compare.results import Overlay as Overlay
from wdport.compare.results import PartResult as PartResult
from wdport.compare.results import TapResult as TapResult
from wdport.compare.results import locate as locate
from wdport.compare.setting import SettingsReport
from wdport.model import PartWords

SCHEMA: Final = 4
KIND: Final = "verdict"
TERMS = ("P", "R", "S")
"""Gates of a policy, a baseline and the known faults: requirements beyond the comparison."""

ReferenceKind = Literal["wdport", "library", "own", "recording"]
"""Whose code the reference is: wdport's implementation, the class of the library that the model comes from, the user's
own, or a recording of the user's own."""


@dataclass
class VariableResult:
    """Relative float64 errors of one variable of the port, filled from the tensor ``reference``.

    ``gradient`` is the error of its gradient for a random cotangent at the output, gradients (C). The others are the
    largest errors over the steps of optimiser (D): of the gradient, the first and second moment, and the value.
    """

    reference: str
    candidate: str
    gradient: float = 0.0
    step_gradient: float = 0.0
    first: float = 0.0
    second: float = 0.0
    value: float = 0.0


@dataclass(frozen=True)
class Trajectory:
    """Gate trajectories (E): one sampler run on both sides from the same state and noise tape.

    ``steps`` are the diffusion steps in the order of the run; ``logic`` is the relative float64 error of the state
    after each; ``single`` is that of the float32 port against float64, and ``ratio`` its root mean square over the run
    as a multiple of the float32 reference's, ``None`` if that was not run. ``logic`` and ``ratio`` are gated.
    """

    sampler: str
    steps: tuple[int, ...]
    logic: tuple[float, ...]
    single: tuple[float, ...]
    ratio: float | None = None


@dataclass(frozen=True, repr=False)
class Verdict:
    """The result of :func:`wdport.verify`; true if everything that had to be compared was compared and agrees.

    :class:`wdport.parity.shown.Verdict` adds the methods that render it.
    """

    checkpoint: str
    """Path of the checkpoint or the recording."""
    converted: str
    """Path of the converted file."""
    gates: tuple[Gate, ...]
    """The outcome of every gate, in the order of the report."""
    taps: tuple[TapResult, ...]
    """The errors of every layer."""
    parts: tuple[PartResult, ...]
    """The errors of every part of the output."""
    decoded: float | None
    """Float64 error of the decoded output; ``None`` if it is not decoded."""
    assumed: dict[str, object]
    """Configuration values that are neither in the files nor given."""
    inputs: tuple[str, ...]
    """The cases that were run, in words."""
    environment: dict[str, str]
    """Versions of the libraries, and the machine."""
    bounds: dict[str, float] = field(default_factory=dict)
    """The bounds in force, by name."""
    overlays: tuple[Overlay, ...] = ()
    """Curves to plot, of the decoded output."""
    trajectories: tuple[Trajectory, ...] = ()
    """Errors along the sampling runs."""
    variables: tuple[VariableResult, ...] = ()
    """Errors of every variable, if gradients were compared."""
    settings: SettingsReport = field(default_factory=SettingsReport)
    """Hyper-parameters that differ between the two models; they fail no gate unless a policy says so."""
    causes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Probable causes of faults, by the faulty layer's path."""
    reference: str = ""
    """The user's own model, as ``module:factory`` or a recording of it; "" for wdport's or a library's."""
    words: PartWords = field(default_factory=PartWords)
    """Names of the parts and of the decoded output."""
    rests_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By assumed value that does not affect the network, the gates whose outcome depends on it."""
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the compared files, by role."""
    reference_kind: ReferenceKind = "wdport"
    """``wdport``, ``library``, ``own`` or ``recording``: whose code the reference is."""
    reference_code: str = ""
    """Name of the reference's code."""
    rounded_to: str = ""
    """The 16-bit dtype that weights were rounded to, on both sides; "" if none were."""
    started: str = field(default="", compare=False)
    """Date and time in UTC, in ISO 8601; "" if unknown."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Layers without any measurement, each with the reason."""
    seconds: float = field(default=0.0, compare=False)
    """Duration of the comparison."""

    def __bool__(self) -> bool:
        return self.complete and all(gate.passed for gate in self.gates)

    @property
    def complete(self) -> bool:
        """Whether everything that had to be compared was compared."""
        return bool(self.gates) and all(gate.complete for gate in self.gates)

    @property
    def unmet(self) -> tuple[Gate, ...]:
        """The failed gates if only those of the policy, the baseline and the known faults failed: the two models
        compute the same, but another requirement is not met."""
        failed = tuple(gate for gate in self.gates if not gate.passed)
        return failed if all(gate.name in TERMS for gate in failed) else ()

    @property
    def assuming(self) -> dict[str, object]:
        """The assumed configuration values that this outcome depends on.

        Values that define the network are not included if the user's own model computes the same.
        """
        run = {gate.name for gate in self.gates}
        confirmed = bool(self.reference) and (bool(self) or bool(self.unmet))
        return {
            name: value
            for name, value in self.assumed.items()
            if value is not None
            and (not run.isdisjoint(self.rests_on[name]) if name in self.rests_on else not confirmed)
        }

    @property
    def exit_code(self) -> int:
        """0 if equal, 1 if different, 6 if not everything was compared.

        A difference takes precedence over a missing comparison, and that over an unmet policy or baseline.
        """
        if self:
            return 0
        differs = any(gate.differs for gate in self.gates if gate.name not in TERMS)
        return 1 if self.complete or differs else 6

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every place that is wrong in isolation, by the bounds in force, in the order of the computation: each is one
        probable bug.

        A layer that is fed wrongly is the fault of the innermost tapped layer that calls it.
        """
        return locate(self.taps, self.bound("logic"), self.bound("numerics"))

    def bound(self, name: str) -> float:
        """The bound of this name in force: the policy's, or the default."""
        return self.bounds[name] if name in self.bounds else bounds()[name]

    def to_json(self) -> dict[str, object]:
        """All results as plain JSON values, as ``wdport verify --json`` writes them.

        Infinities are strings, since JSON has none.
        """
        facts = {"schema": SCHEMA, "kind": KIND, "passed": bool(self), "complete": self.complete,
                 "exit_code": self.exit_code}  # fmt: skip
        faults = [asdict(fault) for fault in self.faults]
        told = {**asdict(replace(self, gates=())), "gates": [gate.to_json() for gate in self.gates]}
        return {**facts, **plain(told), "assuming": plain(self.assuming), "faults": plain(faults)}


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
