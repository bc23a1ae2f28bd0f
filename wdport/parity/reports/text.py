"""Render a verdict as text: in a few lines for ``repr`` and notebooks, or one line per fact, the outcome first.

The card has no style sheet and no script, since notebooks drop both: colours are in the elements, and everything
else is inherited from the page, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wdport.base.errors import printable
from wdport.base.marked_text import Marked, Severity, joined, marked, outcome_line
from wdport.compare.findings import OUTPUT, Gate
from wdport.files.templates import template
from wdport.parity.reports import phrases
from wdport.parity.reports.html import TEMPLATES
from wdport.parity.reports.phrases import LEVELS, NAME_CHARS, number, optional, place
from wdport.parity.verdict import Fault, Verdict

_COLOURS: Final = {"PASS": "#0b6b1d", "FAIL": "#a8201a", "INCOMPLETE": "#7f5200"}
_HEADS: Final = (("gate", "left"), ("outcome", "left"), ("compared", "right"), ("largest error", "left"))
_FEW_LINES: Final = 3


def render_repr(verdict: Verdict) -> str:
    """The verdict, the numbers of gates and layers, the largest errors, and where to find the rest: at most four
    lines."""
    passed, gates = sum(gate.passed for gate in verdict.gates), len(verdict.gates)
    lines = [f"<Verdict {phrases.outcome(verdict)}: {phrases.claim(verdict)}"]
    lines.append(f"  {passed} of {gates} gates passed, {phrases.layers_compared(verdict)}{_errors(verdict)}")
    if faults := verdict.faults:
        lines.append(f"  faulty: {place(faults[0])}" + (f" and {len(faults) - 1} more" if len(faults) > 1 else ""))
    return "\n".join([*lines, "  see verdict.summary() for the full report>"])


def _errors(verdict: Verdict) -> str:
    """The largest number of each of the two gates that judge every layer."""
    errors = [text for gate in verdict.gates if gate.name in ("A", "B") and (text := phrases.largest(gate))]
    return f"; worst {', '.join(errors)}" if errors else ""


def render_card(verdict: Verdict) -> str:
    """The verdict, its gates and its first faulty layers as HTML for a notebook's output."""
    word, faults, waivers = phrases.outcome(verdict), verdict.faults, phrases.waivers_of(verdict)
    remarks = [(place(fault), phrases.remark(verdict, fault, waivers)) for fault in faults[:_FEW_LINES]]
    return template(TEMPLATES / "card.html", 2 * NAME_CHARS).render(
        word=word,
        colour=_COLOURS[word],
        claim=phrases.claim(verdict),
        heads=_HEADS,
        gates=[(gate, _reason(gate), phrases.gate_numbers(gate)) for gate in verdict.gates],
        faults=[f"{site}: {cause}" if cause else site for site, cause in remarks],
        more=max(len(faults) - _FEW_LINES, 0),
        facts=list(filter(None, [phrases.layers_compared(verdict), phrases.took(verdict), phrases.started(verdict)])),
    )


def _reason(gate: Gate) -> str:
    """Why a gate did not pass, by its first finding."""
    return next((str(finding) for finding in gate.findings if not finding.notice), "") or phrases.shortfall(gate)


_INDENT = " " * 7
_LABEL = 12

_MAX_FINDINGS: Mapping[str, int] = {"P": 20, "R": 20, "S": 20}
"""By gate; for gates with a finding for each entry of a file, all findings are shown."""

_FEW = 4
_FEW_SETTINGS: Mapping[str, int] = {"differs": 20, "training": 4}
_MAX_FAULTS = 6


def render_text(verdict: Verdict, columns: int | None = None) -> Marked:
    """The report that `wdport verify` prints; tables wider than ``columns``, if given, are divided."""
    lines = [render_line(verdict), ""]
    if faults := verdict.faults:
        lines += [*_faults(verdict, faults), ""]
    lines += _settings(verdict)
    lines += [line for gate in verdict.gates for line in gate_lines(gate)]
    if verdict.parts:
        lines += ["", *_table(_parts(verdict), columns)]
    if verdict.trajectories:
        lines += ["", *_table(_trajectories(verdict), columns)]
    return joined([*lines, "", *_run(verdict)])


def render_line(verdict: Verdict) -> Marked:
    return outcome_line(verdict.exit_code, phrases.claim(verdict))


def _table(rows: Sequence[Sequence[str]], columns: int | None) -> list[str]:
    """Rows of cells in columns, numbers to the right; where they are too wide, blocks of columns one below the
    other, each with the names."""
    names, *cells = zip(*rows, strict=True)
    lines = [f"{name:<{max(map(len, names))}}" for name in names]
    parts = [lines]
    for column in cells:
        width = max(map(len, column)) + 2
        if columns is not None and parts[-1] is not lines and len(parts[-1][0]) + width > columns:
            parts.append(lines)
        parts[-1] = [f"{line}{cell:>{width}}" for line, cell in zip(parts[-1], column, strict=True)]
    return [line.rstrip() for part in parts for line in part]


def _labelled(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}".rstrip()


def _settings(verdict: Verdict) -> list[str]:
    """Settings that differ between the two models, shown before the gates; they fail nothing."""
    if not verdict.settings.told:
        return []
    by_level = {level: phrases.settings_told(verdict, level) for level in LEVELS}
    noted = by_level["training"] or verdict.settings.note
    mark: tuple[str, Severity] = ("note", "note") if noted else ("ok", "good")
    word, severity = mark if not by_level["differs"] else ("WARN", "doubtful")
    lines: list[str] = [marked(f"{word:<4} {'settings':<16} {phrases.settings_line(verdict)}", word, severity)]
    for level in LEVELS:
        sentences = [f"{phrases.at_layers(names)}: {text}" for text, names in by_level[level].items()]
        lines += [f"{_INDENT}{printable(sentence, NAME_CHARS)}" for sentence in sentences[: _FEW_SETTINGS[level]]]
        if len(sentences) > _FEW_SETTINGS[level]:
            lines.append(f"{_INDENT}and {len(sentences) - _FEW_SETTINGS[level]} more")
    return lines


