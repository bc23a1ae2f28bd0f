"""The interface between a model family and the rest of wdport.

A family states its configuration, its variables and its constants without importing keras or torch;
it builds its Keras model and its PyTorch reference on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import numpy as np

from wdport.base.shared_types import about
from wdport.mapping.axes import Shape
from wdport.mapping.rearrange import Array as Array
from wdport.recording.inputs import Input, given

if TYPE_CHECKING:
    import jax
    import torch


KerasModel = Any
KerasLayer = Any
KerasVariable = Any
"""Keras's objects, which have no type annotations."""

KerasTensor = Any
"""Inputs and outputs of Keras layers: backend arrays, or symbolic tensors while a model is built."""

Configuration = Any
"""A family's configuration, a dataclass with ``to_dict()``. Only the family interprets its fields: other code treats it
as opaque."""

UNITS = ("norm_mean", "norm_std", "transform", "window_statistics")
"""Settings that :class:`wdport.uses.data.units.Units` makes, for families whose windows have units."""

Document = Mapping[str, object]
"""Names with JSON or YAML values of any form; values are checked before they are used."""


@dataclass(frozen=True)
class Constant:
    """A table that the family can recompute, built when ``values`` is first accessed: its shape is compared first.

    ``make`` returns them in float64. ``tolerance`` is the largest measured absolute difference of a correct float32
    file; ``None`` if there is no known file to compare with. ``held`` states whether a port holds the table, which it
    need not if it follows from another one.
    """

    shape: Shape
    make: Callable[[], Array]
    tolerance: float | None
    held: bool = True

    @cached_property
    def values(self) -> Array:
        return self.make()


@dataclass(frozen=True)
class ConfigurationSource:
    """What a family may read to determine its configuration: shapes, stored dtypes, and small tensors.

    ``saved`` is the configuration stored in the file, Lightning's ``hyper_parameters``: plain data of any form, or
    ``None``. ``document`` reads the ``config.json`` next to the file, if any, and ``beside`` another JSON file of the
    same folder, or of the pipeline that contains it.
    """

    path: Path
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    read: Callable[[str], Array]
    saved: object = None
    document: Callable[[], Document] = dict
    beside: Callable[[str], Document] = lambda _: {}


STATED: Final = ("config", "flag", "data")
"""Origins of values that the user states at the conversion; all others can be derived from the checkpoint again."""


@dataclass(frozen=True)
class Resolved:
    """A configuration, and the origin of each of its values.

    ``origins`` maps a field to "shapes", "buffers", "hyper_parameters" or "assumed", or to one of :data:`STATED`;
    ``alternatives`` maps an assumed field to a short text on what else would fit the file. ``notes`` are sentences on
    stored configuration that was not used.
    """

    config: Configuration
    origins: Mapping[str, str]
    alternatives: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def assumed(self) -> dict[str, object]:
        """The values that no source determined; a table of values as text."""
        values = {name: getattr(self.config, name) for name, origin in self.origins.items() if origin == "assumed"}
        return {name: str(value) if is_dataclass(value) else value for name, value in values.items()}


class Stated(NamedTuple):
    """A configuration as it is written, for a library that reads it itself: the ``config.json`` of a checkpoint, the
    user's values, which replace those in the file, and other JSON files of the folder by name, empty if they do not
    exist."""

    document: Document
    values: Document
    beside: Callable[[str], Document] = lambda _: {}


Batch = Mapping[str, Array]
"""One training batch: named arrays of clean data and random numbers, from which both sides compute the rest."""


class LossPart(NamedTuple):
    """One part of the first axis of a state in a training loss: its name, length, and the weight of its mean square."""

    name: str
    length: int
    weight: float


@dataclass(frozen=True)
class Recipe:
    """How a model is trained according to a configuration file; None for what the file does not state.

    ``learning_rate`` is the largest one; ``schedule`` is the file's own word for how it changes, with a warm-up of
    ``warmup_epochs``. ``clip`` bounds the norm of the gradients, and ``law`` is how steps are drawn.
    ``gradient_accumulation_steps`` is the number of batches whose mean gradient an optimizer step uses.
    """

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    energy: float | None = None
    clip: float | None = None
    law: str | None = None
    warmup_epochs: int | None = None
    gradient_accumulation_steps: int | None = None


