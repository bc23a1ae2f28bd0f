"""A finding on unusual values in a checkpoint, as data, and lists of findings as lines and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ValueFinding:
    """A finding on unusual values.

    Attributes:
        kind: kind of the finding.
        level: ``warning`` if a fault is likely, ``note`` if it may be intended.
        names: the tensors.
        count: number of affected values, channels or tensors.
        total: number of all of them.
        text: the sentence.
    """

    kind: str
    level: Literal["warning", "note"]
    names: tuple[str, ...]
    count: int
    total: int
    text: str


def value_finding(
    kind: str, level: Literal["warning", "note"], name: str, count: int, total: int, what: str
) -> ValueFinding:
    """Return a finding on ``count`` of a tensor's ``total`` values."""
    return ValueFinding(kind, level, (name,), count, total, f"{name}: {count} of {total} values {what}")


def by_level(findings: Sequence[ValueFinding], most: int) -> list[tuple[str, str]]:
    """Return level and sentence of each finding, at most ``most`` per level, and how many more there are."""
    rows: list[tuple[str, str]] = []
    for level in ("warning", "note"):
        told = [each.text for each in findings if each.level == level]
        rows += [(level, text) for text in told[:most]]
        rows += [(level, f"and {len(told) - most} more, all with --json")] if len(told) > most else []
    return rows


def to_json(findings: Sequence[ValueFinding]) -> list[Mapping[str, object]]:
    """Return findings as JSON values."""
    return [{"kind": each.kind, "level": each.level, "names": list(each.names), "count": each.count,
             "total": each.total, "text": each.text} for each in findings]  # fmt: skip
