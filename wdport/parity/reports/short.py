"""A verdict in a few lines: its ``repr``, and the card that notebooks show.

The card has no style sheet and no script, since notebooks drop both: colours are in the elements, and everything
else is inherited from the page, light or dark.
"""

from __future__ import annotations

from typing import Final

from wdport.compare.findings import Gate
from wdport.files.templates import template
from wdport.parity.reports.html import TEMPLATES
from wdport.parity.reports.words import NAME_CHARS, claim, number, outcome, place, remark, shortfall, started
from wdport.parity.verdict import Verdict

_COLOURS: Final = {"PASS": "#0b6b1d", "FAIL": "#a8201a", "INCOMPLETE": "#7f5200"}
_HEADS: Final = (("gate", "left"), ("outcome", "left"), ("compared", "right"), ("worst", "right"), ("bound", "right"))
_FEW: Final = 3


def render_repr(verdict: Verdict) -> str:
    """The verdict, the numbers of gates and layers, the largest errors, and where to find the rest: at most four
    lines."""
    passed, gates = sum(gate.passed for gate in verdict.gates), len(verdict.gates)
    lines = [f"<Verdict {outcome(verdict)}: {claim(verdict)}"]
    lines.append(f"  {passed} of {gates} gates passed, {_layers(verdict)}{_errors(verdict)}")
    if faults := verdict.faults:
        lines.append(f"  faulty: {place(faults[0])}" + (f" and {len(faults) - 1} more" if len(faults) > 1 else ""))
    return "\n".join([*lines, "  see verdict.summary() for the full report>"])


def _layers(verdict: Verdict) -> str:
    return f"{len(verdict.taps)} layer{'' if len(verdict.taps) == 1 else 's'} compared"


def _errors(verdict: Verdict) -> str:
    """The largest number of each of the two gates that judge every layer."""
    errors = [f"{gate.title} {number(gate.worst)} of {number(gate.bound)}" for gate in verdict.gates
              if gate.name in ("A", "B") and gate.worst is not None and gate.bound is not None]  # fmt: skip
    return f"; worst {', '.join(errors)}" if errors else ""


def render_card(verdict: Verdict) -> str:
    """The verdict, its gates and its first faulty layers as HTML for a notebook's output."""
    word, faults = outcome(verdict), verdict.faults
    remarks = [(place(fault), remark(verdict, fault)) for fault in faults[:_FEW]]
    return template(TEMPLATES / "card.html", 2 * NAME_CHARS).render(
        word=word,
        colour=_COLOURS[word],
        claim=claim(verdict),
        heads=_HEADS,
        gates=[(gate, _reason(gate), _cells(gate)) for gate in verdict.gates],
        faults=[f"{site}: {cause}" if cause else site for site, cause in remarks],
        more=max(len(faults) - _FEW, 0),
        facts=list(filter(None, [_layers(verdict), f"{verdict.seconds:.0f} s", started(verdict)])),
    )


def _reason(gate: Gate) -> str:
    """Why a gate did not pass, by its first finding."""
    return next((str(finding) for finding in gate.findings if not finding.notice), "") or shortfall(gate)


def _cells(gate: Gate) -> list[str]:
    """The columns of numbers."""
    numbers = ["" if value is None else number(value) for value in (gate.worst, gate.bound)]
    return [f"{gate.compared} of {gate.expected}", *numbers]
