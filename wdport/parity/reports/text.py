"""Render a verdict as text of 80 columns, the outcome first; names of layers and files are never cut or broken."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

from wdport.compare.findings import OUTPUT, Gate
from wdport.errors import printable
from wdport.parity.reports.words import (
    LEVELS,
    NAME_CHARS,
    at_layers,
    bounds_line,
    claim,
    compared_files,
    file_name,
    layers_error,
    number,
    on_assumptions,
    outcome,
    percent,
    place,
    probable,
    reference_line,
    settings_line,
    settings_told,
    started,
    waived,
)
from wdport.parity.verdict import Fault, Verdict

COLUMNS = 80

_KEEP = "\N{NO-BREAK SPACE}"
"""Never in text from a file: :func:`~wdport.errors.printable` escapes it."""

_INDENT = 7
_LABEL = 11

_MAX_FINDINGS: Mapping[str, int] = {"P": 20, "R": 20, "S": 20}
"""By gate; for gates with a finding for each entry of a file, all findings are shown."""

_FEW = 4
_FEW_SETTINGS: Mapping[str, int] = {"differs": 20, "training": 4}
_MAX_FAULTS = 6


def render_text(verdict: Verdict) -> str:
    """The report that `wdport verify` prints."""
    lines = [*_wrapped(render_line(verdict), 0, 6), "", *_settings(verdict)]
    lines += [line for gate in verdict.gates for line in _gate(gate)]
    if verdict.parts:
        lines += ["", *_parts(verdict)]
    if verdict.trajectories:
        lines += ["", *_trajectories(verdict)]
    if faults := verdict.faults:
        lines += ["", *_faults(verdict, faults)]
    return "\n".join([*lines, "", *_run(verdict)])


def render_line(verdict: Verdict) -> str:
    """The verdict in one line."""
    return f"{outcome(verdict)}  {claim(verdict)}"


def _wrapped(text: str, indent: int, further: int) -> list[str]:
    """Wrap lines between words only: a name wider than the screen stays whole."""
    lines = wrap(text, COLUMNS, initial_indent=" " * indent, subsequent_indent=" " * further, break_long_words=False,
                 break_on_hyphens=False)  # fmt: skip
    return [line.replace(_KEEP, " ") for line in lines]


def _kept(text: str) -> str:
    """Words that stay on one line."""
    return text.replace(" ", _KEEP)


def _labelled(label: str, text: str) -> list[str]:
    return _wrapped(f"{label:<{_LABEL}}{text}".rstrip(), 0, _LABEL)


def _settings(verdict: Verdict) -> list[str]:
    """Settings that differ between the two models, shown before the gates; they fail nothing."""
    if not verdict.settings.told:
        return []
    found = {level: settings_told(verdict, level) for level in LEVELS}
    mark = "WARN" if found["differs"] else "note" if found["training"] or verdict.settings.note else "ok  "
    lines = _wrapped(f"{mark} {'settings':<21} {settings_line(verdict)}", 0, _INDENT + 2)
    for level in LEVELS:
        told = [f"{at_layers(names)}: {text}" for text, names in found[level].items()]
        for each in told[: _FEW_SETTINGS[level]]:
            lines += _wrapped(printable(each, NAME_CHARS), _INDENT, _INDENT + 2)
        if len(told) > _FEW_SETTINGS[level]:
            lines.append(f"{'':{_INDENT}}and {len(told) - _FEW_SETTINGS[level]} more")
    return lines


def _gate(gate: Gate) -> list[str]:
    mark = "ok  " if gate.passed else "FAIL"
    text = f"{mark} {gate.label:<21} {gate.compared} of {gate.expected} compared"
    if gate.worst is not None and gate.bound is not None:
        text += f"; worst {number(gate.worst)} of {number(gate.bound)}"
        text += f" {_kept(f'at {printable(gate.where, NAME_CHARS)}')}"
    most = _MAX_FINDINGS.get(gate.name, _FEW)
    lines = _wrapped(text, 0, _INDENT + 2)
    for finding in gate.findings[:most]:
        lines += _wrapped(printable(str(finding), NAME_CHARS), _INDENT, _INDENT + 2)
    if len(gate.findings) > most:
        lines.append(f"{'':{_INDENT}}and {len(gate.findings) - most} more")
    return lines


def _outputs(verdict: Verdict) -> list[str]:
    """The network's outputs with their errors, if there are several."""
    found = {tap.reference: tap for tap in verdict.taps if tap.reference.startswith(f"{OUTPUT}.") and not tap.candidate}
    return [f"{printable(name.removeprefix(f'{OUTPUT}.'), 40)} {number(tap.cumulative)}" for name, tap in found.items()]


