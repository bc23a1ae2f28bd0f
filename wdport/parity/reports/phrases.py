"""Words and numbers for parts of a verdict, shared by all report formats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf, isfinite
from pathlib import PurePath
from typing import Final

from wdport.base.errors import printable
from wdport.base.marked_text import outcome_of
from wdport.compare.findings import OUTPUT, Gate, by_subject, off_by
from wdport.families.registry import known_bounds
from wdport.mapping.kinds.kind import Level
from wdport.parity.verdict import NOT_FRESH, UNTRIED, Fault, TapResult, Verdict

NAME_CHARS: Final = 240
"""Maximum length of a layer's path in a report; the longest real one has 60 characters."""

LEVELS: Final[tuple[Level, Level]] = ("differs", "training")
"""Levels of settings that differ, in the order of reports."""

TIMES: Final = "times PyTorch's rounding error"
"""The head of a column of float32 errors."""

TEXT_CHARS: Final = 1000
"""Maximum length of a finding or a list in a report."""


def outcome(verdict: Verdict) -> str:
    """``PASS``, ``FAIL`` or ``INCOMPLETE``."""
    return outcome_of(verdict.exit_code)[0]


def claim(verdict: Verdict, write: Callable[[str], str] = str, say: Callable[[str], str] | None = None) -> str:
    """The verdict as a sentence, with its assumptions; ``write`` formats text from files, and ``say`` findings, if
    differently."""
    ours, theirs = write(file_name(verdict.converted)), write(file_name(verdict.checkpoint))
    assuming = ", ".join(write(printable(f"{name} {value}", NAME_CHARS)) for name, value in verdict.assuming.items())
    rest = f", with weights rounded to {write(verdict.rounded_to)}" if verdict.rounded_to else ""
    rest += f", assuming {assuming}" if assuming else ""
    allowed = rest + _allowed(verdict)
    if verdict:
        return f"{ours} computes what {theirs} computes{allowed}"
    if unmet := verdict.unmet:
        agree = f"{ours} computes what {theirs} computes{allowed}"
        if any(gate.name == "S" for gate in unmet):  # a comparison that finds no known fault proves nothing
            agree = f"no difference was found between {ours} and {theirs}{allowed}"
        return f"{agree}, but {'; '.join(_unmet(gate, say or write) for gate in unmet)}"
    if verdict.exit_code == 1:
        more = "" if verdict.complete else ", and not everything could be compared"
        if times := _times_less_precise(verdict):
            than = f"{times} PyTorch's rounding error in float32"
            return f"{ours} computes what {theirs} computes in float64{allowed}, but has {than}"
        if _equal_outside(verdict):
            return f"{ours} gives the outputs of {theirs}{allowed}, but not by the same layers{more}"
        return f"{ours} does not compute what {theirs} computes{rest}{more}"
    return f"not everything in {ours} could be compared with {theirs}{rest}"


def _allowed(verdict: Verdict) -> str:
    """What a policy allows to differ, as the end of a sentence that says that the models agree."""
    waived, looser = len(waivers_of(verdict)), any(now > usual for now, usual in changed_bounds(verdict).values())
    except_for = f", except for {waived} waived layer{'s' * (waived > 1)}" if waived else ""
    return except_for + (", by the policy's looser bounds" if looser else "")


def allowances(verdict: Verdict) -> list[str]:
    """What a policy allows to differ, and what was not done, one sentence each; none for a verdict that fails."""
    notices = [finding.detail for gate in verdict.gates for finding in gate.findings]
    skipped = [f"{file_name(verdict.converted)}: {text}" for text in (UNTRIED, NOT_FRESH) if text in notices]
    return [*([claim(verdict)] if _allowed(verdict) else []), *skipped] if verdict else []


_UNMET: Final = {
    "P": "the policy is not met",
    "R": "the errors differ from the baseline",
    "S": "known faults are not found",
}


_INSIDE: Final = ("fact", "silent")
"""Kinds of findings on layers that ran otherwise."""


def _times_less_precise(verdict: Verdict) -> str:
    """How many times as large the float32 errors are, if nothing else is wrong; "" otherwise."""
    wrong = [gate for gate in verdict.gates if not gate.passed]
    if [gate.name for gate in wrong] != ["B"] or not wrong[0].complete or not isfinite(worst := wrong[0].worst or inf):
        return ""
    return f"up to {number(worst)} times"


