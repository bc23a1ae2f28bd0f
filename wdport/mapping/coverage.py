"""Which tensors of a checkpoint each row of a table claims, whether a row fits the shapes on both sides, and the
faults that prevent a plan, as sentences, worst first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, overload

from wdport.base.shared_types import Count, about
from wdport.mapping.axes import AxisError, Rule, Shape
from wdport.mapping.lint import groups
from wdport.mapping.names import NamePattern, PatternError, PatternIndex
from wdport.mapping.rearrange import combined_shape
from wdport.mapping.rows import Row, Table


@dataclass(frozen=True)
class Fit:
    """The rule that fits, and the size of every axis."""

    rule: Rule
    sizes: dict[str, int]


@dataclass(frozen=True)
class Misfit:
    """No rule fits: the closest one, and the shapes that it requires, source by source, if they are determined."""

    rule: Rule
    expected: tuple[Shape | None, ...]
    sources: tuple[Shape, ...]
    targets: tuple[Shape, ...]
    reason: str = ""

    def sentence(self, row: Row, names: Sequence[str]) -> str:
        """Return a sentence on the first source whose shape is wrong."""
        pairs = zip(names, self.sources, self.expected, strict=True)
        wrong = [(name, shape, expected_shape) for name, shape, expected_shape in pairs if expected_shape != shape]
        name, shape, expected_shape = wrong[0] if wrong else (names[0], self.sources[0], None)
        line = f"{row.short} ({self.rule.name})"
        if self.reason and expected_shape is None:
            return f"{name} does not fit {line}: {self.reason}"
        turned = expected_shape is not None and len(shape) > 1 and expected_shape == shape[::-1]
        expected = f"{line} expects {expected_shape or list(self.targets)}"
        return f"{name} has shape {shape}, {expected}{' (transposed?)' if turned else ''}"


def written(patterns: Sequence[NamePattern], indices: Mapping[str, int]) -> tuple[str, ...]:
    """Return the names that these patterns format to; raises :class:`PatternError` if an index would be below 0."""
    return tuple(pattern.format(indices) for pattern in patterns)


@overload
def fit(row: Row, sources: Sequence[Shape], targets: Sequence[Shape]) -> Fit | Misfit: ...
@overload
def fit(row: Row, sources: None, targets: Sequence[Shape]) -> Misfit: ...
def fit(row: Row, sources: Sequence[Shape] | None, targets: Sequence[Shape]) -> Fit | Misfit:
    """Return the first rule of ``row`` that maps ``sources`` to ``targets``; without sources, the shapes it
    requires."""
    reason = ""
    if sources is not None:
        try:
            moved = [combined_shape(row.combine, sources)] if row.combine else sources
            for rule in row.rules:
                try:
                    return Fit(rule, rule.sizes(moved, targets, row.sizes))
                except AxisError as error:
                    reason = reason or str(error)
        except AxisError as error:
            reason = str(error)
    # The model is taken as correct here: the message states the shapes that it needs.
    candidates = ((rule, rule.source_shape(targets, row.sizes) if targets else None) for rule in row.rules)
    rule, expected = next((candidate for candidate in candidates if candidate[1] is not None), (row.rules[0], None))
    shapes: tuple[Shape | None, ...] = (expected,) * len(row.torch)
    if row.combine == "weight_norm":
        # The magnitude's shape depends on the axis that it was computed over, which no target shows.
        shapes = (None, expected)
    return Misfit(rule, shapes, tuple(sources or ()), tuple(targets), reason)


@dataclass(frozen=True)
class Misfits:
    """Everything that does not fit, one sentence each, worst first; ``sized`` if a weight has another number of
    inputs, as a preceding layer with another output size would cause. ``unexpected`` are tensors that no row names, if
    there is no other fault, and ``row`` is advice on a layer that the table leaves out."""

    faults: tuple[str, ...] = ()
    sized: bool = field(default=False, compare=False)
    unexpected: tuple[str, ...] = field(default=(), compare=False)
    row: str = field(default="", compare=False)


def sentences(
    doubled: Sequence[str],
    missing: Mapping[str, Shape | None],
    misshapen: Sequence[str],
    unexpected: Sequence[str],
    idle: Sequence[str],
    sources: Mapping[str, Shape],
) -> tuple[str, ...]:
    """Return all faults; a missing and an unexpected tensor of the same shape are reported as a renaming."""
    faults = [*doubled]
    left = list(unexpected)
    absent = dict(missing)
    for name, shape in missing.items():
        # Only if the pair is unique in both directions; among several of one shape any pairing would be a guess.
        alike = [other for other in left if sources[other] == shape]
        rivals = [other for other, its in absent.items() if its == shape]
        if len(alike) == 1 and len(rivals) == 1:
            faults.append(f"missing {name}; is {alike[0]} the same tensor renamed?")
            left.remove(alike[0])
            del absent[name]
    faults += [f"missing {name}" + (f" {shape}" if shape is not None else "") for name, shape in absent.items()]
    faults += misshapen
    faults += [f"unexpected {name} {sources[name]}" for name in left]
    return (*faults, *idle)


@dataclass(frozen=True)
class ClaimFacts:
    """A row and the tensors that it claims."""

    file: Annotated[str, about("File that contains the row.")]
    line: Annotated[Count, about("Line of the row.")]
    torch: Annotated[str, about("Patterns of the PyTorch names that the row matches.")]
    becomes: Annotated[str, about("Summary of what the row does with the tensors.")]
    when: Annotated[str | None, about("Feature that the row requires; null if it requires none.")]
    tensors: Annotated[Sequence[str], about("Names of the tensors that the row claims.")]


@dataclass(frozen=True)
class CoverageFacts:
    """Which row claims which tensor."""

    rows: Annotated[Sequence[ClaimFacts], about("Every row.")]
    unclaimed: Annotated[Sequence[str], about("Tensors that no row claims.")]
    doubled: Annotated[Mapping[str, Sequence[str]], about(
        "Tensors that more than one row claims, each with the locations of those rows.")]  # fmt: skip
    idle: Annotated[Sequence[str], about("Locations of the rows that match nothing.")]
    incomplete: Annotated[
        Sequence[str], about("Descriptions of the rows that list several tensors of which only some exist.")
    ]

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything that prevents a conversion, one sentence each."""
        return (
            *(f"{name} is claimed by {' and by '.join(places)}" for name, places in self.doubled.items()),
            *(f"no row claims {name}" for name in self.unclaimed),
            *self.incomplete,
            *self.idle,
        )


def cover(table: Table, names: Iterable[str], features: Collection[str] | None = None) -> CoverageFacts:
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
    claims = tuple(_claim(row, row.file or table.path, matches[id(row)]) for row in rows)
    return CoverageFacts(claims, tuple(unclaimed), doubled, tuple(idle), tuple(incomplete))


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


def _idle(rows: list[Row], matches: dict[int, list[str]], features_known: bool) -> str:
    row = rows[0]
    needed = not (row.layer.optional or row.layer.bare if row.layer else row.optional)
    if not needed or any(matches[id(row)] for row in rows) or not (features_known or row.when is None):
        return ""
    torch = row.layer.torch if row.layer else row.torch[0]
    return f"{row.place} ({torch.text}) matches nothing"


def _claim(row: Row, file: str, tensors: list[str]) -> ClaimFacts:
    torch = ", ".join(pattern.text for pattern in row.torch)
    return ClaimFacts(file, row.line, torch, becomes(row), row.when, tuple(tensors))
