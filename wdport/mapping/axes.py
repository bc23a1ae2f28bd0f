"""Axis expressions: text such as ``(part heads head) in -> [part] in heads head`` to a :class:`Rule`.

A rule says how one source tensor becomes target tensors, by naming every axis once on each side:

* ``out in -> in out`` transposes;
* ``(heads head) in`` is one axis that is really two, the first varying slowest;
* ``[part]`` in front is no axis but a set of tensors, one per index of ``part``;
* ``...`` alone stands for any axes, unchanged.

Nothing here touches an array: a rule is checked against shapes, and the sizes that it needs (say
the number of heads) are read off the two shapes. The inverse is the same text with the sides
exchanged, so no rule is ever written twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

Shape = tuple[int, ...]

_TOKEN = re.compile(r"\s*(\.\.\.|[a-z_]+|[()\[\]])")


class AxisError(ValueError):
    """An axis expression that cannot be read, or shapes that it does not fit."""


@dataclass(frozen=True)
class Side:
    """One side of a rule: the tensor's axes, each a group of named axes, and the stacked axis."""

    groups: tuple[tuple[str, ...], ...]
    stacked: str | None = None
    any_axes: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All named axes in order, the stacked one first."""
        inner = tuple(name for group in self.groups for name in group)
        return (self.stacked, *inner) if self.stacked else inner

    def shape(self, sizes: dict[str, int]) -> Shape:
        """The shape of one tensor of this side."""
        return tuple(prod(sizes[name] for name in group) for group in self.groups)

    def __str__(self) -> str:
        if self.any_axes:
            return "..."
        groups = [f"({' '.join(g)})" if len(g) > 1 else g[0] for g in self.groups]
        return " ".join([f"[{self.stacked}]"] * bool(self.stacked) + groups)


@dataclass(frozen=True)
class Rule:
    """A named, invertible rearrangement between one side's tensors and the other's."""

    name: str
    source: Side
    target: Side

    def inverse(self) -> Rule:
        """The rule that undoes this one."""
        return Rule(f"{self.name}^-1", self.target, self.source)

    def sizes(self, sources: Sequence[Shape], targets: Sequence[Shape]) -> dict[str, int]:
        """The size of every named axis, from the shapes of both sides.

        Raises :class:`AxisError` if a shape has the wrong rank, the two sides disagree, or a size
        cannot be told.
        """
        if self.source.any_axes:
            if len(sources) != 1 or len(targets) != 1 or sources[0] != targets[0]:
                raise AxisError(f"{_text(sources)} is not {_text(targets)}")
            return {}
        known: dict[str, int] = {}
        for side, shapes in ((self.source, sources), (self.target, targets)):
            _bind_counts(side, shapes, known)
        settled = -1
        while settled != len(known):
            settled = len(known)
            for side, shapes in ((self.source, sources), (self.target, targets)):
                for group, size in zip(side.groups, shapes[0], strict=True):
                    _bind_group(group, size, known)
        if unknown := [name for name in self.source.names if name not in known]:
            raise AxisError(f"the size of {', '.join(unknown)} cannot be told from the shapes")
        for side, shapes in ((self.source, sources), (self.target, targets)):
            if side.shape(known) != tuple(shapes[0]):
                raise AxisError(f"{_text(sources)} does not become {_text(targets)}")
        return known

    def source_shape(self, targets: Sequence[Shape]) -> Shape | None:
        """The source shape that these targets want; ``None`` where it cannot be told."""
        if self.source.any_axes:
            return targets[0]
        known: dict[str, int] = {}
        try:
            _bind_counts(self.target, targets, known)
            for group, size in zip(self.target.groups, targets[0], strict=True):
                _bind_group(group, size, known)
            return self.source.shape(known)
        except (AxisError, KeyError):
            return None

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


def parse_rule(name: str, text: str) -> Rule:
    """Read ``SIDE -> SIDE``; raises :class:`AxisError` with the reason."""
    sides = text.split("->")
    if len(sides) != 2:
        raise AxisError(f"{text!r} is not SIDE -> SIDE")
    source, target = (_parse_side(side) for side in sides)
    if source.any_axes != target.any_axes:
        raise AxisError("... must stand on both sides or on none")
    if sorted(source.names) != sorted(target.names) or len(set(source.names)) != len(source.names):
        raise AxisError(f"{text!r} must name every axis once on each side")
    return Rule(name, source, target)


def _parse_side(text: str) -> Side:
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise AxisError(f"{text[position:]!r} is not an axis")
        tokens.append(match[1])
        position = match.end()
    if tokens == ["..."]:
        return Side((), any_axes=True)
    stacked = None
    if tokens[:1] == ["["]:
        if len(tokens) < 3 or tokens[2] != "]" or not tokens[1].isidentifier():
            raise AxisError("[ ] holds one axis name")
        stacked, tokens = tokens[1], tokens[3:]
    return Side(_parse_groups(tokens), stacked)


def _parse_groups(tokens: list[str]) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    inside: list[str] | None = None
    for token in tokens:
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside:
            groups.append(tuple(inside))
            inside = None
        elif token.isidentifier():
            if inside is None:
                groups.append((token,))
            else:
                inside.append(token)
        else:
            raise AxisError(f"{token!r} is out of place")
    if inside is not None:
        raise AxisError("a ( is not closed")
    return tuple(groups)


def _bind_counts(side: Side, shapes: Sequence[Shape], known: dict[str, int]) -> None:
    """Check how many tensors there are and that they are alike; bind the stacked axis."""
    if len(set(shapes)) != 1:
        raise AxisError(f"{_text(shapes)}: shapes that ought to be equal differ")
    if side.stacked:
        known[side.stacked] = len(shapes)
    elif len(shapes) != 1:
        raise AxisError(f"{side} is one tensor, not {len(shapes)}")
    if len(shapes[0]) != len(side.groups):
        raise AxisError(f"{_text(shapes)} has {len(shapes[0])} axes where {side} has {len(side.groups)}")


def _bind_group(group: tuple[str, ...], size: int, known: dict[str, int]) -> None:
    """Bind the one unknown axis of a group whose product is ``size``."""
    unknown = [name for name in group if name not in known]
    if len(unknown) == 1:
        others = prod(known[name] for name in group if name in known)
        if others == 0 or size % others:
            raise AxisError(f"{size} is no multiple of {others} in ({' '.join(group)})")
        known[unknown[0]] = size // others


def _text(shapes: Sequence[Shape]) -> str:
    one = str(tuple(shapes[0])) if shapes else "nothing"
    return one if len(shapes) < 2 else f"{len(shapes)} x {one}"
