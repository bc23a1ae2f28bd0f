"""Whether a row fits the shapes on both sides, and the faults that prevent a plan, as sentences, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from wdport.mapping.arrays import combined_shape
from wdport.mapping.axes import AxisError, Rule, Shape
from wdport.mapping.names import NamePattern
from wdport.mapping.rows import Row


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
    there is no other fault."""

    faults: tuple[str, ...] = ()
    sized: bool = field(default=False, compare=False)
    unexpected: tuple[str, ...] = field(default=(), compare=False)


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
