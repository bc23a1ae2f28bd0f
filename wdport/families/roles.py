"""The roles of a model family, each a protocol: those that converting and comparing a model need.

Every family is a :class:`Family`. The other roles are optional and tested by ``isinstance``: a family that has the
methods has the role. The roles of what a converted model is used for are in :mod:`wdport.uses.roles`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from wdport.compare.findings import Gate
from wdport.compare.gate_bounds import Bound
from wdport.mapping.axes import Shape
from wdport.mapping.rows import Table
from wdport.models.interface import (
    Array,
    Configuration,
    ConfigurationSource,
    Constant,
    Document,
    KerasModel,
    LossPart,
    Objective,
    Resolved,
    Signature,
    Stated,
)
from wdport.recording.inputs import Input

if TYPE_CHECKING:
    from torch.nn import Module

    from wdport.compare.setting_values import SettingsReport


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


@runtime_checkable
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

    def described_by(self, variables: Mapping[str, Shape]) -> OwnFamily:
        """This model as its converted file describes it, with these ``variables``: the functions that build its Keras
        model are never called."""

    def remarks(self) -> list[str]:
        """Rows of the table that probably state too little for the Keras model built last, one sentence each."""

    def arguments(self, source: ConfigurationSource, config: Document) -> dict[str, object]:
        """The arguments of the functions that build the two models; raises ``MisfitError``."""


@runtime_checkable
class Trained(Protocol):
    """The role of a family with a training objective."""

    def objective(self, config: Configuration, model: KerasModel) -> Objective:
        """The training objective; ``model`` is the Keras model, for the tables that the loss needs."""

    def loss_parts(self, config: Configuration) -> Sequence[LossPart]:
        """The parts of the state with their weights in the loss, in their order."""
