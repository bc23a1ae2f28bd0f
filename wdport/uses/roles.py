"""The roles of a model family for what a converted model is used for: drawing samples, coding video, completing texts,
encoding series, training from scratch, export. They are optional, as those of :mod:`wdport.families.roles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.random import Generator

from wdport.models.interface import (
    Array,
    Coded,
    Configuration,
    Diffused,
    Document,
    Function,
    KerasModel,
    Recipe,
    Vocabulary,
)

if TYPE_CHECKING:
    from jax import Array as Tensor
    from torch.nn import Module

    from wdport.uses.diffusion.process import Process

Tree = Any
"""Arrays in any nesting, such as a model's weights. They are arguments of the compiled programs, so new values need no
new program."""


@runtime_checkable
class Sampled(Protocol):
    """The role of a family whose models draw samples by diffusion."""

    name: str

    def build(self, config: Configuration, dtype: str | None = None) -> KerasModel:
        """See :meth:`Family.build`."""

    def unsampled(self, config: Configuration) -> str:
        """Why a model of this configuration cannot draw samples, as text; "" if it can."""

    def process(self, config: Configuration, table: Callable[[str], Array]) -> Process:
        """The process that the network was trained to undo; ``table`` returns the tables that a checkpoint and its port
        hold, such as "noise_schedule.beta"."""

    def diffused(self, config: Configuration) -> Diffused:
        """What sampling needs to know about a configuration."""

    def to_series(self, config: Configuration, states: Array | Tensor, /) -> Tensor | None:
        """Decoded states, in the units of the data if these are known; ``None`` if states are not decoded."""


class VideoCoder(Protocol):
    """A Keras model that encodes and decodes videos in chunks of latent frames."""

    def encode(
        self, video: Array, *, chunk: int = 1, normalise: bool = False, compute_dtype: str | None = None
    ) -> tuple[Array, Array]:
        """Mean and log-variance (B, t, h, w, z) of the latents of a video (B, T, H, W, C) from -1 to 1."""

    def decode_in_parts(
        self, latents: Array, *, chunk: int = 1, output: str | None = None, normalised: bool = False,
        truncate: bool = False, compute_dtype: str | None = None,
    ) -> Iterator[Array]:  # fmt: skip
        """The video of latents, in parts along T: "float32", or "uint8", rounded unless ``truncate``."""


@runtime_checkable
class Autoencoder(Protocol):
    """The role of a family whose models encode videos to latents and decode them."""

    name: str

    def coded(self, config: Configuration) -> Coded:
        """What encoding and decoding need to know about a configuration."""

    def coder(self, model: KerasModel) -> VideoCoder:
        """The coder of a model of this family."""


class TokenNetwork(Protocol):
    """A network for generation: a pure function of its weights."""

    def weights(self) -> Tree:
        """The model's current weights."""

    def predict(
        self, weights: Tree, tokens: Tensor, visible: Tensor, positions: Tensor, first: Tensor, count: int
    ) -> Tensor:
        """The logits (B, count, V) of the tokens from ``first`` on, a traced integer.

        All others are (B, N): the tokens in any order, which of them are read, and their positions in the text.
        """


@runtime_checkable
class Completing(Protocol):
    """The role of a family whose models predict masked tokens, so that they complete texts."""

    name: str

    def vocabulary(self, config: Configuration) -> Vocabulary:
        """The tokens of a configuration."""

    def tokenizer(self, model: KerasModel) -> str:
        """The ``tokenizer.json`` that a model keeps; "" if it has none."""

    def token_network(self, model: KerasModel) -> TokenNetwork:
        """The network of a model of this family; it does not keep the model alive."""


@runtime_checkable
class Programmed(Protocol):
    """The role of a family whose models are used through functions other than their call, which is for comparisons."""

    def functions(self, model: KerasModel) -> Mapping[str, Function]:
        """These functions by name; ``model`` gives their layers and dtypes, not the values of its variables."""


@runtime_checkable
class Fresh(Protocol):
    """The role of a family whose models are also trained from scratch."""

    def fresh_config(self, settings: Document, where: str | Path) -> tuple[Configuration, dict[str, object]]:
        """The configuration of a new model, and those of its values that were assumed.

        ``settings`` are those of ``read_settings``, with ``norm_mean``, ``norm_std`` and ``feature_names`` of the data.

        Raises :class:`MisfitError` if one is missing.
        """

    def recipe(self, document: Document, where: str | Path, public: bool = False) -> Recipe:
        """How the model is trained according to the configuration file or, with ``public``, by the public training
        script with this file; raises :class:`MisfitError`."""

    def fresh(self, config: Configuration, seed: int, dtype: str | None = None) -> KerasModel:
        """A model with random initial weights."""


@runtime_checkable
class InitializedByLibrary(Protocol):
    """The role of a family whose library gives a new model its random initial weights."""

    def is_configuration_of_library(self, document: Document) -> bool:
        """Whether a ``config.json`` is that of the library's class."""

    def random_module(self, document: Document, seed: int, where: Path) -> Module:
        """The library's class with random weights; raises :class:`MachineError` without the library, and
        :class:`MisfitError` for a configuration that it rejects, which is in the file ``where``."""


class SeriesEncoder(Protocol):
    """An encoder of series as pure functions of its weights, which are the variables of its Keras model by path."""

    def initial(self, random: Generator) -> dict[str, Array]:
        """Random initial weights."""

    def loss(self, weights: Mapping[str, Tensor], key: Tensor, series: Tensor) -> Tensor:
        """The training loss of a batch of series (B, N, F); what is random in it follows from the key."""

    def embed(self, weights: Mapping[str, Tensor], series: Tensor) -> Tensor:
        """A vector (B, D) for every series (B, N, F)."""


@runtime_checkable
class Encoding(Protocol):
    """The role of a family whose models encode series to vectors, and are trained on series without labels."""

    def usual(self, features: int) -> Configuration:
        """The configuration of the published size for series of so many features."""

    def encoded(self, config: Configuration) -> int:
        """The number of features of the series that are encoded."""

    def series_encoder(self, config: Configuration) -> SeriesEncoder:
        """The encoder of a configuration; two of one configuration are equal."""
