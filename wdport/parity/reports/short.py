"""A verdict in a few lines: its ``repr``, and the card that notebooks show.

The card has no style sheet and no script, since notebooks drop both: colours are in the elements, and everything
else is inherited from the page, light or dark.
"""

from __future__ import annotations

from html import escape
from typing import Final

from wdport.compare.findings import Gate
from wdport.errors import printable
from wdport.parity.reports.words import NAME_CHARS, claim, number, outcome, place, remark, shortfall, started
from wdport.parity.verdict import Verdict

_COLOURS: Final = {"PASS": "#0b6b1d", "FAIL": "#a8201a", "INCOMPLETE": "#7f5200"}
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
    told = [f"{gate.title} {number(gate.worst)} of {number(gate.bound)}" for gate in verdict.gates
            if gate.name in ("A", "B") and gate.worst is not None and gate.bound is not None]  # fmt: skip
    return f"; worst {', '.join(told)}" if told else ""


def render_card(verdict: Verdict) -> str:
    """The verdict, its gates and its first faulty layers as HTML for a notebook's output."""
    word = outcome(verdict)
    badge = f'<b style="color:#fff;background:{_COLOURS[word]};padding:.15em .5em;border-radius:3px">{word}</b>'
    rows = "".join(map(_row, verdict.gates))
    heads = "".join(f'<th scope="col" style="text-align:{side}">{head}</th>' for head, side in
                    (("gate", "left"), ("outcome", "left"), ("compared", "right"), ("worst", "right"),
                     ("bound", "right")))  # fmt: skip
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    facts = [_layers(verdict), f"{verdict.seconds:.0f} s", started(verdict)]
    return (
        f'<div style="border-left:4px solid {_COLOURS[word]};padding:.2em .8em"><p>{badge} {_text(claim(verdict))}</p>'
        f"{table}{_faults(verdict)}<p>{' · '.join(filter(None, facts))}</p></div>"
    )


def _row(gate: Gate) -> str:
    mark = "ok" if gate.passed else f"<b>{gate.outcome}</b>"
    numbers = ["" if value is None else number(value) for value in (gate.worst, gate.bound)]
    cells = [f"{gate.compared} of {gate.expected}", *numbers]
    right = "".join(f'<td style="text-align:right">{cell}</td>' for cell in cells)
    told = next((str(each) for each in gate.findings if not each.notice), "") or shortfall(gate)
    why = f'<tr><td></td><td colspan="4" style="text-align:left">{_text(told)}</td></tr>' if not gate.passed else ""
    left = f'<td style="text-align:left">{_text(gate.label)}</td><td style="text-align:left">{mark}</td>'
    return f"<tr>{left}{right}</tr>{why}"


def _faults(verdict: Verdict) -> str:
    faults = verdict.faults
    told = [place(each) + (f": {why}" if (why := remark(verdict, each)) else "") for each in faults[:_FEW]]
    more = f"<li>and {len(faults) - _FEW} more</li>" if len(faults) > _FEW else ""
    items = "".join(f"<li>{_text(each)}</li>" for each in told)
    return f"<p>Faulty layers, each wrong in isolation:</p><ol>{items}{more}</ol>" if told else ""


def _text(value: str) -> str:
    return escape(printable(value, 2 * NAME_CHARS))