def _equal_outside(verdict: Verdict) -> bool:
    """Whether the outputs agree with those of the user's own code in every case, and only layers inside do not: code
    may be divided into modules differently."""
    outputs = [tap for tap in verdict.taps if tap.reference.partition(".")[0] == OUTPUT]
    failed = {gate.name: gate.findings for gate in verdict.gates if not gate.passed}
    # A finding without a subject is about the whole port, such as inputs on which it raises.
    plain = all(finding.notice or (finding.kind in _INSIDE and finding.subject.partition(".")[0] not in ("", OUTPUT))
                for finding in failed.get("0", ()))  # fmt: skip
    bounds = verdict.bound("logic"), verdict.bound("numerics")
    within = all(max(tap.cumulative, tap.isolated) <= bounds[0] and tap.rms_ratio <= bounds[1] for tap in outputs)
    layers_only = verdict.reference_kind in ("own", "recording") and failed.keys() <= {"0", "A", "B"}
    return layers_only and plain and bool(outputs) and within


def _unmet(gate: Gate, say: Callable[[str], str]) -> str:
    """Why a policy, a baseline or the known faults failed, by the first finding."""
    reasons = [str(finding) for finding in gate.findings if not finding.notice] or [shortfall(gate)]
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{_UNMET[gate.name]}: {say(printable(reasons[0], NAME_CHARS))}{more}"


def reference_line(verdict: Verdict, write: Callable[[str], str] = str) -> str:
    code = write(printable(verdict.reference_code or verdict.reference, NAME_CHARS))
    if verdict.reference_kind == "wdport":
        return "wdport's own PyTorch implementation"
    kinds = {"library": "the library's own class", "package": "the reference of the family's package",
             "own": "your own code", "recording": "a recording of your own code"}  # fmt: skip
    return f"{kinds[verdict.reference_kind]}, {code}"


def started(verdict: Verdict) -> str:
    """Date and time for people, such as ``2026-11-22 18:05:00 UTC``; "" if unknown."""
    return verdict.started.replace("T", " ").replace("Z", " UTC")


def took(verdict: Verdict) -> str:
    """How long it took, such as ``19 s, 16 s of it known faults``."""
    tried = next((gate.seconds for gate in verdict.gates if gate.name == "S"), None)
    return f"{verdict.seconds:.0f} s" + (f", {tried:.0f} s of it known faults" if tried else "")


def compared_files(verdict: Verdict) -> list[tuple[str, str, str]]:
    """The role of each compared file, its path, and its SHA-256, "" if unknown."""
    first = "recording" if "recording" in verdict.digests else "checkpoint"
    paths = {first: verdict.checkpoint, "converted": verdict.converted}
    return [(what, path, verdict.digests.get(what, "")) for what, path in paths.items()]


def changed_bounds(verdict: Verdict) -> dict[str, tuple[float, float]]:
    """The bounds that a policy changed, by name: the one in force and the default."""
    defaults = {name: bound.value for name, bound in known_bounds().items()}
    pairs = {name: (value, defaults.get(name, value)) for name, value in verdict.bounds.items()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def bounds_line(verdict: Verdict) -> str:
    """The two bounds that judge every layer, and those that a policy changed."""
    bounds = f"relative error {number(verdict.bound('logic'))} in float64, {number(verdict.bound('numerics'))} times"
    changed = [f"{name} {number(now)} for {number(usual)}" for name, (now, usual) in changed_bounds(verdict).items()]
    return f"{bounds} PyTorch's rounding error in float32" + (
        f"; by the policy: {', '.join(changed)}" if changed else "")  # fmt: skip


def on_assumptions(verdict: Verdict, write: Callable[[str], str] = str) -> str:
    """How far the comparison confirms the assumed values."""
    if not verdict.reference:
        return "both sides use this"
    reference = f"your own code, {write(printable(verdict.reference, NAME_CHARS))},"
    confirmed = verdict or verdict.unmet
    return (f"{reference} confirms those that define the network" if confirmed
            else f"the port uses this, {reference} may not")  # fmt: skip


def file_name(path: str) -> str:
    """The last part of a path, safe to print."""
    return printable(PurePath(path).name or path, NAME_CHARS)


def number(value: float) -> str:
    """At most three digits, as in the text report: ``0``, ``2.41``, ``1.5e-15``, ``inf``."""
    if value == 0.0:
        return "0"
    if 0.01 <= abs(value) < 1000.0:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.1e}"