def _parts(verdict: Verdict) -> list[str]:
    """Per part of the output: float64 errors of values, decoded values and gradients, and float32 ratio."""
    told = verdict.words
    gradients = any(part.gradient is not None for part in verdict.parts)
    columns = (f"{told.one:<8}", f"{'layers f64':>11}", f"{told.values + ' f64':>17}", f"{told.decoded + ' f64':>12}")
    head = f"{''.join(columns)}{'f32 ratio':>10}{'energy':>8}"
    lines = [f"{head}{'gradient f64':>13}" if gradients else head]
    for index, part in enumerate(verdict.parts):
        layers = layers_error(verdict, index)
        own = "" if layers is None else number(layers)
        decoded = "unknown" if part.decoded is None else number(part.decoded)
        numbers = f"{number(part.values):>17}{decoded:>12}{number(part.ratio):>10}{percent(part.energy):>8}"
        slope = "" if part.gradient is None else f"{number(part.gradient):>13}"
        lines.append(f"{part.name:<8}{own:>11}{numbers}{slope}")
    whole = "unknown" if verdict.decoded is None else number(verdict.decoded)
    lines.append(f"{told.decoded:<8}{'':>11}{'':>17}{whole:>12}")
    return lines


def _trajectories(verdict: Verdict) -> list[str]:
    """The error of the last state of each sampler run."""
    lines = [f"{'sampler':<34}{'f64 error':>10}{'f32 error':>12}"]
    for each in verdict.trajectories:
        ends = [number(errors[-1]) if errors else "none" for errors in (each.logic, each.single)]
        lines.append(f"{each.sampler:<34}{ends[0]:>10}{ends[1]:>12}")
    return lines


def _faults(verdict: Verdict, faults: tuple[Fault, ...]) -> list[str]:
    """The faulty layers, in the order of the computation."""
    count = f"{len(faults)} faulty layer{'s' if len(faults) > 1 else ''}"
    lines = [f"{count}, all other layers' outputs replaced by the reference's:"]
    for fault in faults[:_MAX_FAULTS]:
        lines += _wrapped(printable(place(fault), 2 * NAME_CHARS), 2, 6)
        lines.append(f"    off by {number(fault.logic)} in float64, {number(fault.ratio)} times PyTorch's in float32")
        if names := probable(verdict, fault):
            lines += _wrapped(f"probably: {names}", 4, 6)
        if waiver := waived(verdict, fault.feeds or fault.reference):
            lines += _wrapped(f"waived {waiver}", 4, 6)
    lines += [f"  and {len(faults) - _MAX_FAULTS} more"] if len(faults) > _MAX_FAULTS else []
    if any(fault.feeds for fault in faults):
        said = "of the faults in what one layer feeds to others, only the first is shown: correct it and verify again"
        lines += _wrapped(said, 2, 6)
    return lines


def _run(verdict: Verdict) -> list[str]:
    """The compared files, the bounds, the date and the releases of the libraries."""
    lines = _labelled("inputs", "; ".join(verdict.inputs))
    if outputs := _outputs(verdict):
        lines += _labelled("outputs", f"{', '.join(outputs)} (float64, whole network)")
    lines += _labelled("reference", reference_line(verdict))
    lines += _labelled("bounds", bounds_line(verdict))
    if verdict.assumed:
        values = ", ".join(f"{name}={value}" for name, value in verdict.assumed.items())
        lines += _labelled("assumed", f"{values} ({on_assumptions(verdict)})")
    for what, path, digest in compared_files(verdict):
        lines += _labelled(what, file_name(path) + (", SHA-256" if digest else ""))
        lines += [f"{'':{_LABEL}}{digest}"] if digest else []
    environment = verdict.environment
    names = [name for name in ("wdport", "torch", "keras", "jax") if name in environment]
    facts = [started(verdict), ", ".join(f"{name} {environment[name]}" for name in names)]
    facts += [environment[name] for name in ("device",) if name in environment]
    precisions = [environment[name] for name in ("torch_matmul", "jax_matmul") if name in environment]
    facts += [f"matmul {'/'.join(precisions)}"] if precisions else []
    return [*lines, *_labelled("run", "; ".join([*filter(None, facts), f"{verdict.seconds:.0f} s"]))]
