"""A module of the reference beside the layer of the port that ought to compute the same, and where their axes lie.

Shapes tell the places of axes where the two libraries lay activations out differently; what they leave open is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from wdport.compare.layouts import Layout
from wdport.mapping.axes import AxisError, Rule, Shape
from wdport.mapping.kinds import KINDS
from wdport.model import KerasLayer

if TYPE_CHECKING:
    import torch

Places = tuple[int | None, ...]
"""By axis of the reference, the axis of the port; ``None`` for one of size 1 that the port does not have."""


@dataclass(frozen=True)
class Pair:
    """Two layers of one kind.

    Attributes:
        kind: the kind that the table states; empty where it states none.
        module: the reference's.
        layer: the port's.
        layout: how activations lie in the port, and what follows the module within the layer.
        fed: the shape of what the reference's module is given, in its own order; empty where nobody knows, as below.
        given: the shape of what the port's layer is given.
        made: the shape of what the reference's module makes, in the port's order.
        last: whether all convolutions of the port have their channels last; ``None`` if it has none, or of both kinds.
    """

    kind: str
    module: torch.nn.Module
    layer: KerasLayer
    layout: Layout = field(default=Layout())
    fed: Shape = ()
    given: Shape = ()
    made: Shape = ()
    last: bool | None = None

    @property
    def rank(self) -> int:
        """The number of axes of what the port's layer is given; 0 where nobody knows."""
        return len(self.given)

    @property
    def padded(self) -> bool:
        """Whether the port's layer is given more than the reference's module, as where the port pads apart."""
        return bool(self.fed and self.given) and prod(self.given[1:]) > prod(self.fed[1:])

    def places(self) -> list[Places]:
        """Where every axis of the reference's input may lie in the port's: all that the layout and the shapes allow."""
        rules = self.layout.inputs or (KINDS[self.kind].axes if self.kind in KINDS else ())
        found = [places for rule in rules if (places := _places(rule, self.fed, self.given)) is not None]
        if self.given and self.fed in ((), self.given) and not (found and (self.layout.inputs or not self.fed)):
            found.append(tuple(range(self.rank)))  # what no rule says is taken as it is
        return list(dict.fromkeys(found))

    def axes(self, theirs: Sequence[int]) -> tuple[int, ...] | None:
        """The port's axes, in order, that are these of the reference; ``None`` where that cannot be told."""
        found = {tuple(sorted(_picked(places, theirs))) for places in self.places()}
        return found.pop() if len(found) == 1 else None

    def channels(self) -> int | None:
        """The port's axis that is the reference's axis 1; ``None`` where that cannot be told.

        Where the sizes leave both open, it lies where the port's convolutions have it; where no size is known, only if
        it is an image, since steps may come before features beside any convolution.
        """
        found = {places[1] for places in self.places() if len(places) > 1 and places[1] is not None}
        if len(found) > 1 and self.last is not None and (self.fed or self.rank > 3):
            found &= {self.rank - 1 if self.last else 1}
        return found.pop() if len(found) == 1 else None


def _places(rule: Rule, fed: Shape, given: Shape) -> Places | None:
    """By a rule that takes the one shape to the other; of shapes that are not known their number of axes counts."""
    if not given:
        return None
    if rule.source.any_axes:
        return tuple(range(len(given))) if fed in ((), given) else None
    groups = (rule.source.groups, rule.target.groups)
    if any(len(group) > 1 for side in groups for group in side) or len(groups[1]) != len(given):
        return None
    if fed:
        try:
            rule.sizes([fed], [given])
        except AxisError:
            return None
    target = {group[0]: at for at, group in enumerate(groups[1]) if group}
    return tuple(target[group[0]] if group else None for group in groups[0])


def _picked(places: Places, axes: Sequence[int]) -> list[int]:
    return [at for axis in axes if -len(places) <= axis < len(places) and (at := places[axis]) is not None]


def is_torch(module: object, *names: str) -> bool:
    """Whether a module is one of these classes of ``torch.nn``, or of a class made of one."""
    return any(each.__name__ in names and each.__module__.startswith("torch.nn") for each in type(module).__mro__)


def is_keras(layer: object, *names: str) -> bool:
    """Whether a layer is one of these classes of Keras, or of a class made of one."""
    return any(each.__name__ in names and each.__module__.startswith("keras.") for each in type(layer).__mro__)


def computes_as_torch(module: object) -> bool:
    """Whether what a module computes is written in ``torch.nn``."""
    return str(getattr(getattr(type(module), "forward", None), "__module__", "")).startswith("torch.nn.")


def computes_as_keras(layer: object) -> bool:
    """Whether what a layer computes is written in Keras."""
    return str(getattr(getattr(type(layer), "call", None), "__module__", "")).startswith("keras.")
