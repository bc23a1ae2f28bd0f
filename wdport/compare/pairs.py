"""A module of the reference and the corresponding layer of the port, and the correspondence of their axes.

If the layouts differ, the axes' positions are determined from the shapes; ambiguous ones stay unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from wdport.compare.layouts import Layout
from wdport.mapping.axes import AxisError, Rule, Shape
from wdport.mapping.kinds import KINDS
from wdport.models.interface import KerasLayer

if TYPE_CHECKING:
    import torch

Places = tuple[int | None, ...]
"""By axis of the reference, the axis of the port; ``None`` for an axis of size 1 that the port does not have."""


@dataclass(frozen=True)
class Pair:
    """Two layers of one kind.

    Attributes:
        kind: the kind that the table states; empty if it states none.
        module: the reference's.
        layer: the port's.
        layout: the layout of activations in the port, and the function that follows the module within the layer.
        fed: the input shape of the reference's module, in its own order; empty if unknown, as are the next two.
        input_shape: the input shape of the port's layer.
        output_shape: the output shape of the reference's module, in the port's order.
        last: whether all convolutions of the port are channels-last; ``None`` if it has none, or of both kinds.
    """

    kind: str
    module: torch.nn.Module
    layer: KerasLayer
    layout: Layout = field(default=Layout())
    fed: Shape = ()
    input_shape: Shape = ()
    output_shape: Shape = ()
    last: bool | None = None

    @property
    def rank(self) -> int:
        """The number of axes of the port's input; 0 if unknown."""
        return len(self.input_shape)

    @property
    def padded(self) -> bool:
        """Whether the port's input is larger than the reference's, as if the port pads separately."""
        return bool(self.fed and self.input_shape) and prod(self.input_shape[1:]) > prod(self.fed[1:])

    def places(self) -> list[Places]:
        """The possible positions of the reference's input axes in the port's input, by the layout and the shapes."""
        rules = self.layout.inputs or (KINDS[self.kind].axes if self.kind in KINDS else ())
        candidates = [places for rule in rules if (places := _places(rule, self.fed, self.input_shape)) is not None]
        if (
            self.input_shape
            and self.fed in ((), self.input_shape)
            and not (candidates and (self.layout.inputs or not self.fed))
        ):
            candidates.append(tuple(range(self.rank)))  # without a rule, axes keep their order
        return list(dict.fromkeys(candidates))

    def axes(self, theirs: Sequence[int]) -> tuple[int, ...] | None:
        """The port's axes, in order, that correspond to these of the reference; ``None`` if they cannot be
        determined."""
        candidates = {tuple(sorted(_picked(places, theirs))) for places in self.places()}
        return candidates.pop() if len(candidates) == 1 else None

    def channels(self) -> int | None:
        """The port's axis that corresponds to the reference's axis 1; ``None`` if it cannot be determined.

        If the sizes are ambiguous, it is where the port's convolutions have it. If no size is known, that holds only
        for images, since sequences may have steps before features in any model.
        """
        candidates = {places[1] for places in self.places() if len(places) > 1 and places[1] is not None}
        if len(candidates) > 1 and self.last is not None and (self.fed or self.rank > 3):
            candidates &= {self.rank - 1 if self.last else 1}
        return candidates.pop() if len(candidates) == 1 else None


def _places(rule: Rule, fed: Shape, port_input: Shape) -> Places | None:
    """The positions by a rule that maps one shape to the other; of unknown shapes, only the number of axes is used."""
    if not port_input:
        return None
    if rule.source.any_axes:
        return tuple(range(len(port_input))) if fed in ((), port_input) else None
    groups = (rule.source.groups, rule.target.groups)
    if any(len(group) > 1 for side in groups for group in side) or len(groups[1]) != len(port_input):
        return None
    if fed:
        try:
            # Only to see whether the shapes fit the rule.
            rule.sizes([fed], [port_input])
        except AxisError:
            return None
    target = {group[0]: position for position, group in enumerate(groups[1]) if group}
    return tuple(target[group[0]] if group else None for group in groups[0])


def _picked(places: Places, axes: Sequence[int]) -> list[int]:
    return [position for axis in axes if -len(places) <= axis < len(places) and (position := places[axis]) is not None]


def is_torch(module: object, *names: str) -> bool:
    return any(base.__name__ in names and base.__module__.startswith("torch.nn") for base in type(module).__mro__)


def is_keras(layer: object, *names: str) -> bool:
    return any(base.__name__ in names and base.__module__.startswith("keras.") for base in type(layer).__mro__)


def computes_as_torch(module: object) -> bool:
    """Whether a module's ``forward`` is defined in ``torch.nn``."""
    return str(getattr(getattr(type(module), "forward", None), "__module__", "")).startswith("torch.nn.")


def computes_as_keras(layer: object) -> bool:
    """Whether a layer's ``call`` is defined in Keras."""
    return str(getattr(getattr(type(layer), "call", None), "__module__", "")).startswith("keras.")
