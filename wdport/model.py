"""What a model family tells the rest of wdport: the one interface between the two.

A family knows its configuration, its variables and its constants without importing keras or torch;
it builds its Keras model and its PyTorch reference on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wdport.mapping.axes import Shape
from wdport.recorder import Input

if TYPE_CHECKING:
    import jax
    import torch

Array = NDArray[Any]

KerasModel = Any
KerasLayer = Any
KerasVariable = Any
"""Keras's objects, which have no types."""

KerasTensor = Any
"""What Keras layers take and give: arrays of the backend, or symbols of them while a model is built."""

Configuration = Any
"""A family's own configuration, a dataclass with ``to_dict()``. What its fields mean, the family alone knows: others
get it from there and hand it back."""

Document = Mapping[str, object]
"""Names with values of any form, as JSON or YAML has them: what is read of it is checked first."""


@dataclass(frozen=True)
class Constant:
    """A table that the family can recompute, built when ``values`` are first asked for: its shape is compared first.

    ``make`` gives them in float64. ``tolerance`` is how far (absolutely) a correct float32 file is from it at most,
    measured; ``None`` where nothing is known to compare with.
    """

    shape: Shape
    make: Callable[[], Array]
    tolerance: float | None

    @cached_property
    def values(self) -> Array:
        return self.make()


@dataclass(frozen=True)
class Source:
    """What a family may look at to find its configuration: shapes, stored dtypes, and small tensors.

    ``saved`` is what the file says of its own configuration, Lightning's ``hyper_parameters``: plain data of any
    form, or ``None``. ``document`` reads the ``config.json`` beside it, if there is one, and ``beside`` another
    JSON file of the same folder, or of the pipeline around it.
    """

    path: Path
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    read: Callable[[str], Array]
    saved: object = None
    document: Callable[[], Document] = dict
    beside: Callable[[str], Document] = lambda _: {}


@dataclass(frozen=True)
class Resolved:
    """A configuration, and for each of its values where it came from.

    ``origins`` maps a field to "shapes", "buffers", "flag", "config", "hyper_parameters" or "assumed";
    ``alternatives`` an assumed field to a few words on what else would fit the file. ``notes`` are sentences on
    what the file says of itself and was not used.
    """

    config: Configuration
    origins: Mapping[str, str]
    alternatives: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def assumed(self) -> dict[str, object]:
        """The values that nothing told; one that is a table of values, as text."""
        found = {name: getattr(self.config, name) for name, origin in self.origins.items() if origin == "assumed"}
        return {name: str(value) if is_dataclass(value) else value for name, value in found.items()}


Batch = Mapping[str, Array]
"""One training batch: named arrays of clean data and random numbers, from which both sides make the rest."""