def gate_lines(gate: Gate) -> list[str]:
    text = f"{gate.outcome:<4} {gate.title:<16} {gate.compared} of {gate.expected} compared"
    if gate.worst is not None and gate.bound is not None:
        text += f"; {phrases.worst(gate)}"
    limit = _MAX_FINDINGS.get(gate.name, _FEW)
    severity: Severity = "good" if gate.passed else "bad" if gate.differs else "doubtful"
    lines: list[str] = [marked(text, gate.outcome, severity)]
    findings, others = list(gate.findings[:limit]), gate.findings[limit:]
    # What explains a number that is shown is shown as well.
    subjects = {finding.subject for finding in findings} - {""}
    findings += [finding for finding in others if finding.notice and finding.subject in subjects][:1]
    lines += [f"{_INDENT}{printable(str(finding), NAME_CHARS)}" for finding in findings]
    if len(gate.findings) > len(findings):
        lines.append(f"{_INDENT}and {len(gate.findings) - len(findings)} more")
    return lines


def _outputs(verdict: Verdict) -> list[str]:
    """The network's outputs with their errors, if there are several."""
    prefix = f"{OUTPUT}."
    taps = {tap.reference: tap for tap in verdict.taps if tap.reference.startswith(prefix) and not tap.candidate}
    return [f"{printable(name.removeprefix(prefix), 40)} {number(tap.cumulative)}" for name, tap in taps.items()]


def _parts(verdict: Verdict) -> list[list[str]]:
    """Per part of the output: float64 errors of values, decoded values and gradients, and float32 ratio."""
    words = verdict.words
    gradients = any(part.gradient is not None for part in verdict.parts)
    heads = [words.one, "layers f64", f"{words.values} f64", f"{words.decoded} f64", "f32 ratio", "energy"]
    rows = [heads + ["gradient f64"] * gradients]
    for index, part in enumerate(verdict.parts):
        slope = "" if part.gradient is None else number(part.gradient)
        rows.append([part.name, *phrases.part_numbers(verdict, index)] + [slope] * gradients)
    return [*rows, [words.decoded, "", "", optional(verdict.decoded), "", ""] + [""] * gradients]


def _trajectories(verdict: Verdict) -> list[list[str]]:
    """The error of the last state of each sampler run."""
    rows = [["sampler", "f64 error", "f32 error"]]
    for run in verdict.trajectories:
        rows.append([run.sampler, *(number(errors[-1]) if errors else "none" for errors in (run.logic, run.single))])
    return rows


def _faults(verdict: Verdict, faults: tuple[Fault, ...]) -> list[str]:
    """The faulty layers, in the order of the computation."""
    waivers = phrases.waivers_of(verdict)
    count = f"{len(faults)} faulty layer{'s' if len(faults) > 1 else ''}"
    lines = [f"{count}, all other layers' outputs replaced by the reference's:"]
    for fault in faults[:_MAX_FAULTS]:
        lines.append(f"  {printable(place(fault), 2 * NAME_CHARS)}")
        lines.append(f"    {phrases.errors_of(fault)}")
        if fault.only:
            lines.append(f"    {printable(fault.only, NAME_CHARS)}")
        if names := phrases.probable(verdict, fault):
            lines.append(f"    probably: {names}")
        if waiver := waivers.get(fault.feeds or fault.reference):
            lines.append(f"    waived {waiver}")
    lines += [f"  and {len(faults) - _MAX_FAULTS} more"] if len(faults) > _MAX_FAULTS else []
    if any(fault.feeds for fault in faults):
        note = "of the faults in what one layer feeds to others, only the first is shown: correct it and verify again"
        lines.append(f"  {note}")
    lines += [f"  to find the first step that differs: {printable(verdict.further, None)}"] if verdict.further else []
    return lines


def _run(verdict: Verdict) -> list[str]:
    """The compared files, the bounds, the date and the releases of the libraries."""
    lines = [_labelled("inputs", "; ".join(verdict.inputs))]
    if outputs := _outputs(verdict):
        lines.append(_labelled("outputs", f"{', '.join(outputs)} (float64, whole network)"))
    lines.append(_labelled("reference", phrases.reference_line(verdict)))
    lines.append(_labelled("bounds", phrases.bounds_line(verdict)))
    if verdict.assumed:
        values = ", ".join(f"{name}={value}" for name, value in verdict.assumed.items())
        lines.append(_labelled("assumed", f"{values} ({phrases.on_assumptions(verdict)})"))
    for what, path, digest in phrases.compared_files(verdict):
        lines.append(_labelled(what, phrases.file_name(path) + (f", SHA-256 {digest}" if digest else "")))
    environment = verdict.environment
    names = [name for name in ("wdport", "torch", "keras", "jax") if name in environment]
    facts = [phrases.started(verdict), ", ".join(f"{name} {environment[name]}" for name in names)]
    facts += [environment[name] for name in ("device",) if name in environment]
    precisions = [environment[name] for name in ("torch_matmul", "jax_matmul") if name in environment]
    facts += [f"matmul {'/'.join(precisions)}"] if precisions else []
    return [*lines, _labelled("run", "; ".join([*filter(None, facts), phrases.took(verdict)]))]
