"""Findings of gates as data: numbers compared with bounds, facts and notices, and all their sentences; and the gates
by name.

A gate has a letter, used in JSON, policies and test ids, and a name, used in all text for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isnan
from typing import Annotated, Final

from wdport.base.shared_types import Count, Number, about
from wdport.compare.gate_bounds import BOUNDS, Bound


@dataclass(frozen=True)
class Term:
    """One gate: its letter, its name, and one sentence on what it compares."""

    letter: str
    name: str
    meaning: str

    def __str__(self) -> str:
        return f"{self.name} ({self.letter})"

    def gate(
        self, compared: int, expected: int, measures: tuple[Measure, ...] = (), facts: tuple[Finding, ...] = (),
    ) -> Gate:  # fmt: skip
        """An outcome of this gate; arguments as those of :class:`Gate`."""
        return Gate(self.letter, self.name, compared, expected, measures, facts, self.meaning)


_TERMS: Final = (
    Term("0", "preflight", "every tensor and variable is accounted for, both models run, and every layer is compared"),
    Term("A'", "constants", "tables that are recomputed, not copied, equal their float64 formulas"),
    Term("A", "float64", "every layer fed the reference's inputs, and the whole network, agree in float64"),
    Term("B", "float32", "the port's float32 errors are no larger than a few times PyTorch's own"),
    Term("B'", "bfloat16", "the same under a mixed bfloat16 policy, compared with PyTorch's autocast"),
    Term("C", "gradients", "gradients by layers, inputs and weights agree in float64"),
    Term("D", "optimizer", "losses, gradients, moments and weights agree over optimizer steps, in float64"),
    Term("D'", "resumed", "from the checkpoint's optimizer, the port takes the steps that PyTorch takes, in float64"),
    Term("M", "training mode", "losses, gradients and running statistics in training mode agree, in float64"),
    Term("E", "trajectories", "every state of a sampling run with the same noise agrees in float64"),
    Term("E'", "sampling network", "the network as samplers run it agrees with the model, in float32 and float64"),
    Term("H", "samplers", "what samplers draw, with labels, guidance and known values, is what plain loops draw"),
    Term("I", "generation", "the program that completes texts agrees with a plain loop over the reference"),
    Term("X", "artifact", "every program of an exported file, run without wdport, computes what the model computes"),
    Term("T", "tensors", "every tensor of an exported checkpoint is the checkpoint's, bit for bit"),
    Term("N", "fresh", "whole outputs agree on inputs and weights drawn at run time, the port alone in its process"),
    Term("S", "known faults", "known faults injected into a small model are all found, under the bounds in force"),
    Term("P", "policy", "the policy's own entries are valid: none has expired, none is unnecessary"),
    Term("R", "baseline", "no layer's error has become larger or smaller than in the recorded run"),
)

GATES: Final[Mapping[str, Term]] = {term.letter: term for term in _TERMS}
"""By letter, in the order of reports. Families add their own, which come last."""


def label(letter: str) -> str:
    """A gate's name and letter, such as ``float64 (A)``; only the letter for a family's own."""
    return str(GATES[letter]) if letter in GATES else letter


def letter_of(text: str) -> str | None:
    """The letter of the gate with this letter or name; ``None`` if there is none."""
    return next((term.letter for term in _TERMS if text in (term.letter, term.name)), None)


OUTPUT = "output"
"""The name of the tap for the whole network's output and its parts."""

FED, ALONE, RUNNING = "fed", "alone", "running"
"""Float64 errors of a layer: of its inputs, of its outputs from the reference's inputs, and in the running network."""


def off_by(value: float, text: str) -> str:
    """How an error is said whose number reads ``text``; an infinite one is none that was measured."""
    unlike = "not comparable (shapes or counts differ, one side is not finite, or the reference alone is zero)"
    return f"off by {text}" if value < inf else unlike


SENTENCES: Mapping[str, str] = {
    FED: "{name} is {size} in its inputs",
    ALONE: "{name} is {size} when fed the reference's input",
    RUNNING: "{name} is {size} within the network",
    "narrow": "precision leak: {subject} of {part} holds float32 values",
    "float32": "{name} has {value:.1f} times the reference's float32 error",
    "bfloat16": "{name} has {value:.1f} times the reference's bfloat16 error",
    "ulp": "{name} is {value:.1f} ulp from its formula",
    "gradient": "the gradient by {name} is {size}",
    "error": "{name} is {size}",
    "step": "{name} is {size}",
    "share": "{name}: {value:.1%} of the values differ",
    "waived": "waived: {subject} {detail}",
    "bound": "bound: {subject} {detail}",
}
"""Sentences by kind; the detail of any other kind is a sentence."""

