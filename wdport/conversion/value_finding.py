"""A finding on unusual values in a checkpoint, as data, and lists of findings as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from wdport.declared import Count


@dataclass(frozen=True)
class ValueFinding:
    """Something unusual about the values of tensors; it does not stop a conversion."""

    kind: Annotated[str, Meta(description="Kind of the finding.")]
    level: Annotated[Literal["warning", "note"], Meta(description=
        "`warning` if a fault is likely, `note` if it may be intended.")]  # fmt: skip
    names: Annotated[tuple[str, ...], Meta(description="The tensors.")]
    count: Annotated[Count, Meta(description="Number of values, channels or tensors that it is about.")]
    total: Annotated[Count, Meta(description="Total number.")]
    text: Annotated[str, Meta(description="The sentence.")]


def value_finding(
    kind: str, level: Literal["warning", "note"], name: str, count: int, total: int, what: str
) -> ValueFinding:
    """Return a finding on ``count`` of a tensor's ``total`` values."""
    return ValueFinding(kind, level, (name,), count, total, f"{name}: {count} of {total} values {what}")


def by_level(findings: Sequence[ValueFinding], limit: int) -> list[tuple[str, str]]:
    """Return level and sentence of each finding, at most ``limit`` per level, and how many more there are."""
    rows: list[tuple[str, str]] = []
    for level in ("warning", "note"):
        texts = [finding.text for finding in findings if finding.level == level]
        rows += [(level, text) for text in texts[:limit]]
        rows += [(level, f"and {len(texts) - limit} more, all with --json")] if len(texts) > limit else []
    return rows
