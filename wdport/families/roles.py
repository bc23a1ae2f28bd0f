"""The roles of a model family: what the rest of wdport may ask of one, each role a protocol.

Every family is :class:`Family`. The others are optional, and asked for by ``isinstance``: a family that has the
methods has the role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from wdport.compare.bounds import Bound
from wdport.compare.findings import Gate
from wdport.families.faults import Group
from wdport.mapping.axes import Shape
from wdport.mapping.rows import Table
from wdport.model import (
    Array,
    Configuration,
    Constant,
    Diffused,
    Document,
    KerasModel,
    Objective,
    Resolved,
    Signature,
    Source,
)
from wdport.recorder import Input

if TYPE_CHECKING:
    from jax import Array as Tensor
    from torch.nn import Module

    from wdport.compare.setting import SettingsReport
    from wdport.diffusion.process import Process
    from wdport.families.mutants import Mutant

Tree = Any
"""Arrays in any nesting: a model's weights, what it makes of the times. They are arguments of the compiled programs,
so new values need no new program."""


class Convertible(Protocol):
    """A family whose checkpoints can be planned; neither torch nor keras nor jax is needed for it."""

    name: str

    @property
    def shown(self) -> Mapping[str, str]:
        """The fields of the configuration that a few lines about a conversion show, and what each is called there."""
        ...

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        """The family's fields from a training configuration file (already parsed YAML)."""
        ...

    def parse_setting(self, key: str, text: str) -> object:
        """One ``--set KEY=VALUE``; raises ``UsageError``."""
        ...

    def resolve(self, source: Source, config: Document, flags: Document) -> Resolved:
        """The configuration; raises ``MisfitError`` where the givens contradict the file, or what it says of itself.

        ``flags`` may hold ``norm_mean`` and ``norm_std``, a number per feature, beside what was parsed.
        """
        ...

    def features(self, config: Configuration) -> frozenset[str]:
        """Names that tables use under ``when:``."""
        ...

    def variables(self, config: Configuration) -> dict[str, Shape]:
        """Path and shape of every variable of the port, in creation order."""
        ...

    def constants(self, config: Configuration) -> dict[str, Constant]:
        """Every table of the model, by the name that mapping tables use under ``check:``."""
        ...

    def load_config(self, values: Document) -> Configuration:
        """A configuration from its JSON form; raises ``ValueError``."""
        ...


class Family(Convertible, Protocol):
    """A family whose models can be built and compared. Every family is one."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The bounds of its own gates."""
        ...

    @property
    def rests_on(self) -> Mapping[str, tuple[str, ...]]:
        """By field of the configuration, the gates whose outcome rests on it, where the network's does not."""
        ...

    def signature(self, config: Configuration) -> Signature:
        """What the network takes and gives."""
        ...

    def build(self, config: Configuration, dtype: str | None = None) -> KerasModel:
        """The Keras model, its weights zero, waiting to be filled."""
        ...

    def unfilled(self) -> AbstractContextManager[None]:
        """Models that are made inside have no initial values, for they are about to be filled."""
        ...

    def build_reference(self, config: Configuration, tensors: Mapping[str, Array], dtype: str) -> Module:
        """The PyTorch module in evaluation mode with these weights; ``dtype`` float32 or float64."""
        ...

    def port_tables(self, model: KerasModel) -> dict[str, Array]:
        """The tables that the Keras model itself uses, under the names of :meth:`constants`."""
        ...

    def mutants(self, config: Configuration) -> Sequence[Mutant]:
        """Known bugs of ports of this family: :class:`wdport.families.mutants.Mutant`."""
        ...

    def gates(self, config: Configuration) -> Sequence[Gate]:
        """Its own gates, about what it has beside the network."""
        ...


@runtime_checkable
class Referenced(Protocol):
    """The role of a family whose reference is not always wdport's own code."""

    def reference_of(self, config: Configuration) -> str:
        """Whose code the reference is."""
        ...


@runtime_checkable
class Documented(Protocol):
    """A family whose models are classes of wdport: their files are written and read without Keras."""

    def keras_document(self, config: Configuration) -> dict[str, object]:
        """What Keras writes as ``config.json`` for the model in float32."""
        ...


@runtime_checkable
class Outlined(Protocol):
    """A family whose variables take a built model to know, which may be too large for the machine."""

    def outline(self, config: Configuration) -> dict[str, Shape]:
        """The same as ``variables``, without memory for values."""
        ...


@runtime_checkable
class KeptByKeras(Protocol):
    """A family whose files are written and read by Keras's own code."""

    def save(self, config: Configuration, path: Path, arrays: Iterator[tuple[str, Array]]) -> dict[str, Array]:
        """Write the model with these values of its variables; the values by path."""
        ...

    def read(self, config: Configuration, path: Path) -> dict[str, Array]:
        """Every variable by path, as Keras reads the file into a new model."""
        ...