def optional(value: float | None) -> str:
    """The same, with ``unknown`` for ``None``."""
    return "unknown" if value is None else number(value)


def percent(share: float | None) -> str:
    """A share of the energy."""
    return "unknown" if share is None else f"{100 * share:.1f} %"


def part_name(verdict: Verdict, part: int | None) -> str:
    """The part of the output that a tap belongs to; "" if it belongs to none."""
    if part is None:
        return ""
    return verdict.parts[part].name if 0 <= part < len(verdict.parts) else f"{verdict.words.one} {part}"


def place(fault: Fault) -> str:
    """The place of a fault: the layer, and the layer inside it that it feeds wrongly."""
    _, dot, output = fault.reference.partition(f"{OUTPUT}.")
    network = f"the network itself, in its output {output}" if dot else "the network itself"
    site = f"{fault.reference} -> {fault.candidate}" if fault.candidate else network
    return f"{site}, in what it feeds {fault.feeds}" if fault.feeds else site


def probable(verdict: Verdict, fault: Fault) -> str:
    """The known bugs that explain a fault; "" if none does."""
    return " or ".join(verdict.causes.get(fault.candidate, ()))


def errors_of(fault: Fault) -> str:
    """How far a faulty layer is off."""
    # Zero where nothing was compared in float32.
    is_known = fault.logic < inf and fault.ratio > 0
    single = f", {number(fault.ratio)} times PyTorch's rounding error in float32" if is_known else ""
    return f"{off_by(fault.logic, number(fault.logic))} in float64{single}"


def replaceable(verdict: Verdict) -> str:
    """What a verdict that passes means for whoever uses the model; "" for others, and where a policy allows more."""
    if not verdict or _allowed(verdict):
        return ""
    return ("On all inputs that were tried, every layer returned PyTorch's numbers, up to rounding: the converted "
            "model can take the place of the PyTorch model.")  # fmt: skip


def next_steps(verdict: Verdict) -> list[str]:
    """What to do about a verdict that does not pass, one sentence each; the command to look further is apart."""
    if verdict or verdict.unmet:
        return []
    if not verdict.faults:
        lacking = ", ".join(gate.title for gate in verdict.gates if not gate.passed)
        return [f"Correct what the findings of {lacking} name, and verify again."] if lacking else []
    first = verdict.faults[0]
    steps = [f"Correct {place(first)}{f': {cause}' if (cause := probable(verdict, first)) else ''}."]
    if verdict.further:
        steps = [f"Compare the code of both models at {place(first)}."]
    if len(verdict.faults) > 1 or first.feeds:
        steps += ["Verify again: what follows a fault may be wrong because of it."]
    return steps


def remark(verdict: Verdict, fault: Fault, waivers: Mapping[str, str]) -> str:
    """The only inputs with which a fault shows, its explanation, and which of the ``waivers`` of :func:`waivers_of`
    lets it pass."""
    waiver = waivers.get(fault.feeds or fault.reference)
    return "; ".join(filter(None, (fault.only, probable(verdict, fault), f"waived {waiver}" if waiver else "")))


def nearness(verdict: Verdict, tap: TapResult) -> float:
    """The largest of a tap's errors as a multiple of the bound in force: above 1 the tap fails."""
    logic = max(tap.isolated, tap.inputs, tap.cumulative) / verdict.bound("logic")
    return max(logic, max(tap.rms_ratio, tap.max_ratio, tap.inputs_ratio) / verdict.bound("numerics"))


def own_error(tap: TapResult) -> float:
    """The larger float64 error of a layer's isolated outputs and of the inputs that its caller feeds it."""
    return max(tap.isolated, tap.inputs)


def float64_errors(tap: TapResult) -> str:
    errors = map(number, (tap.isolated, tap.inputs, tap.cumulative))
    return "{} isolated, {} in its inputs, {} within the network".format(*errors)


def layers_compared(verdict: Verdict) -> str:
    return f"{len(verdict.taps)} layer{'' if len(verdict.taps) == 1 else 's'} compared"


