"""The roles of a model family, each a protocol that the rest of wdport uses.

Every family is a :class:`Family`. The other roles are optional and tested by ``isinstance``: a family that has the
methods has the role. First those of files and configurations, which a conversion needs, then those of what a converted
model is used for: drawing samples, coding video, completing texts, training, export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.random import Generator

from wdport.compare.findings import Gate
from wdport.compare.gate_bounds import Bound
from wdport.mapping.axes import Shape
from wdport.mapping.rows import Table
from wdport.model import (
    Array,
    Coded,
    Configuration,
    ConfigurationSource,
    Constant,
    Diffused,
    Document,
    Function,
    KerasModel,
    LossPart,
    Objective,
    Recipe,
    Resolved,
    Signature,
    Stated,
    Vocabulary,
)
from wdport.recorder import Input

if TYPE_CHECKING:
    from jax import Array as Tensor
    from torch.nn import Module

    from wdport.compare.setting_values import SettingsReport
    from wdport.uses.diffusion.process import Process


class Family(Protocol):
    """The role of every family: its checkpoints can be planned, without torch, keras or jax, and its models built and
    compared."""

    name: str

    @property
    def shown(self) -> Mapping[str, str]:
        """The configuration fields that the summary of a conversion shows, with their labels."""

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        """The family's fields from a training configuration file (already parsed YAML)."""

    def parse_setting(self, key: str, text: str) -> object:
        """One ``--set KEY=VALUE``; raises ``UsageError``."""

    def resolve(self, source: ConfigurationSource, config: Document, flags: Document) -> Resolved:
        """The configuration; raises ``MisfitError`` if given values contradict the file or its metadata.

        ``flags`` may hold ``norm_mean`` and ``norm_std``, a number per feature, ``transform``, ``window_statistics``, a
        function of the length of a window, and ``feature_names``, in addition to parsed values.
        """

    def features(self, config: Configuration) -> frozenset[str]:
        """Names that tables use under ``when:``."""

    def variables(self, config: Configuration) -> dict[str, Shape]:
        """Path and shape of every variable of the port, in creation order."""

    def constants(self, config: Configuration) -> dict[str, Constant]:
        """Every constant table of the model, by its name under ``check:`` in mapping tables."""

    def load_config(self, values: Document) -> Configuration:
        """A configuration from its JSON form; raises ``ValueError``."""

    @property
    def registered_name(self) -> str:
        """The name under which Keras registers the class of its models, "PACKAGE>CLASS"; "" for the user's own
        models."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The bounds of the family's own gates."""

    @property
    def rests_on(self) -> Mapping[str, tuple[str, ...]]:
        """For each configuration field, the gates that depend on it although the network does not."""

    def signature(self, config: Configuration) -> Signature:
        """The inputs and outputs of the network."""

    def build(self, config: Configuration, dtype: str | None = None) -> KerasModel:
        """The Keras model, with zero weights, to be filled."""

    def unfilled(self) -> AbstractContextManager[None]:
        """Context in which models get no initial values, since they are filled afterwards."""

    def build_reference(self, config: Configuration, tensors: Mapping[str, Array], dtype: str) -> Module:
        """The PyTorch module in evaluation mode with these weights; ``dtype`` float32 or float64."""

    def port_tables(self, model: KerasModel) -> dict[str, Array]:
        """The constant tables that the Keras model uses, under the names of :meth:`constants`."""

    def gates(self, config: Configuration) -> Sequence[Gate]:
        """The family's own gates, for its parts other than the network."""


@runtime_checkable
class Referenced(Protocol):
    """The role of a family whose reference is the released class of an optional library.

    :meth:`Family.build_reference` and all of these raise :class:`MachineError` if the library is not installed.
    """

    def library_of(self, config: Configuration) -> str:
        """The library's class and release."""

    def stated_reference(
        self, config: Configuration, tensors: Mapping[str, Array], dtype: str, stated: Stated
    ) -> Module:
        """:meth:`build_reference`, where the library reads the configuration itself."""

    def misread(self, config: Configuration, stated: Stated, module: Module) -> list[str]:
        """What the library, whose class ``module`` is, reads otherwise than ``config`` has it, in words."""


@runtime_checkable
class Guessing(Protocol):
    """A family whose checkpoints do not state settings that change what the network computes."""

    @property
    def guesses(self) -> Mapping[str, str]:
        """Such settings, each with what goes wrong if the assumed value is wrong."""


@runtime_checkable
class ConfiguredBeside(Protocol):
    """A family whose training configuration is stored next to its checkpoints, as ``config.yaml``."""

    def is_configuration(self, document: object) -> bool:
        """Whether a file of this name is such a configuration; others are not read."""


@runtime_checkable
class Accompanied(Protocol):
    """A family whose models keep files of the checkpoint's folder: in a ``.keras`` file they are assets."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of such files."""

    def keep(self, model: KerasModel, files: Mapping[str, bytes]) -> None:
        """Give a model those that its file has."""


@runtime_checkable
class Documented(Protocol):
    """A family whose models are classes of wdport: their files are written and read without Keras."""

    def keras_document(self, config: Configuration) -> dict[str, object]:
        """What Keras writes as ``config.json`` for the model in float32."""


@runtime_checkable
class Configured(Protocol):
    """A family with its own configuration file format."""

    name: str

    def settings_schema(self) -> dict[str, object]:
        """The JSON Schema of the file that :meth:`Family.read_settings` reads."""


@runtime_checkable
class KeptByKeras(Protocol):
    """A family whose files are written and read by Keras's own code, and whose variables are known only from a built
    model, which may be too large for the machine."""

    def outline(self, config: Configuration) -> dict[str, Shape]:
        """The same as ``variables``, without allocating values."""

    def save(self, config: Configuration, path: Path, arrays: Iterator[tuple[str, Array]]) -> dict[str, Array]:
        """Write the model with these values of its variables, by path."""

    def read(self, config: Configuration, path: Path) -> dict[str, Array]:
        """Every variable by path, as Keras reads the file into a new model."""


class OwnFamily(Family, KeptByKeras, Protocol):
    """The user's own model, described by its mapping table and the user's options."""

    table: Table
    model: str
    reference: str
    inputs: tuple[str, ...]

    def settings(self, arguments: Document) -> SettingsReport:
        """Settings that differ between the two models; both are built with these arguments, and not run."""

    def require_saved(self, config: Configuration, path: Path, saved: Document, same_release: bool) -> None:
        """Raise :class:`MisfitError` if the model that is built now is not the one that Keras described as ``saved`` in
        a file; ``same_release`` states whether this release of Keras wrote it."""

    def told(self) -> tuple[Input, ...]:
        """The inputs stated by the table or the user; raises ``MisfitError``."""

    def other_layout(self) -> tuple[str, ...]:
        """The inputs with channels last in Keras, if their sizes do not tell that they are not; empty if they do."""

    def assume_inputs(self, shapes: Sequence[Sequence[int | None]]) -> None:
        """Take these as the shapes of the Keras model's inputs, so that ``signature`` does not build it."""

    def arguments(self, source: ConfigurationSource, config: Document) -> dict[str, object]:
        """The arguments of the functions that build the two models; raises ``MisfitError``."""


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


@runtime_checkable
class Trained(Protocol):
    """The role of a family with a training objective."""

    def objective(self, config: Configuration, model: KerasModel) -> Objective:
        """The training objective; ``model`` is the Keras model, for the tables that the loss needs."""

    def loss_parts(self, config: Configuration) -> Sequence[LossPart]:
        """The parts of the state with their weights in the loss, in their order."""
