"""The result of a self-test: every fault's outcome, every correct variant, fixed tolerances, and whether it passes.

Each compares the whole network's output with fixed tolerances; none knows how much of a difference is rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import numpy as np

from wdport.base.shared_types import Count, Number, about
from wdport.compare.findings import label
from wdport.families.faults import Kill
from wdport.files import json_document
from wdport.models.interface import Array

Accept = Callable[[Array, Array], bool]


def _close(rtol: float, atol: float) -> Accept:
    return lambda port, reference: bool(np.allclose(port, reference, rtol=rtol, atol=atol))


def _cosine(port: Array, reference: Array) -> bool:
    a, b = (side.astype(np.float64).ravel() for side in (port, reference))
    return bool(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) > 0.997)


RULES: Final[dict[str, Accept]] = {
    "numpy allclose, its defaults": _close(1e-5, 1e-8),
    "assert_close, 1e-5 rules": _close(1.3e-6, 1e-5),
    "atol 1e-3": _close(0.0, 1e-3),
    "cosine > 0.997": _cosine,
    "atol 0.025, rtol 20, inputs of ones": _close(20.0, 0.025),
}

ON_ONES: Final = frozenset({"atol 0.025, rtol 20, inputs of ones"})
"""Rules that are applied to the outputs for inputs of ones."""


def rejected_by(outputs: Callable[[bool], tuple[Array, Array]]) -> tuple[str, ...]:
    """The rules that reject the port's float32 output; ``outputs`` returns it and the reference's, for inputs of ones
    if its argument is true."""
    sides = {ones: outputs(ones) for ones in (False, True)}
    return tuple(name for name, accept in RULES.items() if not _accepted(accept, *sides[name in ON_ONES]))


def _accepted(accept: Accept, port: Array, reference: Array) -> bool:
    # A faulty port may compute NaN or infinity.
    with np.errstate(invalid="ignore"):
        return port.shape == reference.shape and accept(port, reference)


@dataclass(frozen=True)
class Alarm:
    """A gate that fails a correct port."""

    gate: Annotated[str, about("Letter of the gate.")]
    place: Annotated[str, about("Place at which the gate fails.")]

    def __str__(self) -> str:
        return f"{label(self.gate)} at {self.place}"


@dataclass(frozen=True)
class Variant:
    """One correct port, or one correct way to run it."""

    example: Annotated[str, about("Name of the model.")]
    name: Annotated[str, about("What was changed.")]
    logic: Annotated[Number | None, about("Largest isolated float64 error; null if it was not measured.")]
    ratio: Annotated[Number | None, about(
        "Largest isolated float32 error, as a multiple of the reference's; null if it was not measured.")]  # fmt: skip
    alarms: Annotated[tuple[Alarm, ...], about("Gates that fail; each of them is a false alarm.")]
    rejected: Annotated[tuple[str, ...] | None, about(
        "Fixed tolerances that reject the port's output; null if that was not measured.")] = None  # fmt: skip
    why: Annotated[str, about("Why the port is correct, if it computes the same result in a different way.")] = ""


CAUSES_RIGHT: Final = 0.8
"""Share of the logic faults whose cause must be found; no cause may be wrong."""


@dataclass(frozen=True)
class GroupResult:
    """Faults of one kind."""

    gate: Annotated[
        str, about("Letter of the gate that should find the faults; empty if there are several such gates.")
    ]
    name: Annotated[str, about("Name of the kind.")]
    kills: Annotated[tuple[Kill, ...], about("Outcomes of the faults.")]


@dataclass(frozen=True)
class RuleCount:
    """A rule for accepting a port, and how well it separates faults from correct ports."""

    name: Annotated[str, about("Name of the rule.")]
    killed: Annotated[Count, about("Number of faults that the rule rejects.")]
    faults: Annotated[Count, about("Total number of faults.")]
    rejected: Annotated[Count, about("Number of correct ports that the rule rejects.")]
    ports: Annotated[Count, about("Total number of correct ports.")]


def _rejecting(rule: str) -> Callable[[Kill | Variant], bool]:
    return lambda measured: rule in (measured.rejected or ())


@dataclass(frozen=True)
class SelftestResult:
    """The result of :func:`wdport.parity.selftest.run_selftest`. In Python, it is true if the self-test passed.

    ``causes`` states whether the self-test had to look for causes; it fails if it had to but did not. ``note`` states
    why requested faults were left out.
    """

    groups: Annotated[tuple[GroupResult, ...], about("Faults, by kind.")]
    variants: Annotated[tuple[Variant, ...], about("Correct ports.")] = ()
    quick: Annotated[bool, about("Whether only a few faults were tried.")] = False
    causes: Annotated[bool, about("Whether the self-test had to look for causes.")] = True
    bounds: Annotated[dict[str, float], about("Bounds in force, by name.")] = field(default_factory=dict)
    environment: Annotated[dict[str, str], about(
        "Versions of the libraries, and a description of the machine.")] = field(default_factory=dict)  # fmt: skip
    seconds: Annotated[float, about("Duration in seconds.")] = field(default=0.0, compare=False)
    note: Annotated[str, about(
        "Why requested faults were left out, for example because wdport does not run in a source checkout; empty if "
        "none were.")] = ""  # fmt: skip

    @property
    def kills(self) -> tuple[Kill, ...]:
        return tuple(kill for group in self.groups for kill in group.kills)

    @property
    def faults(self) -> tuple[Kill, ...]:
        """Those that change what is computed."""
        return tuple(kill for kill in self.kills if not kill.equivalent)

    @property
    def wrong(self) -> tuple[Kill, ...]:
        """Faults not killed by the right gate at the right place, and equivalents that did not survive."""
        return tuple(kill for kill in self.kills if not kill.right)

    @property
    def sought(self) -> tuple[Kill, ...]:
        """The logic faults whose probable cause was looked for."""
        return tuple(kill for kill in self.faults if kill.sought)

    @property
    def misdiagnosed(self) -> tuple[Kill, ...]:
        """Faults whose causes are named, all of them wrong."""
        return tuple(kill for kill in self.sought if kill.misdiagnosed)

    @property
    def false_alarms(self) -> tuple[Variant, ...]:
        """Correct variants that fail a gate."""
        return tuple(variant for variant in self.variants if variant.alarms)

    def __bool__(self) -> bool:
        return self.exit_code == 0

    @property
    def exit_code(self) -> Literal[0, 1, 6]:
        """0 if it passes, 1 if it fails, 6 if nothing was run (or no correct variant, except in a quick run)."""
        if not self.faults or not (self.quick or self.variants):
            return 6
        named = sum(kill.diagnosed for kill in self.sought)
        sought = bool(self.sought) or not self.causes
        enough = self.quick or (sought and named >= CAUSES_RIGHT * len(self.sought))
        return 0 if enough and not (self.wrong or self.misdiagnosed or self.false_alarms) else 1

    @property
    def rules(self) -> tuple[RuleCount, ...]:
        """Fixed tolerances compared with the gates, over the faults and correct ports where both were measured."""
        kills = [kill for kill in self.kills if kill.rejected is not None]
        faults = [kill for kill in kills if not kill.equivalent]
        same = [kill for kill in kills if kill.equivalent]
        ports = [variant for variant in self.variants if variant.rejected is not None]

        def count(name: str, finds: Callable[[Kill], bool], rejects: Callable[[Variant], bool]) -> RuleCount:
            rejected = sum(map(rejects, ports)) + sum(map(finds, same))
            return RuleCount(name, sum(map(finds, faults)), len(faults), rejected, len(ports) + len(same))

        def alarmed(*gates: str) -> Callable[[Variant], bool]:
            return lambda variant: any(alarm.gate in gates for alarm in variant.alarms)

        def found_by(*gates: str) -> Callable[[Kill], bool]:
            return lambda kill: kill.gate in gates

        counts = [count(name, _rejecting(name), _rejecting(name)) for name in RULES]
        counts.append(count(f"{label('A')} with {label('0')}", found_by("0", "A"), alarmed("0", "A")))
        counts.append(count(f"{label('B')} with {label('0')}", lambda kill: bool(kill.single), alarmed("0", "B")))
        counts.append(count("all gates", found_by("0", "A", "A'", "B"), alarmed("0", "A", "A'", "B")))
        return tuple(counts) if faults and ports else ()

    def document(self) -> SelftestDocument:
        return SelftestDocument(
            passed=bool(self),
            exit_code=self.exit_code,
            faults=len(self.faults),
            killed=sum(kill.killed for kill in self.faults),
            right=sum(kill.right for kill in self.faults),
            causes_sought=len(self.sought),
            causes_right=sum(kill.diagnosed for kill in self.sought),
            causes_wrong=len(self.misdiagnosed),
            variants=len(self.variants),
            false_alarms=len(self.false_alarms),
            rules=self.rules,
            details=self,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinities are strings, since JSON has none."""
        return json_document.document("selftest", self.document())


@dataclass(frozen=True)
class SelftestDocument:
    """What ``wdport selftest --json`` prints."""

    passed: Annotated[bool, about("Whether the self-test passed.")]
    exit_code: Annotated[Literal[0, 1, 6], about(
        "Exit code of the command: 0 if the self-test passed, 1 if it failed, 6 if no faults were tried or, except "
        "in a quick run, no correct ports.")]  # fmt: skip
    faults: Annotated[Count, about("Number of faults that change the result.")]
    killed: Annotated[Count, about("Number of these faults that a gate found.")]
    right: Annotated[Count, about("Number of these faults that the right gate found at the right place.")]
    causes_sought: Annotated[Count, about("Number of faults for which the self-test looked for a cause.")]
    causes_right: Annotated[Count, about("Number of these faults for which a reported cause is correct.")]
    causes_wrong: Annotated[Count, about("Number of these faults for which only wrong causes were reported.")]
    variants: Annotated[Count, about("Number of correct ports.")]
    false_alarms: Annotated[Count, about("Number of correct ports that fail.")]
    rules: Annotated[Sequence[RuleCount], about("Comparison of rules for accepting a port.")]
    details: Annotated[SelftestResult, about("Every fault and every variant.")]
