"""Axis expressions: parse text such as ``(part heads head) in -> [part] in heads head`` to a :class:`Rule`; and the
named rules.

A rule states how one source tensor becomes target tensors, by naming every axis once on each side:

* ``out in -> in out`` transposes;
* ``(heads head) in`` splits one axis into two, the first varying slowest;
* ``[part]`` in front is not an axis but a set of tensors, one per index of ``part``;
* ``1`` is an axis of size one, without a name: ``c -> 1 1 c``;
* ``gate=r,z,n`` labels the indices of an axis, and the other side may list the labels in another
  order: ``(gate=r,z,n h) in -> in (gate=z,r,n h)`` permutes the three blocks;
* ``...`` on both sides stands for any axes, unchanged.

This module does not touch arrays: a rule is checked against shapes, and the sizes that it needs (such as the number
of heads) are inferred from the two shapes, or given if no shape determines them. The inverse is the same text with the
sides exchanged, so no rule is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Literal

Shape = tuple[int, ...]

FillValue = Literal["zeros", "ones"]
Combine = Literal["", "sum", "weight_norm"]
"""How several source tensors are combined before a rule is applied: not at all, or by
:mod:`wdport.mapping.rearrange`."""

_NAME = r"[a-z_]+"
_TOKEN = re.compile(rf"\s*(\.\.\.|{_NAME}(?:={_NAME}(?:,{_NAME})*)?|(?<![a-z_0-9])1(?![a-z_0-9])|[()\[\]])")
_LONE = "1"


class AxisError(ValueError):
    """An axis expression that cannot be read, or shapes that it does not fit."""


@dataclass(frozen=True)
class ExpressionSide:
    """One side of a rule: the tensor's axes, each a group of named axes, and the stacked axis.

    A group without names is an axis of size one. ``labels`` name the indices of an axis, in order.
    """

    groups: tuple[tuple[str, ...], ...]
    stacked: str | None = None
    any_axes: bool = False
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All named axes in order, the stacked one first."""
        inner = tuple(name for group in self.groups for name in group)
        return (self.stacked, *inner) if self.stacked else inner

    def shape(self, sizes: Mapping[str, int]) -> Shape:
        """The shape of one tensor of this side."""
        return tuple(prod(sizes[name] for name in group) for group in self.groups)

    def __str__(self) -> str:
        if self.any_axes:
            return "..."
        labels = {name: f"{name}={','.join(axis_labels)}" for name, axis_labels in self.labels}
        label_groups = [[labels.get(name, name) for name in group] for group in self.groups]
        groups = [f"({' '.join(g)})" if len(g) > 1 else g[0] if g else _LONE for g in label_groups]
        stacked = [f"[{labels.get(self.stacked, self.stacked)}]"] if self.stacked else []
        return " ".join([*stacked, *groups])