@dataclass(frozen=True)
class Objective:
    """What training minimises, on both sides, as functions of the same batch.

    ``make_batch(seed, size)`` is float64; ``inputs(batch)`` are the network's inputs, ``target(batch)`` what it is
    to predict and ``loss(prediction, batch)`` the port's loss in JAX. ``reference_loss(network, batch)`` is
    PyTorch's, from the batch to the scalar, and its prediction.
    """

    make_batch: Callable[[int, int], Batch]
    inputs: Callable[[Batch], tuple[Array, ...]]
    target: Callable[[Batch], Array]
    loss: Callable[[jax.Array, Batch], jax.Array]
    reference_loss: Callable[[torch.nn.Module, Batch], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class PartWords:
    """What reports call one part of an output, the kind of parts, their values, and what decoding makes of these.

    ``one`` is also the index by which a table numbers the layers that belong to a part.
    """

    one: str = "part"
    kind: str = "part of the output"
    values: str = "values"
    decoded: str = "output"


@dataclass(frozen=True)
class Port:
    """One output of a network: its axes in PyTorch and in Keras, in the language of the rules (``b c h w -> b h w c``;
    "" where they are the same), and the parts of its axis behind the batch's that a report tells apart.

    ``decode`` takes an output (B, C, F) to what it stands for, (B, N, F), in float64; ``None`` where that is unknown.
    """

    name: str
    axes: str = ""
    parts: Mapping[str, slice] = field(default_factory=dict)
    decode: Callable[[Array], Array] | None = None
    words: PartWords = PartWords()


@dataclass(frozen=True)
class Signature:
    """What a network takes and gives. ``outputs`` may be empty: whatever it gives, as it is."""

    inputs: tuple[Input, ...]
    outputs: tuple[Port, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences on what the inputs do not show, such as sizes that another is used for."""

    def make(self, seed: int, batch: int, scale: float) -> tuple[Array, ...]:
        """Inputs as the PyTorch model takes them, float64, int64 or bool."""
        return tuple(each.make(seed, batch, scale) for each in self.inputs)

    def in_port(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Inputs of the PyTorch model as the Keras model takes them."""
        if len(inputs) != len(self.inputs):  # the user's own make_inputs
            return tuple(inputs)
        return tuple(map(self.one_in_port, range(len(inputs)), inputs))

    def one_in_port(self, at: int, array: Array) -> Array:
        """The same for one of them, or for its gradient."""
        if at >= len(self.inputs):
            return array
        told = self.inputs[at]
        return np.ascontiguousarray(np.transpose(array, [told.axes.index(axis) for axis in told.keras_axes]))

    @property
    def divided(self) -> Port | None:
        """The output whose parts are told apart: the first, if it has any."""
        return self.outputs[0] if self.outputs and self.outputs[0].parts else None

    @property
    def words(self) -> PartWords:
        """What the parts of the output are called."""
        return self.divided.words if self.divided is not None else PartWords()

    @property
    def axes(self) -> tuple[str, ...]:
        """How activations are transposed, by what inputs and outputs state: rules, each other rank once."""
        found = [f"{' '.join(each.axes)} -> {' '.join(each.keras_axes)}" for each in self.inputs
                 if each.axes != each.keras_axes]  # fmt: skip
        return tuple(dict.fromkeys([*found, *(port.axes for port in self.outputs if port.axes)]))


@dataclass(frozen=True)
class Named:
    """What a family calls an array of samples (n, L, F): ``name`` in Python and in files; one step of L as the column
    ``step`` of a table and as ``axis`` in words."""

    name: str
    step: str
    axis: str


@dataclass(frozen=True)
class Decoding:
    """The linear way between a state and what it stands for, both in standard units; leading axes are samples.

    ``shape`` is that of one decoded sample, whose last axis has a ``mean`` and a deviation ``std`` per feature.
    ``units`` says what :meth:`Sampled.to_series` gives.
    """

    shape: tuple[int, ...]
    encode: Callable[[Array | jax.Array], jax.Array]
    decode: Callable[[Array | jax.Array], jax.Array]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    units: str


@dataclass(frozen=True)
class NotDecoded:
    """Why states stay as they are: ``reason`` in a summary, ``what`` and ``fix`` in an error."""

    reason: str
    what: str
    fix: str


@dataclass(frozen=True)
class Diffused:
    """What sampling has to know of a configuration.

    ``shape`` is one sample's state. ``state`` and ``decoded`` are what the family calls the two arrays of samples.
    ``numbers`` are held for one sample at most while the network runs. ``sizes`` are what an artefact says of its
    shapes. ``clip``, if given, is the largest absolute value that the clean state is let to have at each step.
    ``classes`` is the number of classes that samples may be asked for, None for a network without labels; ``no_class``
    the label that stands for none of them, where the network was trained with one.
    """

    shape: tuple[int, ...]
    state: Named
    decoded: Named
    decoding: Decoding | NotDecoded
    numbers: int
    sizes: Mapping[str, int | None] = field(default_factory=dict)
    clip: float | None = None
    classes: int | None = None
    no_class: int | None = None
