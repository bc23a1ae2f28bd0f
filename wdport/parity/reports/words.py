"""Parts of a verdict in; the words and numbers that every report format says of them out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import PurePath
from typing import Final

from wdport.compare.bounds import LOGIC, NUMERICS
from wdport.compare.findings import OUTPUT, Gate, by_subject
from wdport.errors import printable
from wdport.mapping.kinds.kind import Level
from wdport.parity.verdict import Fault, TapResult, Verdict

NAME_CHARS: Final = 240
"""A layer's path in a report; the longest real one has 60 characters, and two that differ should stay apart."""

LEVELS: Final[tuple[Level, Level]] = ("differs", "training")
"""Of settings that differ, in the order in which reports have them."""

TEXT_CHARS: Final = 1000
"""A finding or a list in a report."""


def outcome(verdict: Verdict) -> str:
    """``PASS``, ``FAIL`` or ``INCOMPLETE``."""
    return {0: "PASS", 1: "FAIL"}.get(verdict.exit_code, "INCOMPLETE")


def claim(verdict: Verdict, write: Callable[[str], str] = str) -> str:
    """The verdict as a sentence, with what it rests on; ``write`` puts what comes from files into a format."""
    ours, theirs = write(file_name(verdict.converted)), write(file_name(verdict.checkpoint))
    assuming = ", ".join(write(printable(f"{name} {value}", NAME_CHARS)) for name, value in verdict.assuming.items())
    rest = f", assuming {assuming}" if assuming else ""
    if verdict:
        return f"{ours} computes what {theirs} computes{rest}"
    if verdict.exit_code == 1:
        more = "" if verdict.complete else ", and not everything could be compared"
        return f"{ours} does not compute what {theirs} computes{rest}{more}"
    return f"not everything in {ours} could be compared with {theirs}{rest}"


def on_assumptions(verdict: Verdict, write: Callable[[str], str] = str) -> str:
    """What the values that nothing told are worth in this comparison."""
    if not verdict.reference:
        return "both sides use this"
    own = f"your own code, {write(printable(verdict.reference, NAME_CHARS))},"
    return f"{own} confirms what makes up the network" if verdict else f"the port uses this, {own} need not"


def file_name(path: str) -> str:
    """The last part of a path, safe to print."""
    return printable(PurePath(path).name or path, NAME_CHARS)


def number(value: float) -> str:
    """Three digits at most, as the text report writes them: ``0``, ``2.41``, ``1.5e-15``, ``inf``."""
    if value == 0.0:
        return "0"
    if 0.01 <= abs(value) < 1000.0:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.1e}"


def optional(value: float | None) -> str:
    """The same, with ``unknown`` for what nothing told."""
    return "unknown" if value is None else number(value)


def percent(share: float | None) -> str:
    """A share of the energy."""
    return "unknown" if share is None else f"{100 * share:.1f} %"


def part_name(verdict: Verdict, part: int | None) -> str:
    """The part of the output that a tap belongs to; "" for a layer that belongs to none."""
    if part is None:
        return ""
    return verdict.parts[part].name if 0 <= part < len(verdict.parts) else f"{verdict.words.one} {part}"


def place(fault: Fault) -> str:
    """Where a fault is: the layer, and the layer inside it that it feeds wrongly."""
    own = f"the network itself{_output(fault.reference)}"
    site = f"{fault.reference} -> {fault.candidate}" if fault.candidate else own
    return f"{site}, in what it feeds {fault.feeds}" if fault.feeds else site


def _output(name: str) -> str:
    """Which of several outputs a result of the whole network is about."""
    _, dot, which = name.partition(f"{OUTPUT}.")
    return f", in its output {which}" if dot else ""


def probable(verdict: Verdict, fault: Fault) -> str:
    """The known bugs that explain a fault; "" if none does."""
    return " or ".join(verdict.causes.get(fault.candidate, ()))


def nearness(tap: TapResult) -> float:
    """The largest of a tap's errors as a multiple of what that error may be: above 1 the tap has failed."""
    logic = max(tap.isolated, tap.inputs, tap.cumulative) / LOGIC
    return max(logic, tap.rms_ratio / NUMERICS, tap.max_ratio / NUMERICS, tap.inputs_ratio / NUMERICS)


def said_of(verdict: Verdict, names: Iterable[str], gates: Collection[str]) -> dict[str, list[str]]:
    """What these gates have against layers, by layer."""
    known = set(names)
    findings = [each for gate in verdict.gates if gate.name in gates for each in gate.findings if not each.notice]
    return {name: list(map(str, told)) for name, told in by_subject(findings).items() if name in known}


def doubts(verdict: Verdict) -> dict[str, list[str]]:
    """The layers that the preflight gate says something against: their numbers are not to be relied on."""
    return said_of(verdict, [tap.reference for tap in verdict.taps], ("0",))


def shortfall(gate: Gate) -> str:
    """What of a gate was not compared; "" if everything was."""
    if gate.compared == gate.expected > 0:
        return ""
    if gate.expected <= 0:
        return "nothing was compared"
    return f"{gate.compared} of {gate.expected} compared"


def settings_line(verdict: Verdict) -> str:
    """How many hyper-parameters were compared, and how many of them differ."""
    report = verdict.settings
    if report.note:
        return f"not compared: {report.note}"
    differing, training = (len(report.of(level)) for level in LEVELS)
    layers = f"{report.layers} layer{'' if report.layers == 1 else 's'}"
    text = f"{report.compared} compared at {layers}; {differing or 'none'} differ{'s' if differing == 1 else ''}"
    text += f", {training} that training alone reads" if training else ""
    return f"{text}; not read: {at_layers(report.unread)}" if report.unread else text


def settings_told(verdict: Verdict, level: Level) -> dict[str, list[str]]:
    """What differs, by its sentence, and the layers of the reference where it does."""
    found: dict[str, list[str]] = {}
    for each in verdict.settings.of(level):
        found.setdefault(each.text, []).append(each.reference)
    return found


def at_layers(names: Sequence[str]) -> str:
    """The first of these layers, and how many more there are."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def worst(gate: Gate) -> str:
    """A gate's largest value, its bound and where it is; "" if it has none."""
    if gate.worst is None or gate.bound is None:
        return ""
    at = f" at {printable(gate.where, NAME_CHARS)}" if gate.where else ""
    return f"worst {number(gate.worst)} of {number(gate.bound)}{at}"