@dataclass(frozen=True)
class Rule:
    """A named, invertible rearrangement between one side's tensors and the other's."""

    name: str
    source: ExpressionSide
    target: ExpressionSide

    def inverse(self) -> Rule:
        """The rule that undoes this one."""
        return Rule(f"{self.name}^-1", self.target, self.source)

    @cached_property
    def orders(self) -> dict[str, tuple[int, ...]]:
        """For every axis whose labels change their order: the source's index at every index of the target."""
        theirs = dict(self.source.labels)
        label_orders = {name: tuple(theirs[name].index(label) for label in ours) for name, ours in self.target.labels}
        # An order that changes nothing is left out, so that it costs no copy.
        return {name: order for name, order in label_orders.items() if order != tuple(range(len(order)))}

    def sizes(
        self, sources: Sequence[Shape], targets: Sequence[Shape], stated: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Return the size of every named axis, from the shapes of both sides and the ``stated`` sizes.

        Raises :class:`AxisError` if a shape has the wrong rank, the two sides disagree, or a size is undetermined.
        """
        if self.source.any_axes:
            if len(sources) != 1 or len(targets) != 1 or sources[0] != targets[0]:
                raise AxisError(f"{_text(sources)} is not {_text(targets)}")
            return {}
        bound = self._initial_sizes(stated)
        for side, shapes in ((self.source, sources), (self.target, targets)):
            _bind_counts(side, shapes, bound)
        settled = -1
        # Each pass may bind an axis that makes another group solvable, so they repeat until nothing is new.
        while settled != len(bound):
            settled = len(bound)
            for side, shapes in ((self.source, sources), (self.target, targets)):
                for group, size in zip(side.groups, shapes[0], strict=True):
                    _bind_group(group, size, bound)
        if unknown := [name for name in self.source.names if name not in bound]:
            text = f"the shapes do not determine the size of {', '.join(unknown)}"
            raise AxisError(f"{text}: state it, as in `sizes: {{{unknown[-1]}: 4}}`")
        for side, shapes in ((self.source, sources), (self.target, targets)):
            if side.shape(bound) != tuple(shapes[0]):
                raise AxisError(f"{_text(sources)} does not become {_text(targets)}")
        return bound

    def source_shape(self, targets: Sequence[Shape], stated: Mapping[str, int] | None = None) -> Shape | None:
        """Return the shape of one source that these targets require; ``None`` if it is undetermined."""
        if self.source.any_axes:
            return targets[0]
        try:
            bound = self._initial_sizes(stated)
            _bind_counts(self.target, targets, bound)
            for group, size in zip(self.target.groups, targets[0], strict=True):
                _bind_group(group, size, bound)
            if self.target.shape(bound) != tuple(targets[0]):
                return None
            return self.source.shape(bound)
        except (AxisError, KeyError):
            return None

    def _initial_sizes(self, stated: Mapping[str, int] | None) -> dict[str, int]:
        """Return the sizes that are known without a shape: the given ones and those of labelled axes."""
        bound = {name: size for name, size in (stated or {}).items() if name in self.source.names}
        for name, labels in self.source.labels:
            if bound.setdefault(name, len(labels)) != len(labels):
                raise AxisError(f"{name} has {len(labels)} labels, not {bound[name]}")
        return bound

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


def parse_rule(name: str, text: str) -> Rule:
    """Parse ``SIDE -> SIDE``; raises :class:`AxisError` with the reason."""
    sides = text.split("->")
    if len(sides) != 2:
        raise AxisError(f"{text!r} is not SIDE -> SIDE")
    source, target = (_parse_side(side) for side in sides)
    if source.any_axes != target.any_axes:
        raise AxisError("... must be on both sides or on neither")
    if sorted(source.names) != sorted(target.names) or len(set(source.names)) != len(source.names):
        raise AxisError(f"{text!r} must name every axis once on each side")
    ours, theirs = dict(source.labels), dict(target.labels)
    for axis in sorted({*ours, *theirs}):
        if sorted(ours.get(axis, ())) != sorted(theirs.get(axis, ())):
            raise AxisError(f"{axis} must have the same labels on both sides")
    return Rule(name, source, target)


def output_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """The rules of outputs that are stated as ``AXES`` or ``AXES -> AXES``; raises :class:`AxisError`."""
    return tuple(parse_rule(text, text if "->" in text else f"{text} -> {text}") for text in texts)


def _parse_side(text: str) -> ExpressionSide:
    tokens: list[str] = []
    labels: dict[str, tuple[str, ...]] = {}
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise AxisError(f"{text[position:].split(maxsplit=1)[0]!r} is not an axis")
        name, labelled, listed = match[1].partition("=")
        if labelled:
            labels[name] = tuple(listed.split(","))
            if len(set(labels[name])) != len(labels[name]):
                raise AxisError(f"{match[1]} has a duplicate label")
        tokens.append(name)
        position = match.end()
    if tokens == ["..."]:
        return ExpressionSide((), any_axes=True)
    stacked = None
    if tokens[:1] == ["["]:
        if len(tokens) < 3 or tokens[2] != "]" or not tokens[1].isidentifier():
            raise AxisError("[ ] holds one axis name")
        stacked, tokens = tokens[1], tokens[3:]
    return ExpressionSide(_parse_groups(tokens), stacked, labels=tuple(sorted(labels.items())))


def _parse_groups(tokens: list[str]) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    inside: list[str] | None = None
    for token in tokens:
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside:
            groups.append(tuple(inside))
            inside = None
        elif token == _LONE and inside is None:
            groups.append(())
        elif token.isidentifier():
            if inside is None:
                groups.append((token,))
            else:
                inside.append(token)
        else:
            raise AxisError(f"unexpected {token!r}")
    if inside is not None:
        raise AxisError("a ( is not closed")
    return tuple(groups)


def _bind_counts(side: ExpressionSide, shapes: Sequence[Shape], bound: dict[str, int]) -> None:
    """Check how many tensors there are and that they are alike; bind the stacked axis."""
    if len(set(shapes)) != 1:
        raise AxisError(f"{_text(shapes)}: expected equal shapes")
    if side.stacked:
        if bound.setdefault(side.stacked, len(shapes)) != len(shapes):
            raise AxisError(f"{side} is {bound[side.stacked]} tensors, not {len(shapes)}")
    elif len(shapes) != 1:
        raise AxisError(f"{side} is one tensor, not {len(shapes)}")
    if len(shapes[0]) != len(side.groups):
        raise AxisError(f"{_text(shapes)} has {len(shapes[0])} axes, but {side} has {len(side.groups)}")


def _bind_group(group: tuple[str, ...], size: int, bound: dict[str, int]) -> None:
    """Bind the one unknown axis of a group whose product is ``size``."""
    unknown = [name for name in group if name not in bound]
    if len(unknown) == 1:
        others = prod(bound[name] for name in group if name in bound)
        # A zero among the known axes would make the unknown one arbitrary.
        if others == 0 or size % others:
            raise AxisError(f"{size} is not a multiple of {others} in ({' '.join(group)})")
        bound[unknown[0]] = size // others


def _text(shapes: Sequence[Shape]) -> str:
    one = str(tuple(shapes[0])) if shapes else "nothing"
    return one if len(shapes) < 2 else f"{len(shapes)} x {one}"


RULES = MappingProxyType(
    {
        name: parse_rule(name, text)
        for name, text in {
            # The same axes on both sides: biases, scales, embeddings, tables.
            "identity": "... -> ...",
            # torch.nn.Linear.weight -> keras.layers.Dense kernel.
            "linear": "out in -> in out",
            # torch.nn.Conv1d.weight -> keras.layers.Conv1D kernel, and so on; grouped ones as well.
            "conv1d": "out in window -> window in out",
            "conv2d": "out in h w -> h w in out",
            "conv3d": "out in d h w -> d h w in out",
            # A convolution with as many groups as channels -> keras.layers.DepthwiseConv1D and 2D.
            "depthwise_conv1d": "(in mult) 1 window -> window in mult",
            "depthwise_conv2d": "(in mult) 1 h w -> h w in mult",
            # torch.nn.ConvTranspose1d.weight -> keras.layers.Conv1DTranspose kernel.
            "conv_transpose1d": "in out window -> window out in",
            "conv_transpose2d": "in out h w -> h w out in",
            "conv_transpose3d": "in out d h w -> d h w out in",
            # torch.nn.MultiheadAttention.in_proj_weight: rows are q, k, v, and in each of them the
            # first head's rows come first -> query, key and value kernels of a Keras attention layer.
            "attention_packed_weight": "(part heads head) in -> [part] in heads head",
            "attention_packed_bias": "(part heads head) -> [part] heads head",
            # A separate projection (q_proj.weight) -> one such kernel.
            "attention_weight": "(heads head) in -> in heads head",
            "attention_bias": "(heads head) -> heads head",
            # out_proj.weight reads the concatenated heads -> kernel (heads, head, out).
            "attention_output": "out (heads head) -> heads head out",
        }.items()
    }
)
"""Rule by name; the axes of each are stated once, the inverse is derived."""


def find_rule(text: str) -> Rule | None:
    """Return the rule with this name, or parse the text as a rule; raises :class:`AxisError` for invalid text."""
    return parse_rule(text.strip(), text) if "->" in text else RULES.get(text)


def rules(*texts: str) -> tuple[Rule, ...]:
    """Return rules by name or text."""
    return tuple(rule for text in texts if (rule := find_rule(text)) is not None)


def layouts(*texts: str) -> tuple[Rule, ...]:
    """Parse layouts; a text without an arrow is the same on both sides."""
    return tuple(parse_rule(t, t) for t in (text if "->" in text else f"{text} -> {text}" for text in texts))


# Four axes are an image; three are a sequence, whose features come last in both unless the shapes say otherwise.
ANY_LAYOUT = layouts("b c h w -> b h w c", "b c d h w -> b d h w c", "...", "b c l -> b l c")
