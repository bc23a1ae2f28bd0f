"""What a model family tells the rest of wdport: the one interface between the two.

A family knows its configuration, its variables and its constants without importing keras or torch;
it builds its Keras model and its PyTorch reference on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wdport.mapping.axes import Shape
from wdport.recorder import Input

Array = NDArray[Any]


@dataclass(frozen=True)
class Constant:
    """A table that the family can recompute: ``values`` in float64, and how far (absolutely) a
    correct float32 file is from it at most, measured; ``None`` where nothing is known to compare with."""

    values: Array
    tolerance: float | None


@dataclass(frozen=True)
class Source:
    """What a family may look at to find its configuration: shapes, stored dtypes, and small tensors.

    ``saved`` is what the file says of its own configuration, Lightning's ``hyper_parameters``: plain data of any
    form, or ``None``. ``document`` reads the ``config.json`` beside it, if there is
    one.
    """

    path: Path
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    read: Callable[[str], Array]
    saved: Any = None
    document: Callable[[], Mapping[str, Any]] = dict


@dataclass(frozen=True)
class Resolved:
    """A configuration, and for each of its values where it came from.

    ``origins`` maps a field to "shapes", "buffers", "flag", "config", "hyper_parameters" or "assumed";
    ``alternatives`` an assumed field to a few words on what else would fit the file. ``notes`` are sentences on
    what the file says of itself and was not used.
    """

    config: Any
    origins: Mapping[str, str]
    alternatives: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def assumed(self) -> dict[str, Any]:
        """The values that nothing told."""
        return {name: getattr(self.config, name) for name, origin in self.origins.items() if origin == "assumed"}


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
    loss: Callable[[Any, Batch], Any]
    reference_loss: Callable[[Any, Batch], Any]


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

    def make(self, seed: int, batch: int, scale: float) -> tuple[Array, ...]:
        """Inputs as the PyTorch model takes them, float64, int64 or bool."""
        return tuple(each.make(seed, batch, scale) for each in self.inputs)

    def in_port(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Inputs of the PyTorch model as the Keras model takes them."""
        if len(inputs) != len(self.inputs):  # the user's own make_inputs
            return tuple(inputs)
        return tuple(
            np.ascontiguousarray(np.transpose(array, [told.axes.index(axis) for axis in told.keras_axes]))
            for array, told in zip(inputs, self.inputs, strict=True)
        )

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


