"""A verdict as one screen of text, the verdict first."""

from __future__ import annotations

from collections.abc import Mapping

from wdport.compare.bounds import LOGIC, NUMERICS
from wdport.compare.findings import OUTPUT, Gate
from wdport.errors import printable
from wdport.parity.reports.words import (
    LEVELS,
    at_layers,
    claim,
    number,
    on_assumptions,
    outcome,
    percent,
    place,
    probable,
    settings_line,
    settings_told,
)
from wdport.parity.verdict import Fault, Verdict

_MAX_FINDINGS: Mapping[str, int] = {"P": 20, "R": 20, "S": 20}
"""By gate: those that speak of each entry of a file are shown with all of them."""

_FEW = 4
_FEW_SETTINGS: Mapping[str, int] = {"differs": 20, "training": 4}
_MAX_FAULTS = 6


def render_text(verdict: Verdict) -> str:
    """The report that `wdport verify` prints."""
    lines = [f"{outcome(verdict)}  {claim(verdict)}", "", *_settings(verdict), *map(_gate, verdict.gates)]
    if verdict.parts:
        lines += ["", *_parts(verdict)]
    if verdict.trajectories:
        lines += ["", *_trajectories(verdict)]
    if faults := verdict.faults:
        lines += ["", *_faults(verdict, faults)]
    lines += ["", f"inputs     {'; '.join(verdict.inputs)}"]
    if outputs := _outputs(verdict):
        lines.append(f"outputs    {', '.join(outputs)} (float64, whole network)")
    if verdict.assumed:
        values = ", ".join(f"{name}={value}" for name, value in verdict.assumed.items())
        lines.append(f"assumed    {values} ({on_assumptions(verdict)})")
    lines += [f"SHA-256    {digest}  {name}" for name, digest in verdict.digests.items()]
    environment = verdict.environment
    packages = ", ".join(f"{name} {environment[name]}" for name in ("torch", "keras", "jax"))
    precision = f"matmul {environment['torch_matmul']}/{environment['jax_matmul']}"
    lines.append(f"run        {packages}; {environment['device']}; {precision}; {verdict.seconds:.0f} s")
    return "\n".join(lines)


def _settings(verdict: Verdict) -> list[str]:
    """What the two models were told differently, before every number: it fails nothing."""
    if not verdict.settings.told:
        return []
    found = {level: settings_told(verdict, level) for level in LEVELS}
    mark = "WARN" if found["differs"] else "note" if found["training"] or verdict.settings.note else "ok  "
    lines = [f"{mark} {'settings':<30} {settings_line(verdict)}"]
    for level in LEVELS:
        told = [f"{at_layers(names)}: {text}" for text, names in found[level].items()]
        lines += [f"       {printable(each, 160)}" for each in told[: _FEW_SETTINGS[level]]]
        if len(told) > _FEW_SETTINGS[level]:
            lines.append(f"       and {len(told) - _FEW_SETTINGS[level]} more")
    return lines


def _gate(gate: Gate) -> str:
    mark = "ok  " if gate.passed else "FAIL"
    text = f"{mark} gate {gate.name:<2}  {gate.title:<21} {gate.compared} of {gate.expected} compared"
    if gate.worst is not None and gate.bound is not None:
        text += f"; worst {number(gate.worst)} of {number(gate.bound)} at {printable(gate.where, 60)}"
    most = _MAX_FINDINGS.get(gate.name, _FEW)
    shown = [f"       {printable(str(finding), 130)}" for finding in gate.findings[:most]]
    if len(gate.findings) > most:
        shown.append(f"       and {len(gate.findings) - most} more")
    return "\n".join([text, *shown])


def _outputs(verdict: Verdict) -> list[str]:
    """The network's outputs where there are several, each with its error."""
    found = {tap.reference: tap for tap in verdict.taps if tap.reference.startswith(f"{OUTPUT}.") and not tap.candidate}
    return [f"{printable(name.removeprefix(f'{OUTPUT}.'), 40)} {number(tap.cumulative)}" for name, tap in found.items()]


def _parts(verdict: Verdict) -> list[str]:
    """Per part of the output: float64 errors of values, of what they decode to and of gradients, float32 ratio."""
    told = verdict.words
    gradients = any(part.gradient is not None for part in verdict.parts)
    columns = (f"{told.one:<8}", f"{'layers f64':>12}", f"{told.values + ' f64':>18}", f"{told.decoded + ' f64':>12}")
    head = f"{''.join(columns)}{'f32 ratio':>11}{'energy':>9}"
    lines = [f"{head}{'gradient f64':>14}" if gradients else head]
    for index, part in enumerate(verdict.parts):
        layers = max((tap.isolated for tap in verdict.taps if tap.part == index), default=None)
        own = "" if layers is None else number(layers)
        decoded = "unknown" if part.decoded is None else number(part.decoded)
        numbers = f"{number(part.values):>18}{decoded:>12}{number(part.ratio):>11}{percent(part.energy):>9}"
        slope = "" if part.gradient is None else f"{number(part.gradient):>14}"
        lines.append(f"{part.name:<8}{own:>12}{numbers}{slope}")
    whole = "unknown" if verdict.decoded is None else number(verdict.decoded)
    lines.append(
        f"{told.decoded:<8}{'':>12}{'':>18}{whole:>12}   (bounds: f64 {LOGIC:.0e} relative, f32 {NUMERICS:g} x)"
    )
    return lines


def _trajectories(verdict: Verdict) -> list[str]:
    """Per sampler run, the error of its last state."""
    lines = [f"{'sampler':<34}{'f64 error':>10}{'f32 error':>12}"]
    for each in verdict.trajectories:
        ends = [number(errors[-1]) if errors else "none" for errors in (each.logic, each.single)]
        lines.append(f"{each.sampler:<34}{ends[0]:>10}{ends[1]:>12}")
    return lines


def _faults(verdict: Verdict, faults: tuple[Fault, ...]) -> list[str]:
    """Where the port is off by itself, the first place first."""
    count = f"{len(faults)} faulty layer{'s' if len(faults) > 1 else ''}"
    lines = [f"{count}, everything else answered for by the reference:"]
    for fault in faults[:_MAX_FAULTS]:
        errors = f"f64 {number(fault.logic):>8}  f32 {number(fault.ratio):>8} x"
        lines.append(f"  {printable(place(fault), 90):<90} {errors}")
        if names := probable(verdict, fault):
            lines.append(f"    probably: {names}")
    lines += [f"  and {len(faults) - _MAX_FAULTS} more"] if len(faults) > _MAX_FAULTS else []
    if any(fault.feeds for fault in faults):
        lines.append(
            "  of what a layer's own code feeds to others, the first fault is shown: mend it, then verify again"
        )
    return lines