_FIRST_ONLY: Mapping[str, str] = {FED: "logic", ALONE: "logic", RUNNING: "logic", "step": "step"}
"""Kinds of which only the first per subject is reported: the others follow from it."""

NOTICES = ("notice", "waived", "bound")
"""Kinds that are reported but fail nothing."""


@dataclass(frozen=True)
class FindingFacts:
    """A problem that makes a gate fail, or a finding that does not: a notice, a waived problem or a changed bound."""

    subject: Annotated[str, about(
        "Layer, variable, constant or run that the finding is about; empty for the comparison as a "
        "whole.")]  # fmt: skip
    part: Annotated[str, about("Part of the subject; empty for the subject as a whole.")]
    kind: Annotated[str, about(
        "Kind of the finding. Findings of the kinds `notice`, `waived` and `bound` do not make the gate fail; all "
        "others do.")]  # fmt: skip
    value: Annotated[Number | None, about("Value that exceeds the bound; null if nothing was measured.")]
    bound: Annotated[Number | None, about("Bound that the value exceeds; null if nothing was measured.")]
    leak: Annotated[bool, about(
        "Whether the error is on the order of float32 rounding, and the layer's values are ones that float32 "
        "holds.")]  # fmt: skip
    text: Annotated[str, about("The finding in one sentence.")]


