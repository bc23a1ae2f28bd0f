"""The file of a converted optimizer, ``NAME.optimizer.safetensors``: moments by variable path, and its description; and
the names that torch has for them.

A tensor is named by moment and variable, such as ``exp_avg/blocks/0/attention/kernel``. The description is sealed like
a manifest, has a SHA-256 of every tensor, and one of the weights that the state belongs to.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from wdport.base.errors import InputError, MisfitError, UsageError
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.files.atomic import replacing
from wdport.files.manifest_seal import BLANK, CONVERT_AGAIN, sealed, unsealed
from wdport.files.model_files import Digests, digest
from wdport.files.model_target import stem_of
from wdport.files.outputs import OutputPath, writable
from wdport.files.safetensors_writer import METADATA, SafetensorsWriter
from wdport.models.interface import Array

Kind = str
"""``"adam"`` or ``"sgd"``."""

Groups = tuple[dict[str, Any], ...]
"""The hyper-parameters of every group, by torch's names."""

MOMENTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    "sgd": ("momentum_buffer",),
}
"""The arrays of each parameter's state, by torch's names."""

SETTINGS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "adam": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize"),
    "sgd": ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
}
"""Hyper-parameters that a group must have."""

DECOUPLED: Final = "decoupled_weight_decay"
WITHOUT_EFFECT: Final = frozenset({"foreach", "fused", "capturable", "differentiable", "name", "initial_lr", "max_lr",
                                   "min_lr", "swa_lr", "base_momentum", "max_momentum"})  # fmt: skip
"""Further options that a group may have: they change how torch computes and not what, or schedules keep them there."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the torch optimizer: index, name, group, and the names of its state's entries in their order.

    ``step`` is its number of steps and ``step_dtype`` the dtype of the tensor that holds it, "" for a Python number;
    ``dtype`` is that of its moments.
    """

    index: int
    name: str
    group: int
    entries: tuple[str, ...] = ()
    step: float | None = None
    step_dtype: str = ""
    dtype: str = "float32"


@dataclass(frozen=True)
class Optimised:
    """The state of an optimizer for the Keras model.

    ``moments`` maps torch's name of a moment to arrays by variable path; ``groups`` are torch's hyper-parameters of the
    groups, ``members`` the group of every variable, ``steps`` the number of steps of every variable with a state.
    ``schedules`` are the stored states of learning-rate schedules by their keys, ``extra`` the checkpoint's other
    numbers, such as the epoch; ``left_out`` are parameters whose tensors the conversion dropped.
    """

    kind: Kind
    groups: Groups
    members: Mapping[str, int]
    steps: Mapping[str, int]
    moments: Mapping[str, Mapping[str, Array]]
    schedules: Mapping[str, dict[str, Any]]
    parameters: tuple[Parameter, ...]
    key: str = ""
    left_out: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The largest number of steps of any variable."""
        return max(self.steps.values(), default=0)


SUFFIX: Final = ".optimizer.safetensors"
FORMAT: Final = 2
_KIND: Final = "wdport optimizer"

# What reading a document of another form raises.
_FAULTS = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Model:
    """The model that an optimizer belongs to: its family, the SHA-256 of its checkpoint, "" if it is unknown, and the
    digest of its weights (:func:`weights_digest`)."""

    family: str
    sha256: str = ""
    weights: str = BLANK


def optimizer_path(path: Path) -> Path:
    """Return the default name of the optimizer's file, next to a converted model."""
    return path.with_name(f"{stem_of(path)}{SUFFIX}")


def optimizer_output(path: Path, inputs: Mapping[str, Path], force: bool) -> OutputPath:
    """Return the file as an output; raises :class:`UsageError` if it cannot be written."""
    if not path.name.endswith(SUFFIX) or path.name == SUFFIX:
        raise UsageError(path, "is not a name for an optimizer", f"end it in {SUFFIX}")
    return writable(path, inputs, force)


def weights_digest(digests: Digests, names: Collection[str]) -> str:
    """SHA-256 of the variables with these names, from those of each as float32, in any order."""
    members = {name: sha256 for name, sha256 in digests.items() if name in names}
    return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()


def float32_digests(values: Iterable[tuple[str, Array]]) -> Digests:
    """SHA-256 of each array as float32."""
    return {name: digest(np.asarray(array, np.float32)) for name, array in values}


def require_weights(path: Path, optimised: Optimised, model: Model, values: Iterable[tuple[str, Array]]) -> None:
    """Raise :class:`MisfitError` unless an optimizer's file belongs to a model with these values."""
    if weights_digest(float32_digests(values), optimised.members) != model.weights:
        what = "belongs to other weights than the model's"
        raise MisfitError(path, what, "give the optimizer that was converted, or saved, with the model")


