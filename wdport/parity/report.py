"""A verdict as one screen of text, the verdict first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wdport.errors import printable
from wdport.parity.bounds import LOGIC, NUMERICS
from wdport.parity.verdict import Fault, Gate, Verdict

_MAX_FINDINGS = 4
_MAX_FAULTS = 6


def render(verdict: Verdict) -> str:
    """The report that `wdport verify` prints."""
    lines = [_headline(verdict), "", *(_gate(gate) for gate in verdict.gates), ""]
    lines += _levels(verdict)
    if verdict.faults:
        lines += ["", *_faults(verdict.faults, verdict.causes)]
    lines += ["", f"inputs     {'; '.join(verdict.inputs)}"]
    if verdict.assumed:
        lines.append(f"assumed    {', '.join(f'{k}={v}' for k, v in verdict.assumed.items())} (both sides use this)")
    environment = verdict.environment
    packages = ", ".join(f"{name} {environment[name]}" for name in ("torch", "keras", "jax"))
    precision = f"matmul {environment['torch_matmul']}/{environment['jax_matmul']}"
    lines.append(f"run        {packages}; {environment['device']}; {precision}; {verdict.seconds:.0f} s")
    return "\n".join(lines)


def _headline(verdict: Verdict) -> str:
    names = (printable(Path(verdict.converted).name), printable(Path(verdict.checkpoint).name))
    if verdict:
        return "PASS  {} computes what {} computes".format(*names)
    if not verdict.complete:
        return "INCOMPLETE  not everything in {} could be compared with {}".format(*names)
    return "FAIL  {} does not compute what {} computes".format(*names)


def _gate(gate: Gate) -> str:
    mark = "ok  " if gate.passed else "FAIL"
    text = f"{mark} gate {gate.name:<2}  {gate.title:<18} {gate.compared} of {gate.expected} compared"
    if gate.worst is not None and gate.bound is not None:
        text += f"; worst {_number(gate.worst)} of {_number(gate.bound)} at {printable(gate.where, 60)}"
    shown = [f"       {printable(finding, 110)}" for finding in gate.findings[:_MAX_FINDINGS]]
    if len(gate.findings) > _MAX_FINDINGS:
        shown.append(f"       and {len(gate.findings) - _MAX_FINDINGS} more")
    return "\n".join([text, *shown])


def _levels(verdict: Verdict) -> list[str]:
    """Per wavelet level: float64 errors of coefficients and series, float32 error as a ratio."""
    head = f"{'level':<8}{'layers f64':>12}{'coefficients f64':>18}{'series f64':>12}{'f32 ratio':>11}{'energy':>9}"
    lines = [head]
    for index, level in enumerate(verdict.levels):
        layers = max((tap.isolated for tap in verdict.taps if tap.level == index), default=None)
        series = "unknown" if level.series is None else _number(level.series)
        own = "" if layers is None else _number(layers)
        energy = "unknown" if level.energy is None else f"{100 * level.energy:.1f} %"
        numbers = f"{_number(level.coefficients):>18}{series:>12}{_number(level.ratio):>11}{energy:>9}"
        lines.append(f"{level.name:<8}{own:>12}{numbers}")
    whole = "unknown" if verdict.series is None else _number(verdict.series)
    lines.append(f"{'series':<8}{'':>12}{'':>18}{whole:>12}   (bounds: f64 {LOGIC:.0e} relative, f32 {NUMERICS:g} x)")
    return lines


def _faults(faults: tuple[Fault, ...], causes: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Where the port is off by itself, the first place first."""
    lines = [
        f"{len(faults)} faulty layer{'s' if len(faults) > 1 else ''}, everything else answered for by the reference:"
    ]
    for fault in faults[:_MAX_FAULTS]:
        place = f"{fault.reference} -> {fault.candidate}" if fault.candidate else "the network itself"
        if fault.feeds:
            place += f", in what it feeds {fault.feeds}"
        lines.append(f"  {printable(place, 90):<90} f64 {_number(fault.logic):>8}  f32 {_number(fault.ratio):>8} x")
        if names := causes.get(fault.candidate):
            lines.append(f"    probably: {' or '.join(names)}")
    return lines + ([f"  and {len(faults) - _MAX_FAULTS} more"] if len(faults) > _MAX_FAULTS else [])


def _number(value: float) -> str:
    if value == 0.0 or 0.01 <= abs(value) < 1000.0:
        return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
    return f"{value:.1e}"
