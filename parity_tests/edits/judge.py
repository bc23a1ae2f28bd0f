"""What the outcome of an edit shows: whether it was found, at the right place, and with the right cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from wdport.compare.calls import layer_of

GATES = {
    "sampling": ("E", "E'", "H"),
    "series": ("F",),
    "file": ("0",),
    "coding": ("G",),
    "generation": ("I",),
    "export": ("X", "T"),
    "optimizer": ("D", "D'"),
}
"""The gates that are about an area outside the network; any of them may find its edits."""


def placed(edit: Mapping[str, Any], outcome: Mapping[str, Any]) -> bool | None:
    """Whether the outcome names the edit's place: for ``layers`` only these, or else a gate of the edit's area.

    ``None`` if there is none to be named: the faulty code was refused before a comparison, or no gate is of its area.
    """
    gates = dict(outcome.get("gates", ()))
    if outcome["error"] or ("layers" not in edit and edit["area"] not in GATES):
        return None
    if "layers" not in edit:
        return bool(set(gates) & set(GATES[edit["area"]]))
    layers = edit["layers"]
    found = [layer_of(candidate) for _, candidate, _ in outcome.get("faults", ())]
    if found:
        return all(_fits(layers, path) for path in found)
    missing = [layer_of(call) for call in outcome.get("missing", ())]  # not run, since not called inside one of them
    below = [f"{path}/*" if path else "*" for path in layers]
    return bool(missing) and all(_fits([*layers, *below], path) for path in missing)


def cause(edit: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
    """ "right" if the stated causes have the edit's text ``says``, "wrong" if they do not, "" without a cause."""
    causes = outcome.get("causes") or {}
    stated = [text for texts in causes.values() for text in texts]
    if not stated:
        return ""
    return "right" if "says" in edit and any(edit["says"] in text for text in stated) else "wrong"


def table(edits: Iterable[Mapping[str, Any]], rows: Mapping[str, Mapping[str, Any]]) -> str:
    """By area: edits that were tried and found, at their place, refused, and with a cause; the others by name."""
    head = ("area", "tried", "found", "placed", "no place", "cause right", "cause wrong")
    counts: dict[str, list[int]] = {}
    notes = []
    for edit in edits:
        if edit["name"] not in rows or "outside" in edit:
            continue
        row = rows[edit["name"]]
        found = bool(row["killed"])
        where, why = (placed(edit, row["outcome"]), cause(edit, row["outcome"])) if found else (None, "")
        count = counts.setdefault(edit["area"], [0] * 6)
        hits = (True, found, bool(where), found and where is None, why == "right", why == "wrong")
        counts[edit["area"]] = [before + hit for before, hit in zip(count, hits, strict=True)]
        problems = {"not found": not found, "at another place": where is False, "another cause": why == "wrong"}
        notes += [f"{problem}: {edit['name']}" for problem, it_is in problems.items() if it_is]
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    lines = [head, *((area, *map(str, count)) for area, count in sorted(counts.items())), ("all", *map(str, total))]
    return "\n".join([*("  ".join(cell.ljust(11) for cell in line).rstrip() for line in lines), *notes])


def _fits(patterns: Sequence[str], path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
