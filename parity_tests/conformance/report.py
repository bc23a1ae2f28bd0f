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
    """One line of the report: the name of a pair or of what is absent, its row, and whether it is as it should be."""

    name: str
    text: str
    passed: bool


@dataclass(frozen=True)
class Report:
    """The report in Markdown, and the names of the lines that are not as they should be."""

    text: str
    wrong: tuple[str, ...]


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
        return Line(pair.name, f"| **{pair.name}** | {kind} | **{_cell(said)}** | | |", False)
    return Line(pair.name, _row(outcome, kind), outcome.passed)


def _row(outcome: Outcome, kind: str) -> str:
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
        return "the table rejects the tensors", absent.how == "unplanned"
    except (TypeError, ValueError) as fault:
        return f"{type(fault).__name__}", absent.how == "refuses" and absent.says in str(fault)
    text = "differs in size" if isinf(error) else f"differs by {_number(error)}"
    return text, absent.how == "differs" and error > BOUND


def absent_line(absent: Absent) -> Line:
    done, passed = refusal(absent)
    name = absent.name if passed else f"**{absent.name}**"
    return Line(absent.name, f"| {name} | {absent.reason} | {_cell(done)} |", passed)


def report(groups: Mapping[str, Iterable[Pair]] = GROUPS, absent: Iterable[Absent] = ABSENT) -> Report:
    """The whole report."""
    tables = {group: [pair_line(pair) for pair in pairs] for group, pairs in groups.items()}
    missing = [absent_line(each) for each in absent]
    lines = [line for table in tables.values() for line in table]
    wrong = tuple(line.name for line in (*lines, *missing) if not line.passed)
    text = [
        f"With {releases()}.",
        "",
        f"{len(lines)} pairs, {len(missing)} cases that Keras rejects or computes differently; "
        + (f"**{len(wrong)} of them are not as they should be**." if wrong else "all as expected."),
        f"Bound: relative L2 {BOUND:g} in float64.",
    ]
    for group, table in tables.items():
        text += ["", f"## {group[0].upper()}{group[1:]}", "", "| pair | kind | error | killed | mutants |",
                 "|---|---|---|---|---|", *(line.text for line in table)]  # fmt: skip
    if missing:
        text += ["", "## What Keras does not have", "", "| PyTorch | why, and what to do | Keras |", "|---|---|---|",
                 *(line.text for line in missing)]  # fmt: skip
    return Report("\n".join(text) + "\n", wrong)


NOISE = 1e-15
"""Errors below are rounding, which differs between processors and releases."""


def _number(error: float) -> str:
    if error < NOISE:
        return f"< {NOISE:.0e}"
    return "another size" if isinf(error) else f"{error:.0e}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