@dataclass(frozen=True)
class GateFacts:
    """The outcome of one gate."""

    name: Annotated[str, about("Letter of the gate.")]
    title: Annotated[str, about("Name of the gate.")]
    meaning: Annotated[str, about("What the gate compares.")]
    passed: Annotated[bool, about("Whether everything was compared and no finding makes the gate fail.")]
    compared: Annotated[Count, about("Number of comparisons made.")]
    expected: Annotated[Count, about("Number of comparisons required.")]
    worst: Annotated[Number | None, about("Largest measured error; null if nothing was measured.")]
    bound: Annotated[Number | None, about("Bound on this error; null if nothing was measured.")]
    where: Annotated[str, about("Where this error was measured; empty if nothing was measured.")]
    seconds: Annotated[float | None, about("Duration in seconds; null if it was not measured.")]
    findings: Annotated[Sequence[FindingFacts], about(
        "The findings that make the gate fail, followed by those that do not.")]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A problem that makes a gate fail, or a finding that does not.

    ``subject`` is the tap, variable, constant or run that it is about, "" for the comparison as a whole, and ``part``
    is the part of it. ``value`` is the number that exceeds ``bound``; both are ``None`` for a fact, whose sentence is
    ``detail``. ``leak`` marks errors of the size of float32 rounding in values that float32 holds.
    """

    subject: str
    kind: str
    value: float | None = None
    bound: float | None = None
    part: str = ""
    detail: str = ""
    leak: bool = False

    def __str__(self) -> str:
        template = SENTENCES.get(self.kind, "{detail}")
        size = "" if self.value is None else off_by(self.value, f"{self.value:.1e}")
        text = template.format(name=f"{self.subject}{self.part}", subject=self.subject, part=self.part,
                               value=self.value, size=size, detail=self.detail)  # fmt: skip
        return f"precision leak: {text}" if self.leak else text

    @property
    def notice(self) -> bool:
        """Whether it fails nothing."""
        return self.kind in NOTICES

    def document(self) -> FindingFacts:
        part = self.part.strip(" ,")
        return FindingFacts(self.subject, part, self.kind, self.value, self.bound, self.leak, str(self))


def fact(text: str, subject: str = "", kind: str = "fact") -> Finding:
    """A finding without a number that fails its gate."""
    return Finding(subject, kind, detail=text)


def notice(text: str, subject: str = "") -> Finding:
    """A finding that fails nothing."""
    return Finding(subject, "notice", detail=text)


@dataclass(frozen=True)
class Measure:
    """One number of ``part`` of ``subject``, of a kind in :data:`SENTENCES`, compared with the bound of that name.

    An error up to ``leak`` is reported as one of float32 arithmetic; 0 if the values are wider.
    """

    subject: str
    kind: str
    value: float
    bound: str
    limit: float
    part: str = ""
    leak: float = 0.0

    @property
    def beyond(self) -> bool:
        """Whether it exceeds the bound; NaN does."""
        # Not `>`: every comparison with NaN is false.
        return not self.value <= self.limit

    @property
    def size(self) -> float:
        """The number; NaN counts as infinity."""
        return inf if isnan(self.value) else self.value

    @property
    def name(self) -> str:
        """The measured quantity, in words."""
        return f"{self.subject}{self.part}"

    def under(self, held: Mapping[str, float]) -> Measure:
        """The measure compared with these bounds."""
        return replace(self, limit=held.get(self.bound, self.limit), leak=held["leak"] if self.leak else 0.0)

    def finding(self) -> Finding:
        """The finding if it exceeds the bound."""
        leak = self.kind in (FED, ALONE, RUNNING) and self.value <= self.leak
        return Finding(self.subject, self.kind, self.value, self.limit, self.part, leak=leak)


def measure(
    subject: str, kind: str, value: float, bound: str, part: str = "", family_bounds: Mapping[str, Bound] | None = None,
    narrow: bool = False,
) -> Measure:  # fmt: skip
    """A number compared with the default of its bound, which may be one of ``family_bounds``; ``narrow`` if float32
    holds the values of one side."""
    held = {**BOUNDS, **(family_bounds or {})}
    leak = held["leak"].value if bound == "logic" and narrow else 0.0
    return Measure(subject, kind, value, bound, held[bound].value, part, leak)


@dataclass(frozen=True)
class Gate:
    """One gate's outcome: its measures, and its facts, which have no number.

    ``name`` is its letter, ``title`` its name and ``meaning`` what it compares, all from
    the table of gates; ``seconds`` is its duration, ``None`` if it was not measured. It passes if there are
    no findings other than notices and ``compared`` equals ``expected`` and is positive.
    """

    name: str
    title: str
    compared: int
    expected: int
    measures: tuple[Measure, ...] = ()
    facts: tuple[Finding, ...] = ()
    meaning: str = ""
    seconds: float | None = field(default=None, compare=False)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that make it fail, numbers first, then the others."""
        numbers = dict[tuple[str, str, str, str], Finding]()
        for reading in self.measures:
            if reading.beyond:
                group = _FIRST_ONLY.get(reading.kind)
                key = (reading.subject, group, "", "") if group else (reading.subject, "", reading.kind, reading.part)
                # Measures come in the order of the cause: a layer that is fed wrongly is reported as that, not as off
                # in the network.
                numbers.setdefault(key, reading.finding())
        facts = dict.fromkeys(self.facts)
        faults = [*numbers.values(), *(finding for finding in facts if not finding.notice)]
        return (*faults, *(finding for finding in facts if finding.notice))

    @property
    def complete(self) -> bool:
        """Whether everything that it had to compare was compared."""
        # A gate that compared nothing does not pass.
        return self.compared == self.expected > 0

    @property
    def passed(self) -> bool:
        """Whether everything was compared and no finding makes it fail."""
        return self.complete and all(finding.notice for finding in self.findings)

    @property
    def differs(self) -> bool:
        """Whether it found a difference, not only missing comparisons."""
        beyond = self.worst is not None and self.bound is not None and not self.worst <= self.bound
        return not self.passed and (beyond or self.complete)

    @property
    def outcome(self) -> str:
        """``ok``, ``FAIL``, or ``INCOMPLETE`` if it only lacks comparisons."""
        if self.passed:
            return "ok"
        return "FAIL" if self.differs else "INCOMPLETE"

    @cached_property
    def _largest(self) -> Measure | None:
        """The largest of the numbers that are compared with the gate's main bound, that of its first measure."""
        main_measures = [reading for reading in self.measures if reading.bound == self.measures[0].bound]
        return max(main_measures, key=lambda reading: reading.size, default=None)

    @property
    def worst(self) -> float | None:
        """The largest number; ``None`` if nothing was measured."""
        return None if self._largest is None else self._largest.value

    @property
    def bound(self) -> float | None:
        """The bound of that number."""
        return None if self._largest is None else self._largest.limit

    @property
    def kind(self) -> str:
        """The kind of that number; "" if nothing was measured."""
        return "" if self._largest is None else self._largest.kind

    @property
    def where(self) -> str:
        """The quantity with the largest number; "" if nothing was measured."""
        return "" if self._largest is None else self._largest.name

    def document(self) -> GateFacts:
        """The outcome for a document; single measures are stored with their layers, variables, parts and runs."""
        return GateFacts(self.name, self.title, self.meaning, self.passed, self.compared, self.expected, self.worst,
                         self.bound, self.where, self.seconds,
                         [finding.document() for finding in self.findings])  # fmt: skip


def joined(first: Gate, second: Gate) -> Gate:
    """Join two halves of one gate, with the names of the first."""
    return replace(first, compared=first.compared + second.compared, expected=first.expected + second.expected,
                   measures=(*first.measures, *second.measures), facts=(*first.facts, *second.facts))  # fmt: skip


def by_subject(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    groups = dict[str, list[Finding]]()
    for finding in findings:
        groups.setdefault(finding.subject, []).append(finding)
    return groups