def layers_error(verdict: Verdict, part: int) -> float | None:
    """The largest of these errors among the layers of one part; ``None`` if it has none."""
    return max((own_error(tap) for tap in verdict.taps if tap.part == part), default=None)


def part_numbers(verdict: Verdict, index: int) -> tuple[str, str, str, str, str]:
    """Of one part: the errors of its layers, of its values and of the decoded values, the ratio and the energy."""
    part, layers = verdict.parts[index], layers_error(verdict, index)
    layers_text = "" if layers is None else number(layers)
    return layers_text, number(part.values), optional(part.decoded), number(part.ratio), percent(part.energy)


_ROUNDING: Final = ("float32", "bfloat16")
"""Kinds of numbers that are multiples of a rounding error."""


def largest(gate: Gate) -> str:
    """A gate's largest number and its bound, in words; "" if it has none."""
    if gate.worst is None or gate.bound is None:
        return ""
    value = number(gate.worst)
    if gate.kind in _ROUNDING:
        value += f" times {'the model' if gate.name == 'X' else 'PyTorch'}'s rounding error"
    else:
        value = f"{value} units in the last place" if gate.kind == "ulp" else f"relative error {value}"
    return f"{value} (at most {number(gate.bound)})"


def gate_numbers(gate: Gate) -> list[str]:
    """The count of a gate, and its largest number with the bound of that."""
    return [f"{gate.compared} of {gate.expected}", largest(gate)]


def waivers_of(verdict: Verdict) -> dict[str, str]:
    """Until when and why a policy lets layers pass, by layer."""
    findings = [finding for gate in verdict.gates for finding in gate.findings if finding.kind == "waived"]
    groups = by_subject(findings).items()
    return {name: "; ".join(dict.fromkeys(finding.detail for finding in group)) for name, group in groups}


def said_of(verdict: Verdict, names: Iterable[str], gates: Collection[str]) -> dict[str, list[str]]:
    """These gates' findings on layers, by layer."""
    layers = set(names)
    judged = [gate for gate in verdict.gates if gate.name in gates]
    findings = [finding for gate in judged for finding in gate.findings if not finding.notice]
    return {layer: list(map(str, group)) for layer, group in by_subject(findings).items() if layer in layers}


def doubts(verdict: Verdict) -> dict[str, list[str]]:
    """The layers that the preflight gate has findings on: their numbers are not reliable."""
    return said_of(verdict, [tap.reference for tap in verdict.taps], ("0",))


def shortfall(gate: Gate) -> str:
    """The missing comparisons of a gate; "" if there are none."""
    if gate.compared == gate.expected > 0:
        return ""
    if gate.expected <= 0:
        return "nothing was compared"
    return f"{gate.compared} of {gate.expected} compared"


def settings_line(verdict: Verdict) -> str:
    """The number of hyper-parameters that were compared, and the number that differ."""
    report = verdict.settings
    if report.note:
        return f"not compared: {report.note}"
    differing, training = (len(report.of(level)) for level in LEVELS)
    layers = f"{report.layers} layer{'' if report.layers == 1 else 's'}"
    text = f"{report.compared} compared at {layers}; {differing or 'none'} differ{'s' if differing == 1 else ''}"
    text += f", {training} that only training reads" if training else ""
    return f"{text}; not read: {at_layers(report.unread)}" if report.unread else text


def settings_note(verdict: Verdict) -> str:
    """What settings that differ mean for this verdict; "" if none do."""
    if not verdict.settings.of("differs"):
        return ""
    if verdict or verdict.unmet:
        return " Both models agree all the same: another layer makes up for what differs."
    return " What differs may be the cause of a fault, or another layer makes up for it."


def settings_told(verdict: Verdict, level: Level) -> dict[str, list[str]]:
    """Settings that differ, by sentence, and the layers of the reference where they do."""
    layers_by_text: dict[str, list[str]] = {}
    for setting in verdict.settings.of(level):
        layers_by_text.setdefault(setting.text, []).append(setting.reference)
    return layers_by_text


def at_layers(names: Sequence[str]) -> str:
    """The first of these layers, and the number of others."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def worst(gate: Gate) -> str:
    """A gate's largest number, its bound and where it is; "" if it has none."""
    location = f" at {printable(gate.where, NAME_CHARS)}" if gate.where else ""
    return f"worst {text}{location}" if (text := largest(gate)) else ""
