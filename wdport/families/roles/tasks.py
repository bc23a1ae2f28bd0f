"""Roles of what a converted model is used for: drawing samples, coding video, completing texts, training, export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.random import Generator

from wdport.model import (
    Array,
    Coded,
    Configuration,
    Diffused,
    Document,
    Function,
    KerasModel,
    LossPart,
    Objective,
    Recipe,
    Vocabulary,
)

if TYPE_CHECKING:
    from jax import Array as Tensor

    from wdport.diffusion.process import Process

Tree = Any
"""Arrays in any nesting: a model's weights, or its embedded times. They are arguments of the compiled
programs, so new values need no new program."""


class Denoiser(Protocol):
    """A network for sampling: pure functions of its arranged weights, arrays in any nesting."""

    def arrange(self, variables: Mapping[str, Tensor], by_outputs: bool = True) -> Tree:
        """Arrange the model's variables, by path, for the functions below, in either layout."""
        ...

    def lay_out(self, weights: Tree, by_outputs: bool) -> Tree:
        """Arranged weights in this layout."""
        ...

    def by_outputs(self, batch: int | None) -> bool:
        """The fastest layout for ``batch`` samples, or for any number (None)."""
        ...

    def embed(self, weights: Tree, times: Tensor) -> Tree:
        """Everything that depends only on the times (S,), arrays with leading axis S."""
        ...

    def predict(self, weights: Tree, state: Tensor, embedded: Tree, condition: Tensor | None = None) -> Tensor:
        """The prediction for a state (B, *shape) and one step's embedded time, and a condition (B, ...) if given."""
        ...


@runtime_checkable
class Sampled(Protocol):
    """The role of a family whose models draw samples by diffusion."""

    name: str

    def unsampled(self, config: Configuration) -> str:
        """Why a model of this configuration cannot draw samples, as text; "" if it can."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Path prefixes of variables that the network for sampling does not need."""
        ...

    def process(self, config: Configuration, table: Callable[[str], Array]) -> Process:
        """The process that the network was trained to undo; ``table`` returns the tables that a checkpoint and its port
        hold, such as "noise_schedule.beta"."""
        ...

    def diffused(self, config: Configuration) -> Diffused:
        """What sampling needs to know about a configuration."""
        ...

    def denoiser(self, config: Configuration, dtype: str, pad_widths: int = 1) -> Denoiser:
        """The network for sampling, computing in ``dtype``; no Keras."""
        ...

    def to_series(self, config: Configuration, states: Array | Tensor, /) -> Tensor | None:
        """Decoded states, in the units of the data if these are known; ``None`` if states are not decoded."""
        ...

    def time_tables(self, embedded: Tree) -> Iterator[tuple[str, Array]]:
        """By Keras layer path, the tables (S, n) of the sampling network that depend only on time; ``embedded`` are
        S embedded times."""
        ...

    def time_layers(self, model: KerasModel, times: Array | Tensor) -> Iterator[tuple[str, Array]]:
        """The same in the same order, computed by the layers of the Keras model from ``times`` (S,)."""
        ...


class VideoCoder(Protocol):
    """A Keras model that encodes and decodes videos in chunks of latent frames."""

    def encode(
        self, video: Array, *, chunk: int = 1, normalise: bool = False, compute_dtype: str | None = None
    ) -> tuple[Array, Array]:
        """Mean and log-variance (B, t, h, w, z) of the latents of a video (B, T, H, W, C) from -1 to 1."""
        ...

    def decode_in_parts(
        self, latents: Array, *, chunk: int = 1, output: str | None = None, normalised: bool = False,
        truncate: bool = False, compute_dtype: str | None = None,
    ) -> Iterator[Array]:  # fmt: skip
        """The video of latents, in parts along T: "float32", or "uint8", rounded unless ``truncate``."""
        ...