class OwnFamily(Family, KeptByKeras, Outlined, Protocol):
    """The user's own model, as its mapping table and the user describe it."""

    table: Table
    model: str
    reference: str

    def settings(self, arguments: Document) -> SettingsReport:
        """What the two models were told differently; both are built with these arguments, and nothing is run."""
        ...

    def told(self) -> tuple[Input, ...]:
        """The inputs as the table or the user states them; raises ``MisfitError``."""
        ...

    def arguments(self, source: Source, config: Document) -> dict[str, object]:
        """What the functions that build the two models are called with; raises ``MisfitError``."""
        ...


class Denoiser(Protocol):
    """A network for sampling: pure functions of its arranged weights, arrays in any nesting."""

    def arrange(self, variables: Mapping[str, Tensor], by_outputs: bool = True) -> Tree:
        """The model's variables by path as the functions below want them, lying one way or the other."""
        ...

    def lay_out(self, weights: Tree, by_outputs: bool) -> Tree:
        """Arranged weights, lying so."""
        ...

    def by_outputs(self, batch: int | None) -> bool:
        """How weights are best laid out for ``batch`` samples, or for any number of them."""
        ...

    def conditions(self, weights: Tree, times: Tensor) -> Tree:
        """All that depends on the times (S,) alone, arrays with S in front."""
        ...

    def predict(self, weights: Tree, state: Tensor, condition: Tree, labels: Tensor | None = None) -> Tensor:
        """The prediction for a state (B, *shape) and one step's condition; labels (B,) where there are classes."""
        ...


@runtime_checkable
class Sampled(Protocol):
    """The role of a family whose models draw samples by diffusion."""

    name: str

    def unsampled(self, config: Configuration) -> str:
        """Why a model of this configuration draws no samples, in words; "" where it does."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """How paths of variables begin that the network for sampling does not need."""
        ...

    def process(self, config: Configuration, table: Callable[[str], Array]) -> Process:
        """What the network was trained to undo; ``table`` gives those that a checkpoint and its port hold, such as
        "noise_schedule.beta"."""
        ...

    def diffused(self, config: Configuration) -> Diffused:
        """What sampling has to know of a configuration."""
        ...

    def denoiser(self, config: Configuration, dtype: str, pad_widths: int = 1) -> Denoiser:
        """The network for sampling, computing in ``dtype``; no Keras."""
        ...

    def to_series(self, config: Configuration, states: Array | Tensor, /) -> Tensor | None:
        """States, decoded and in the units of the data where these are known; ``None`` where they are not decoded."""
        ...

    def time_tables(self, conditions: Tree) -> Iterator[tuple[str, Array]]:
        """By Keras layer path, the tables (S, n) of the sampling network that depend on time alone; ``conditions`` are
        what that network makes of S times."""
        ...

    def time_layers(self, model: KerasModel, times: Array | Tensor) -> Iterator[tuple[str, Array]]:
        """The same in the same order, as the layers of the Keras model make it of ``times`` (S,)."""
        ...


@runtime_checkable
class Trained(Protocol):
    """The role of a family that knows what its training minimises."""

    def objective(self, config: Configuration, model: KerasModel) -> Objective:
        """What training minimises; ``model`` is the Keras model, for the tables that the loss needs."""
        ...


@runtime_checkable
class Faulty(Family, Protocol):
    """The role of a family whose known faults `wdport selftest` tries."""

    @property
    def causes_known(self) -> bool:
        """Whether its faults have the words of a right diagnosis, so that their causes can be judged."""
        ...

    def smallest(self) -> Configuration:
        """The configuration that runs soonest and still has the parts that quick mutants are in."""
        ...

    def examples(self) -> dict[str, Configuration]:
        """Small configurations that between them have every part of the family, by a few words each."""
        ...

    def random_tensors(self, config: Configuration, seed: int) -> dict[str, Array]:
        """A checkpoint's tensors, float32, with every weight and bias random."""
        ...


@runtime_checkable
class FaultyAround(Protocol):
    """The role of a family that has known faults of what it has beside the network."""

    def faults(self, held: Mapping[str, float], quick: bool = False) -> Iterator[Group]:
        """Those faults, judged by these bounds, at the family's own gates."""
        ...


@runtime_checkable
class Rewritten(Protocol):
    """The role of a family that has other ways to compute its layers."""

    def rewrites(self, config: Configuration) -> Sequence[Mutant]:
        """Correct ports that compute the same by another way: mutants that must survive, everywhere at once."""
        ...


@runtime_checkable
class Edited(Faulty, Protocol):
    """The role of a family whose source `wdport selftest --edits` edits."""

    def edited(self) -> Mapping[str, Configuration]:
        """The configurations that source edits are tried on, by the variant that an edit names."""
        ...

    def edits(self) -> Path:
        """The file of source edits."""
        ...

    def given(self, config: Configuration) -> dict[str, str]:
        """What shapes do not tell of a configuration, as for ``--set``."""
        ...

    def statistics(self, config: Configuration) -> tuple[Sequence[float], Sequence[float]] | None:
        """Mean and deviation of the data, by feature, where they are known."""
        ...