PUBLIC: Final = "public"
"""The recipe of a model's public training script."""

SCHEDULES: Final = ("constant", "onecycle", "cosine")
"""How the learning rate of a new optimizer changes."""

MASK_RATE: Final = 0.15
"""Share of the tokens that are masked. Source: Devlin et al., BERT, arXiv:1810.04805, section 3.1."""

MAX_SPAN: Final = 64
"""Longest span of masked tokens."""

FORMER_SAMPLERS: Final[Mapping[str, str]] = {"dpm-solver++": "dpm++2m", "sde-dpm-solver++": "dpm++2m-sde"}
"""Present names of samplers by former ones."""

COSINE_WARMUP: Final = "cosine_warmup"
"""The schedule of a public training script: a half cosine over whole epochs, after ``warmup_epochs``."""


@dataclass(frozen=True)
class Objective:
    """The training objective on both sides, as functions of the same batch.

    ``make_batch(seed, size)`` returns float64; ``inputs(batch)`` are the network's inputs, ``target(batch)`` is what it
    should predict and ``loss(prediction, batch)`` is the port's loss in JAX. ``reference_loss(network, batch)`` returns
    PyTorch's scalar loss and its prediction.
    """

    make_batch: Callable[[int, int], Batch]
    inputs: Callable[[Batch], tuple[Array, ...]]
    target: Callable[[Batch], jax.Array]
    loss: Callable[[jax.Array, Batch], jax.Array]
    reference_loss: Callable[[torch.nn.Module, Batch], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class PartWords:
    """Names that reports use for the parts of the output.

    ``one`` is also the name of the index by which a mapping table numbers the layers of a part.
    """

    one: Annotated[str, about("Short name of a part, such as `level` or `part`.")] = "part"
    kind: Annotated[str, about("Full name of a part, such as `part of the output`.")] = "part of the output"
    values: Annotated[str, about("Name of the values of a part.")] = "values"
    decoded: Annotated[str, about("Name of the decoded output, such as `series`.")] = "output"


@dataclass(frozen=True)
class Port:
    """One output of a network: its axes in PyTorch and in Keras, in rule syntax (``b c h w -> b h w c``; "" if they are
    the same), and the parts of the axis after the batch axis that a report distinguishes.

    ``decode`` maps an output (B, C, F) to what it represents, (B, N, F), in float64; ``None`` if that is unknown.
    """

    name: str
    axes: str = ""
    parts: Mapping[str, slice] = field(default_factory=dict)
    decode: Callable[[Array], Array] | None = None
    words: PartWords = PartWords()


def _in_port(spec: Input, array: Array) -> Array:
    return np.ascontiguousarray(np.transpose(array, spec.order))


@dataclass(frozen=True)
class Signature:
    """A network's inputs and outputs. If ``outputs`` is empty, all outputs are used unchanged."""

    inputs: tuple[Input, ...]
    outputs: tuple[Port, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences on what the inputs do not show, such as a size that is used for another one."""
    free: Mapping[str, int] = field(default_factory=dict)
    """Axes whose size is only that of the comparison: the network takes every multiple of this number."""
    longer: Mapping[str, int] = field(default_factory=dict)
    """Axes of which the network takes some larger sizes, in these steps, and does not state them."""

    def make(self, seed: int, batch: int, scale: float) -> tuple[Array, ...]:
        """Return inputs in the PyTorch model's layout, float64, int64 or bool."""
        return tuple(spec.make(seed, batch, scale) for spec in self.inputs)

    def in_port(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Convert inputs of the PyTorch model to the Keras model's layout."""
        specs = given(self.inputs, len(inputs))
        if len(specs) != len(inputs):  # the user's own make_inputs
            return tuple(inputs)
        return tuple(map(_in_port, specs, inputs))

    def one_in_port(self, index: int, array: Array) -> Array:
        """Convert one input, or its gradient."""
        return _in_port(self.inputs[index], array) if index < len(self.inputs) else array

    @property
    def divided(self) -> Port | None:
        """The output whose parts are distinguished: the first output, if it has parts."""
        return self.outputs[0] if self.outputs and self.outputs[0].parts else None

    @property
    def words(self) -> PartWords:
        """Names for the parts of the output."""
        return self.divided.words if self.divided is not None else PartWords()

    @property
    def axes(self) -> tuple[str, ...]:
        """How activations are transposed, according to the inputs and outputs: one rule per rank."""
        rules = [spec.rule for spec in self.inputs if spec.axes != spec.keras_axes and spec.kind != "int"]
        sides = [(port.axes, *map(str.strip, port.axes.split("->"))) for port in self.outputs if port.axes]
        return tuple(dict.fromkeys([*rules, *(text for text, ours, theirs in sides if ours != theirs)]))


@dataclass(frozen=True)
class Free:
    """A size that differs between calls of a function: ``times * name - less``, where ``name`` is 1 or more."""

    name: str
    times: int = 1
    less: int = 0

    def __str__(self) -> str:
        times = f"{self.times}*" if self.times != 1 else ""
        return f"{times}{self.name}" + (f" - {self.less}" if self.less else "")

    def at(self, value: int) -> int:
        """The size for a value of ``name``."""
        return self.times * value - self.less


@dataclass(frozen=True)
class Taken:
    """One input of a function: its name, its sizes in Keras's order of axes, and its kind (float, int or bool)."""

    name: str
    sizes: tuple[int | Free, ...]
    kind: str = "float"


@dataclass(frozen=True)
class Function:
    """A pure function of (the values of a model's variables by path, *inputs) to arrays, which ``outputs`` names."""

    inputs: tuple[Taken, ...]
    outputs: tuple[str, ...]
    call: Callable[..., Sequence[jax.Array]]


PIXELS: Final = "from 0 to 1"
"""The units of decoded images."""

LARGEST_PIXEL: Final = 2.0
"""Pixels from -1 to 1 that are beyond it have another scale, such as 0 to 255; resizing makes a little more than 1."""


@dataclass(frozen=True)
class Coded:
    """What encoding and decoding need to know about a configuration.

    A video (B, T, H, W, ``channels``) from -1 to 1 has latents (B, t, h, w, ``latent_channels``), where T = ``frames``
    * (t - 1) + 1, H = ``pixels`` * h and W = ``pixels`` * w; the decoded video has ``decoded_channels``.
    ``normalises`` states whether mean and deviation of the latents are known.
    """

    channels: int
    decoded_channels: int
    latent_channels: int
    frames: int
    pixels: int
    normalises: bool

    def video(self, latents: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the video of latents of this shape."""
        batch, frames, height, width, _ = latents
        return (batch, self.frames * (frames - 1) + 1, self.pixels * height, self.pixels * width, self.decoded_channels)


@dataclass(frozen=True)
class Vocabulary:
    """What generation and training need to know about a configuration: the number of tokens, the mask token, which is
    replaced by a generated one, the token of padding, and the length of the longest text that the model was trained
    on; None for what the configuration does not name."""

    size: int
    mask: int | None
    padding: int | None = None
    longest: int | None = None


@dataclass(frozen=True)
class ArrayNames:
    """A family's names for an array of samples (n, L, F): ``name`` in Python and in files; one step of L is the column
    ``step`` of a table and ``axis`` in prose."""

    name: str
    step: str
    axis: str


@dataclass(frozen=True)
class Decoding:
    """The linear map between a state and what it represents, both in standard units; leading axes are samples.

    ``shape`` is that of one decoded sample, whose last axis has a ``mean`` and a deviation ``std`` per feature.
    ``units`` names the units of :meth:`Sampled.to_series`. ``curve``, if given, is applied to values in the units of
    the data, before mean and deviation are.
    """

    shape: tuple[int, ...]
    encode: Callable[[Array | jax.Array], jax.Array]
    decode: Callable[[Array | jax.Array], jax.Array]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    units: str
    curve: Callable[[Array], Array] | None = None

    def standard(self, values: Array) -> Array:
        """Decoded values (..., F) in the units of the data in standard units."""
        straight = values if self.curve is None else self.curve(values)
        scaled: Array = (straight - np.asarray(self.mean)) / np.asarray(self.std)
        return scaled


def unchanged(values: Array | jax.Array) -> jax.Array:
    """The map of a :class:`Decoding` whose states are the decoded values."""
    import jax.numpy as jnp

    return jnp.asarray(values)


@dataclass(frozen=True)
class NotDecoded:
    """Why states are not decoded: ``reason`` for a summary, ``what`` and ``fix`` for an error.

    ``data`` means that the network was trained on states directly, so they need no decoding.
    """

    reason: str
    what: str
    fix: str
    data: bool = False


@dataclass(frozen=True, eq=False)
class Windowed:
    """How decoded samples become series in the units of the data, if every window has its own statistics: the name of
    the transform (:mod:`wdport.uses.data.transforms`), and the statistics of the ``count`` windows of the training
    data."""

    transform: str
    statistics: Mapping[str, Array]
    count: int


@dataclass(frozen=True, eq=False)
class Condition:
    """A further input of a network that draws samples: one value for every sample, the same at every step.

    ``name`` is the input's name, such as "labels" or "scale". ``kind`` is "class" (a whole number from 0 below
    ``classes``), "positive" or "real"; ``shape`` the shape of one sample's value. ``null`` is the value that means "no
    condition" to the network, which guidance needs. With ``optional`` the network also runs without the input.
    ``trained`` states whether it was trained with values, None if unknown. ``statistic`` names the statistic of
    windows (:class:`Windowed`) that it is, from whose values "data" draws.
    """

    name: str
    kind: Literal["class", "positive", "real"] = "real"
    shape: tuple[int, ...] = ()
    classes: int | None = None
    null: float | None = None
    optional: bool = False
    trained: bool | None = True
    statistic: str | None = None

    @property
    def dtype(self) -> str | None:
        """The dtype of the network's input: int32 for classes, None for that of the states."""
        return "int32" if self.kind == "class" else None

    @property
    def taken(self) -> bool:
        """Whether programs of the network take it: not if the network was trained without it and runs without it."""
        return self.trained is not False or not self.optional

    def trial(self, count: int, first: int = 0) -> Array:
        """Values (count, *shape) for a comparison, which differ between neighbours; ``first`` selects others."""
        if self.classes is not None:
            return ((np.arange(count) + first) % self.classes).astype(np.int32)
        values = np.random.default_rng([count, first]).standard_normal((count, *self.shape))
        return np.exp(values) if self.kind == "positive" else values


def labels_of(classes: int | None, no_class: int | None = None) -> Condition | None:
    """The condition of a network with labels of ``classes``; ``no_class`` is the one for no class. None without."""
    return None if classes is None else Condition("labels", "class", classes=classes, null=no_class)


@dataclass(frozen=True)
class Clipping:
    """How the clean state predicted by a network is changed before it is used.

    Values are clipped to ``limit``. With a ``ratio``, they are clipped to this quantile of a sample's absolute values,
    which is itself clipped to 1 and ``limit``, and divided by it (dynamic thresholding, arXiv 2205.11487, sec. 2.3).
    """

    limit: float
    ratio: float | None = None

    def apply(self, clean: Any, xp: Any) -> Any:
        """The changed states (B, *shape), by the functions of ``xp``: numpy or jax.numpy."""
        if self.ratio is None:
            return xp.clip(clean, -self.limit, self.limit)
        level = xp.quantile(xp.abs(clean), self.ratio, axis=tuple(range(1, clean.ndim)), keepdims=True)
        level = xp.clip(level, 1.0, self.limit)
        return xp.clip(clean, -level, level) / level


@dataclass(frozen=True)
class Diffused:
    """What sampling needs to know about a configuration.

    ``shape`` is the shape of one sample's state. ``state`` and ``decoded`` are the family's names for the two arrays of
    samples.
    ``numbers`` are held for one sample at most while the network runs. ``sizes`` are the sizes that an artifact states.
    ``clip``, if given, is how the clean state is changed at each step.
    ``condition`` is the network's further input, None if it has none. ``features`` are the names along the last axis of
    a state and of a decoded sample; empty if they are unnamed. ``windowed`` converts decoded samples further.
    """

    shape: tuple[int, ...]
    state: ArrayNames
    decoded: ArrayNames
    decoding: Decoding | NotDecoded
    numbers: int
    sizes: Mapping[str, int | None] = field(default_factory=dict)
    clip: Clipping | None = None
    condition: Condition | None = None
    features: tuple[str, ...] = ()
    windowed: Windowed | None = None