@runtime_checkable
class Autoencoder(Protocol):
    """The role of a family whose models encode videos to latents and decode them."""

    name: str

    def coded(self, config: Configuration) -> Coded:
        """What encoding and decoding need to know about a configuration."""
        ...

    def coder(self, model: KerasModel) -> VideoCoder:
        """The coder of a model of this family."""
        ...


class TokenNetwork(Protocol):
    """A network for generation: a pure function of its weights."""

    def weights(self) -> Tree:
        """The model's current weights."""
        ...

    def predict(
        self, weights: Tree, tokens: Tensor, visible: Tensor, positions: Tensor, first: Tensor, count: int
    ) -> Tensor:
        """The logits (B, count, V) of the tokens from ``first`` on, a traced integer.

        All others are (B, N): the tokens in any order, which of them are read, and where in the text they stand.
        """
        ...


@runtime_checkable
class Completing(Protocol):
    """The role of a family whose models predict masked tokens, so that they complete texts."""

    name: str

    def vocabulary(self, config: Configuration) -> Vocabulary:
        """The tokens of a configuration."""
        ...

    def tokenizer(self, model: KerasModel) -> str:
        """The ``tokenizer.json`` that a model keeps; "" if it has none."""
        ...

    def token_network(self, model: KerasModel) -> TokenNetwork:
        """The network of a model of this family; it does not keep the model alive."""
        ...


@runtime_checkable
class Programmed(Protocol):
    """The role of a family whose models are used through functions other than their call, which is for comparisons."""

    def functions(self, model: KerasModel) -> Mapping[str, Function]:
        """These functions by name; ``model`` gives their layers and dtypes, not the values of its variables."""
        ...


@runtime_checkable
class Fresh(Protocol):
    """The role of a family whose models are also trained from scratch."""

    def fresh_config(self, settings: Document, where: str | Path) -> tuple[Configuration, dict[str, object]]:
        """The configuration of a new model, and those of its values that were assumed.

        ``settings`` are those of ``read_settings``, with ``norm_mean``, ``norm_std`` and ``feature_names`` of the data.

        Raises :class:`MisfitError` if one is missing.
        """
        ...

    def recipe(self, document: Document, where: str | Path, public: bool = False) -> Recipe:
        """How the configuration file says that the model is trained or, with ``public``, how the public training script
        trains with this file; raises :class:`MisfitError`."""
        ...

    def fresh(self, config: Configuration, seed: int, dtype: str | None = None) -> KerasModel:
        """A model with random initial weights."""
        ...


class SeriesEncoder(Protocol):
    """An encoder of series as pure functions of its weights, which are the variables of its Keras model by path."""

    def initial(self, random: Generator) -> dict[str, Array]:
        """Random initial weights."""
        ...

    def loss(self, weights: Mapping[str, Tensor], key: Tensor, series: Tensor) -> Tensor:
        """The training loss of a batch of series (B, N, F); what is random in it follows from the key."""
        ...

    def embed(self, weights: Mapping[str, Tensor], series: Tensor) -> Tensor:
        """A vector (B, D) for every series (B, N, F)."""
        ...


@runtime_checkable
class Encoding(Protocol):
    """The role of a family whose models encode series to vectors, and are trained on series without labels."""

    def usual(self, features: int) -> Configuration:
        """The configuration of the published size for series of so many features."""
        ...

    def encoded(self, config: Configuration) -> int:
        """The number of features of the series that are encoded."""
        ...

    def series_encoder(self, config: Configuration) -> SeriesEncoder:
        """The encoder of a configuration; two of one configuration are equal."""
        ...


@runtime_checkable
class Trained(Protocol):
    """The role of a family with a training objective."""

    def objective(self, config: Configuration, model: KerasModel) -> Objective:
        """The training objective; ``model`` is the Keras model, for the tables that the loss needs."""
        ...

    def loss_parts(self, config: Configuration) -> Sequence[LossPart]:
        """The parts of the state with their weights in the loss, in their order."""
        ...
