"""Which tensors of a checkpoint each row of a table claims, by name only, and which are unclaimed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from wdport.mapping.fitting import written
from wdport.mapping.lint import groups
from wdport.mapping.names import PatternError, PatternIndex
from wdport.mapping.rows import Row, Table


@dataclass(frozen=True)
class Claim:
    """A row and the tensors that it claims.

    Attributes:
        line: the row's line.
        file: the included table that contains the row; empty for the table itself.
        torch: name patterns of the row.
        becomes: what the row does with them, as a short text.
        tensors: the names that match.
        needed: whether the row, or another row of its layer, must match a tensor.
        when: the feature that the row requires.
    """

    line: int
    file: str
    torch: str
    becomes: str
    tensors: tuple[str, ...]
    needed: bool
    when: str | None = None


@dataclass(frozen=True)
class Coverage:
    """How a table's rows cover the tensors of one checkpoint.

    Attributes:
        claims: every row that applies, whether it matches anything or not.
        unclaimed: tensors that no row claims.
        doubled: tensors that several rows claim, and the places of these rows.
        idle: rows that must match something and do not, a sentence each; a layer once.
        incomplete: lists of tensors of which some are absent, a sentence each.
    """

    claims: tuple[Claim, ...]
    unclaimed: tuple[str, ...] = ()
    doubled: dict[str, tuple[str, ...]] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything that prevents a conversion, one sentence each."""
        return (
            *(f"{name} is claimed by {' and by '.join(places)}" for name, places in self.doubled.items()),
            *(f"no row claims {name}" for name in self.unclaimed),
            *self.incomplete,
            *self.idle,
        )


def cover(table: Table, names: Iterable[str], features: Collection[str] | None = None) -> Coverage:
    """Match every name against the rows that apply.

    ``features`` are the model's. If they are unknown, rows that require a feature claim what they match and may match
    nothing, and a tensor that such a row and another one claim does not count as doubled.
    """
    names = dict.fromkeys(names)
    rows = [row for row in table.rows if features is None or row.when is None or row.when in features]
    patterns = [(row, pattern) for row in rows for pattern in row.torch]
    index = PatternIndex(pattern for _, pattern in patterns)
    matches: dict[int, list[str]] = {id(row): [] for row in rows}
    unclaimed, doubled, incomplete = [], {}, dict[str, None]()
    for name in names:
        hits = [(patterns[position][0], indices) for position, indices in index.find(name)]
        for row, indices in hits:
            matches[id(row)].append(name)
            incomplete |= dict.fromkeys(_absent(row, indices, names))
        # Rows of exclusive features may claim one tensor; which of them applies is not known here.
        certain = [row for row, _ in hits if features is not None or row.when is None]
        if not hits:
            unclaimed.append(name)
        elif len(certain) > 1:
            doubled[name] = tuple(row.place for row in certain)
    idle = [text for group in groups(rows) if (text := _idle(group, matches, features is not None))]
    claims = tuple(_claim(row, matches[id(row)]) for row in rows)
    return Coverage(claims, tuple(unclaimed), doubled, tuple(idle), tuple(incomplete))


def becomes(row: Row) -> str:
    """Return a short text on what a row does with its tensors."""
    parts = []
    if row.keras:
        parts.append(", ".join(pattern.text for pattern in row.keras))
    if row.check:
        parts.append(f"compared with {row.check.text}")
    if row.drop is not None:
        parts.append(f"dropped: {row.drop}")
    if row.same_as:
        parts.append(f"tied to {row.same_as.text}")
    return "; ".join(parts)


def _absent(row: Row, indices: dict[str, int], names: Collection[str]) -> list[str]:
    """Return a sentence for every absent tensor of the row's list, if another one of the list is present."""
    try:
        expected = written((*row.torch, *((row.same_as,) if row.same_as else ())), indices)
    except PatternError as error:
        return [f"{row.place}: {error}"]
    # A single tensor that matched is present itself.
    if len(expected) == 1:
        return []
    return [f"{row.place} needs {name}, which the checkpoint does not have" for name in expected if name not in names]


def _needed(row: Row) -> bool:
    return not (row.layer.optional or row.layer.bare if row.layer else row.optional)


def _idle(rows: list[Row], matches: dict[int, list[str]], features_known: bool) -> str:
    row = rows[0]
    if not _needed(row) or any(matches[id(row)] for row in rows) or not (features_known or row.when is None):
        return ""
    torch = row.layer.torch if row.layer else row.torch[0]
    return f"{row.place} ({torch.text}) matches nothing"


def _claim(row: Row, tensors: list[str]) -> Claim:
    torch = ", ".join(pattern.text for pattern in row.torch)
    return Claim(row.line, row.file, torch, becomes(row), tuple(tensors), _needed(row) and row.layer is None, row.when)