def write_optimizer(path: OutputPath, optimised: Optimised, model: Model) -> None:
    """Write the file, whole or not at all; raises :class:`MachineError`."""
    with optimizer_written(path, optimised, model):
        pass


@contextmanager
def optimizer_written(path: OutputPath, optimised: Optimised, model: Model) -> Iterator[Callable[[str], None]]:
    """Write the file under a temporary name, and rename it after the block, which may set the digest of the weights;
    raises :class:`MachineError`."""
    arrays = {
        f"{name}/{place}": array for name, by_place in optimised.moments.items() for place, array in by_place.items()
    }
    described = {field.name: getattr(optimised, field.name) for field in fields(optimised) if field.name != "moments"}
    described["parameters"] = [asdict(parameter) for parameter in optimised.parameters]
    digests = {name: digest(array) for name, array in arrays.items()}
    belongs = asdict(model)

    def text() -> str:
        return sealed({"kind": _KIND, "format": FORMAT, "model": belongs, "optimizer": _packed(described),
                       "sha256": digests})  # fmt: skip

    # Nothing reads it: a file without a tensor would be no checkpoint.
    arrays = arrays or {"none": np.zeros(1, np.float32)}
    shapes = {name: array.shape for name, array in arrays.items()}
    dtypes = {name: array.dtype.name for name, array in arrays.items()}
    with replacing(path) as (file,), closing(SafetensorsWriter(file, shapes, text(), dtypes)) as writer:
        for name, array in arrays.items():
            writer.write(name, array)
        # The placeholder has the length of a digest, so the text still fits into its place in the header.
        yield lambda weights: belongs.update(weights=weights)
        writer.finish(text())


def read_optimizer(path: Path) -> tuple[Optimised, Model]:
    """Read the file and check every tensor; raises :class:`InputError` if it is damaged or another file."""
    with open_checkpoint(path) as file:
        text = file.metadata.get(METADATA)
        if not isinstance(text, str):
            raise InputError(path, "is not an optimizer's file", "give the .optimizer.safetensors next to a model")
        with located(path):
            document: Any = unsealed(text.encode())
        try:
            if document.get("kind") != _KIND:
                raise Fault(
                    "is a converted model, not an optimizer's file", "give the .optimizer.safetensors next to it"
                )
            if document["format"] != FORMAT:
                raise Fault("was written by another release of wdport", CONVERT_AGAIN)
            values = _unpacked(document["optimizer"])
            values["parameters"] = tuple(Parameter(**parameter) for parameter in values["parameters"])
            moments: dict[str, dict[str, Array]] = {}
            for name, sha256 in document["sha256"].items():
                moment, _, place = name.partition("/")
                array = file.read(name)
                if digest(array) != sha256:
                    raise Fault("is damaged: its SHA-256 differs from the written one", CONVERT_AGAIN, name)
                moments.setdefault(moment, {})[place] = array
            if set(moments) - set(MOMENTS[values["kind"]]):
                raise Fault("has moments that its kind does not have", CONVERT_AGAIN)
            return Optimised(moments=moments, **values), Model(**document["model"])
        except Fault as fault:
            raise InputError((path, fault.part), fault.what, fault.fix) from None
        except _FAULTS as error:
            raise InputError(path, f"is not an optimizer's file that wdport wrote ({error})", CONVERT_AGAIN) from None


def _packed(value: object) -> object:
    """Plain values as JSON: tuples, counters, tables with other keys than text, and infinities get a name."""
    if isinstance(value, Counter):
        return {"counter": [[key, count] for key, count in value.items()]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {"table": {key: _packed(element) for key, element in value.items()}}
        return {"pairs": [[_packed(key), _packed(element)] for key, element in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_packed(element) for element in value]}
    if isinstance(value, list):
        return [_packed(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, np.generic):
        return value.item()
    return value


def _unpacked(value: object) -> Any:
    if isinstance(value, list):
        return [_unpacked(element) for element in value]
    if not isinstance(value, dict):
        return value
    # `_packed` makes only tables of one entry, so that a user's key can never be mistaken for a type.
    ((name, inside),) = value.items()
    if name == "table":
        return {key: _unpacked(element) for key, element in inside.items()}
    if name == "counter":
        return Counter(dict(inside))
    if name == "pairs":
        return {_unpacked(key): _unpacked(element) for key, element in inside}
    return tuple(_unpacked(element) for element in inside) if name == "tuple" else float(cast("str", inside))
