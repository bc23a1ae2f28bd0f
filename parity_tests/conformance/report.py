"""The report: a table of pairs and one of what Keras has no layer for, in Markdown."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from math import isinf

from .absent import ABSENT
from .engine import BOUND, NoPlanError, Outcome, compared, run, torch_side
from .pair import Absent, Pair
from .suite import GROUPS

RELEASES = ("torch", "keras", "jax", "jaxlib", "numpy")


@dataclass(frozen=True)
class Line:
    """One line of the report, and whether it is as it should be."""

    text: str
    passed: bool


def releases() -> str:
    """What the pairs run with."""
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in RELEASES)])


def pair_line(pair: Pair) -> Line:
    """Run a pair; an error of any kind is a line too, so that one release shows all that it breaks."""
    kind = f"`{pair.kind}`" if pair.kind else "none"
    try:
        outcome = run(pair)
    except Exception as error:
        said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return Line(f"| **{pair.name}** | {kind} | **{_cell(said)}** | | |", False)
    return Line(_told(outcome, kind), outcome.passed)


def _told(outcome: Outcome, kind: str) -> str:
    killed = len(outcome.mutants) - len(outcome.survivors)
    mutants = "; ".join(f"{name} ({_number(error)})" for name, error in outcome.mutants.items())
    if outcome.alarms:
        mutants += f"; **false alarm: {'; '.join(outcome.alarms)}**"
    name = outcome.pair.name if outcome.passed else f"**{outcome.pair.name}**"
    count = f"{killed} of {len(outcome.mutants)}"
    return f"| {name} | {kind} | {_number(outcome.error)} | {count} | {_cell(mutants)} |"


def refusal(absent: Absent) -> tuple[str, bool]:
    """What Keras does in place of the layer, and whether it is what is stated."""
    try:
        error, _ = compared(absent.pair, torch_side(absent.pair), {})
    except NoPlanError:
        return "the table refuses the tensors", absent.how == "unplanned"
    except (TypeError, ValueError) as fault:
        return f"{type(fault).__name__}", absent.how == "refuses" and absent.says in str(fault)
    return f"differs by {_number(error)}", absent.how == "differs" and error > BOUND


def absent_line(absent: Absent) -> Line:
    done, passed = refusal(absent)
    name = absent.name if passed else f"**{absent.name}**"
    return Line(f"| {name} | {absent.reason} | {_cell(done)} |", passed)


def report(groups: Mapping[str, Iterable[Pair]] = GROUPS, absent: Iterable[Absent] = ABSENT) -> tuple[str, bool]:
    """The whole report, and whether every line is as it should be."""
    tables = {group: [pair_line(pair) for pair in pairs] for group, pairs in groups.items()}
    missing = [absent_line(each) for each in absent]
    lines = [line for table in tables.values() for line in table]
    wrong = sum(not line.passed for line in (*lines, *missing))
    text = [
        f"With {releases()}.",
        "",
        f"{len(lines)} pairs, {len(missing)} layers that Keras does not have; "
        + (f"**{wrong} of them are not as they should be**." if wrong else "all are as they should be."),
        f"Bound: relative L2 {BOUND:g} in float64.",
    ]
    for group, table in tables.items():
        text += ["", f"## {group[0].upper()}{group[1:]}", "", "| pair | kind | error | killed | mutants |",
                 "|---|---|---|---|---|", *(line.text for line in table)]  # fmt: skip
    if missing:
        text += ["", "## What Keras does not have", "", "| PyTorch | why, and what to do | Keras |", "|---|---|---|",
                 *(line.text for line in missing)]  # fmt: skip
    return "\n".join(text) + "\n", not wrong


def _number(error: float) -> str:
    return "another size" if isinf(error) else f"{error:.0e}" if error else "0"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