class Family(Protocol):
    """One architecture: see `wdport/families/waveletdiff/family.py` for the first."""

    name: str

    def read_settings(self, document: Mapping[str, Any], where: str | Path) -> dict[str, Any]:
        """The family's fields from a training configuration file (already parsed YAML)."""
        ...

    def parse_setting(self, key: str, text: str) -> Any:
        """One ``--set KEY=VALUE``; raises ``UsageError``."""
        ...

    def resolve(self, source: Source, config: Mapping[str, Any], flags: Mapping[str, Any]) -> Resolved:
        """The configuration; raises ``MisfitError`` where the givens contradict the file, or what it says of itself.

        ``flags`` may hold ``norm_mean`` and ``norm_std``, a number per feature, beside what was parsed.
        """
        ...

    def features(self, config: Any) -> frozenset[str]:
        """Names that tables use under ``when:``."""
        ...

    def variables(self, config: Any) -> dict[str, Shape]:
        """Path and shape of every variable of the port, in creation order."""
        ...

    def constants(self, config: Any) -> dict[str, Constant]:
        """Every table of the model, by the name that mapping tables use under ``check:``."""
        ...

    def load_config(self, values: Mapping[str, Any]) -> Any:
        """A configuration from its JSON form; raises ``ValueError``."""
        ...

    def keras_document(self, config: Any) -> dict[str, Any]:
        """What Keras writes as ``config.json`` for the model in float32."""
        ...

    def build(self, config: Any, dtype: str | None = None) -> Any:
        """The Keras model, its weights zero, waiting to be filled."""
        ...

    def unfilled(self) -> AbstractContextManager[Any]:
        """Models that are made inside have no initial values, for they are about to be filled."""
        ...

    def denoiser(self, config: Any, dtype: str, pad_widths: int = 1) -> Any:
        """The network for sampling (see :mod:`wdport.families.waveletdiff.fast`), computing in ``dtype``; no Keras."""
        ...

    def to_series(self, config: Any, coefficients: Any) -> Any | None:
        """Coefficients (B, C, F) to series (B, N, F) in the units of the data; ``None`` without a known wavelet."""
        ...

    def build_reference(self, config: Any, tensors: Mapping[str, Array], dtype: str) -> Any:
        """The PyTorch module in evaluation mode with these weights; ``dtype`` float32 or float64."""
        ...

    def signature(self, config: Any) -> Signature:
        """What the network takes and gives."""
        ...

    def time_tables(self, conditions: Any) -> Iterator[tuple[str, Any]]:
        """By Keras layer path, the tables (S, n) of the sampling network that depend on time alone; ``conditions`` are
        what that network makes of S times."""
        ...

    def time_layers(self, model: Any, times: Any) -> Iterator[tuple[str, Any]]:
        """The same in the same order, as the layers of the Keras model make it of ``times`` (S,)."""
        ...

    def transform(self, config: Any) -> Any | None:
        """The :class:`WaveletTransform` between series and coefficients; ``None`` where it is unknown."""
        ...

    def objective(self, config: Any, model: Any) -> Objective:
        """What training minimises; ``model`` is the Keras model, for the tables that the loss needs."""
        ...

    def mutants(self, config: Any) -> Sequence[Any]:
        """Known bugs of ports of this family: :class:`wdport.families.mutants.Mutant`."""
        ...

    def rewrites(self, config: Any) -> Sequence[Any]:
        """Correct ports that compute the same by another way: mutants that must survive, everywhere at once."""
        ...

    def edited(self) -> Mapping[str, Any]:
        """The configurations that source edits are tried on, by the variant that an edit names."""
        ...

    def edits(self) -> Path:
        """The file of source edits."""
        ...

    def given(self, config: Any) -> dict[str, str]:
        """What shapes do not tell of a configuration, as for ``--set``."""
        ...

    def statistics(self, config: Any) -> tuple[Sequence[float], Sequence[float]] | None:
        """Mean and deviation of the data, by feature, where they are known."""
        ...

    def smallest(self) -> Any:
        """The configuration that runs soonest and still has the parts that quick mutants are in."""
        ...

    def examples(self) -> dict[str, Any]:
        """Small configurations that between them have every part of the family, by a few words each."""
        ...

    def random_tensors(self, config: Any, seed: int) -> dict[str, Array]:
        """A checkpoint's tensors, float32, with every weight and bias random."""
        ...

    def port_tables(self, model: Any) -> dict[str, Array]:
        """The tables that the Keras model itself uses, under the names of :meth:`constants`."""
        ...


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
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
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

    ``shape`` is one sample's state, and ``target`` what the network predicts, one of
    :data:`wdport.diffusion.plans.TARGETS`; its time is step / 1000. ``state`` and ``decoded`` are what the family
    calls the two arrays of samples. ``numbers`` are held for one sample at most while the network runs. ``sizes`` are
    what an artefact says of its shapes. The noise schedule is in the model's variables under ``noise_schedule/``.
    """

    shape: tuple[int, ...]
    target: str
    state: Named
    decoded: Named
    decoding: Decoding | NotDecoded
    numbers: int
    sizes: Mapping[str, int | None] = field(default_factory=dict)


class Denoiser(Protocol):
    """A network for sampling: pure functions of its arranged weights, arrays in any nesting."""

    def arrange(self, variables: Mapping[str, Any], by_outputs: bool = True) -> Any:
        """The model's variables by path as the functions below want them, lying one way or the other."""
        ...

    def lay_out(self, weights: Any, by_outputs: bool) -> Any:
        """Arranged weights, lying so."""
        ...

    def by_outputs(self, batch: int | None) -> bool:
        """How weights are best laid out for ``batch`` samples, or for any number of them."""
        ...

    def conditions(self, weights: Any, times: Any) -> Any:
        """All that depends on the times (S,) alone, arrays with S in front."""
        ...

    def predict(self, weights: Any, state: Any, condition: Any) -> Any:
        """The prediction for a state (B, *shape) and one step's condition."""
        ...


@runtime_checkable
class Sampled(Protocol):
    """The role of a family whose models draw samples by diffusion."""

    name: str

    def diffused(self, config: Any) -> Diffused:
        """What sampling has to know of a configuration."""
        ...

    def denoiser(self, config: Any, dtype: str, pad_widths: int = 1) -> Denoiser:
        """The network for sampling, computing in ``dtype``; no Keras."""
        ...

    def to_series(self, config: Any, coefficients: Any) -> Any | None:
        """States, decoded and in the units of the data where these are known; ``None`` where they are not decoded."""
        ...
