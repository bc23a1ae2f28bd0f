"""Load a converted file as a Keras model: ``.keras``, ``.safetensors`` or ``.weights.h5``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from wdport.base.errors import InputError, MisfitError, UsageError, require_paths
from wdport.base.former_names import present_name
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.strict_json import strict_json
from wdport.checkpoint.tensor import ITEMSIZE
from wdport.conversion.manifest_schema import Account, read_account
from wdport.families.registry import family_of_class, find_family, own_model, remember
from wdport.families.roles import Accompanied, Documented, Family, KeptByKeras, OwnFamily
from wdport.files.inputs import Snapshot
from wdport.files.manifest_seal import CONVERT_AGAIN, manifest_of
from wdport.files.model_files import Digests, ModelMetadata, digest, read_assets, read_metadata, read_variables, size_at
from wdport.files.model_target import FORMATS, KERAS, format_at
from wdport.mapping.axes import Shape
from wdport.mapping.table import CUSTOM
from wdport.models.interface import Array, KerasModel

UNTOLD = "so it does not state what it was made from and has no hashes to detect damage"

GIVE_CONVERTED = "give the file that wdport convert wrote"

_CHECKPOINTS = (".ckpt", ".pt", ".pth", ".bin")
_PROGRAM = ".stablehlo"

_OTHER = {
    "safetensors": "it is a checkpoint, or other tensors",
    "safetensors-sharded": "it is a checkpoint in shards",
    "weights.h5": "it is Keras weights, or another HDF5 file",
    "npz": "it is a recording, samples or other arrays",
    "keras": "another program wrote it",
    "orbax": "another program wrote it",
}
"""What a file of each format is if wdport convert did not write it."""

_FAULTS = (KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Converted:
    """The description in a converted file, read without keras.

    ``account`` is its manifest; None for a ``.keras`` file that Keras saved. ``snapshot`` is the file's state before
    anything was read.
    """

    path: Path
    format: str
    family: Family
    config: Any
    account: Account | None
    snapshot: Snapshot = field(compare=False, repr=False)

    @property
    def variables(self) -> dict[str, Shape]:
        """Path and shape of every variable."""
        return self.family.variables(self.config)

    @property
    def digests(self) -> Digests | None:
        """The SHA-256 of every variable; None if the file does not state it."""
        return self.account.digests if self.account else None

    @property
    def dtypes(self) -> Mapping[str, str] | None:
        """The stored dtype of every variable; None if the file does not state it."""
        return self.account.dtypes if self.account else None

    @property
    def rounded(self) -> Mapping[str, str]:
        """The dtype of every variable that was rounded to 16 bits."""
        return {name: self.account.dtypes[name] for name in self.account.rounded} if self.account else {}

    @property
    def source_key(self) -> str | None:
        """The key of the state_dict in the checkpoint; None if it had none, or the file does not state it."""
        source: Any = {} if self.account is None else self.account.manifest["source"]
        key = source.get("key")
        return key if isinstance(key, str) else None

    @property
    def by_keras(self) -> bool:
        """Whether Keras's code reads the file."""
        return isinstance(self.family, KeptByKeras) and self.format in KERAS

    @property
    def note(self) -> str:
        """A note for the user; "" if there is none."""
        return "" if self.account is not None else f"{self.path.name} was saved by Keras, {UNTOLD}"

    @property
    def origins(self) -> dict[str, str]:
        """The origin of each value of the configuration; empty if the file does not state it."""
        return self.account.origins if self.account else {}

    @property
    def assumed(self) -> dict[str, Any]:
        """The values of the configuration that were assumed at the conversion."""
        return {name: getattr(self.config, name) for name, origin in self.origins.items() if origin == "assumed"}


def open_converted(path: str | PathLike[str], own_family: OwnFamily | None = None) -> Converted:
    """Read the description in a converted file; raises ``InputError`` if it is not a converted file.

    ``own_family`` is the user's own model (:class:`wdport.families.custom.CustomFamily`), whose file Keras wrote;
    raises ``MisfitError`` if the file holds another model than its function builds now.
    """
    file = Path(path)
    snapshot = Snapshot(file)
    account, metadata = open_account(file)
    form = format_of(file)
    if own_family is not None:
        values = account.values if account is not None and account.family == CUSTOM else {}
        converted = Converted(file, form, own_family, own_family.load_config(values), account, snapshot)
        if metadata.config_json is not None:
            own_family.require_saved(
                converted.config, file, json.loads(metadata.config_json), _is_installed_keras(account)
            )
        return converted
    # Calling a function that a file names would run whatever its author chose.
    if account is not None and account.family == CUSTOM:
        fix = "give `--mapping` with the table that converted it"
        raise MisfitError(file, f"built by {account.values['keras']}, which is not called unless you name it", fix)
    try:
        if account is not None:
            family, values = find_family(account.family, file), account.values
            _require_description(family, family.load_config(values), metadata)
        else:
            document: Any = strict_json(metadata.config_json or b"{}", "config.json", finite=False)
            family = family_of_class(document.get("registered_name") or document.get("class_name"), file)
            values = document["config"]["config"]
        return _large_enough(Converted(file, form, family, family.load_config(values), account, snapshot))
    except Fault as fault:
        raise InputError(file, fault.what, fault.fix) from None
    except _FAULTS as error:
        raise InputError(file, f"is not a model that wdport wrote ({error})", CONVERT_AGAIN) from None


def _require_description(family: Family, config: Any, metadata: ModelMetadata) -> None:
    """Raise :class:`Fault` if Keras would build another model from an archive than the manifest describes."""
    if metadata.config_json is None or not isinstance(family, Documented):
        return
    described: Any = json.loads(metadata.config_json)
    if isinstance(module := described.get("module"), str):
        described["module"] = present_name(module) or module
    same = isinstance(described.get("config"), dict) and family.load_config(described["config"]["config"]) == config
    ours: Any = json.loads(json.dumps(family.keras_document(config)))
    for document in (described, ours):  # an older wdport may have written fewer settings, which have their defaults
        document["config"] = {name: value for name, value in document["config"].items() if name != "config"}
    if not same or described != ours:
        raise Fault("its config.json describes another model than its manifest", CONVERT_AGAIN)


def _is_installed_keras(account: Account | None) -> bool:
    """Whether the installed release of Keras wrote the file."""
    from importlib.metadata import version  # slow to import

    versions = account.manifest.get("versions") if account is not None else None
    return isinstance(versions, Mapping) and versions.get("keras") == version("keras")


def _large_enough(converted: Converted) -> Converted:
    """Raise :class:`Fault` if the file is too small for the variables of its configuration, before a model is built."""
    variables = converted.variables
    dtypes = converted.dtypes  # None: Keras may have saved them in 16 bits
    # A configuration of a few bytes can describe a model that does not fit into memory.
    least = sum((ITEMSIZE[dtypes.get(name, "float32")] if dtypes is not None else 2) * prod(shape)
                for name, shape in variables.items())  # fmt: skip
    if (size := size_at(converted.path)) < least:
        raise Fault(f"has {size} bytes, too few for the model of its configuration", CONVERT_AGAIN)
    # Both are in the file: an edit of one of them would build another model than was verified.
    if converted.account is not None and converted.account.variables != variables:
        raise Fault("its manifest has other variables than the model of its configuration", CONVERT_AGAIN)
    return converted


def open_account(file: Path) -> tuple[Account | None, ModelMetadata]:
    """Read the manifest in a converted file, None if Keras saved it, and its other content; for any family.

    Raises ``InputError`` if the file is not a converted file, or is damaged.
    """
    format_of(file)
    with located(file):
        metadata = read_metadata(file)
        if metadata.manifest is None:
            if metadata.config_json is None:
                raise Fault(f"has no wdport manifest: {_OTHER[format_of(file)]}", GIVE_CONVERTED)
            # An attacker could remove the manifest, and with it all hashes, from a file that was converted.
            if manifest_of(file).exists():
                fix = (
                    f"if Keras saved it again, remove {manifest_of(file).name}; otherwise convert the checkpoint again"
                )
                raise Fault("has no manifest, but there is one next to it", fix)
            return None, metadata
        account = read_account(metadata.manifest)
        # Keras builds the model from this text, so it must be the one that the manifest's hash covers.
        if metadata.config_json is not None and hashlib.sha256(metadata.config_json).hexdigest() != account.config_json:
            raise Fault("its config.json is not the one that was written", CONVERT_AGAIN)
        return account, metadata


def format_of(file: Path) -> str:
    """Return the format as :func:`format_at` does; raises ``InputError`` if it is not a converted file or folder."""
    form = format_at(file)
    if form is not None:
        return form
    if not file.exists():
        raise InputError(file, "no such file", "check the path")
    if file.suffix in _CHECKPOINTS:
        raise InputError(file, "is not a converted model", "convert it first (wdport convert, wdport.convert)")
    if file.suffix == _PROGRAM:
        fix = "give the converted model that it was exported from; wdport/uses/exporting/loader.py runs this file"
        raise InputError(file, "is an exported program, not a converted model", fix)
    raise InputError(file, "is not a converted model", f"give a file that ends in {', '.join(FORMATS)}")


def load_model(
    path: str | PathLike[str],
    dtype: str | None = None,
    *,
    mapping: str | PathLike[str] | None = None,
    model: str | None = None,
    inputs: Sequence[str] = (),
) -> KerasModel:
    """Load a converted file as a Keras model, ready to be called.

    For your own model, pass the mapping table; the functions that it names are called. Without the table,
    ``keras.saving.load_model`` can open a ``.keras`` file of your own model, but :func:`wdport.sample` does not know
    what the model was trained for.

    Args:
        path: a ``.keras``, ``.safetensors``, ``.weights.h5`` or ``.npz`` file, or a folder, from
            :func:`wdport.convert`.
        dtype: Keras dtype policy, such as "float64" (under JAX x64) or "mixed_bfloat16"; float32 if None. Values that
            are stored in 16 bits are widened, or kept unchanged under "bfloat16" or "float16".
        mapping: the mapping table of your own model.
        model: ``module:function`` that builds your own Keras model, if the table does not name it.
        inputs: the inputs of your own model, such as "x: b 3 48 48", if the table does not state them.

    Returns:
        The Keras model, built, with the stored weights.

    Raises:
        InputError: the file is damaged, or wdport did not write it.
        MisfitError: the file contains your own model and ``mapping`` is missing, or the function now builds a different
            model.
        UsageError: Keras runs on a backend other than JAX, or float64 is requested without JAX x64.
    """
    require_paths("mapping", path=path, mapping=mapping)
    family = own_model(mapping, model, None, inputs)
    if mapping is not None and family is None:
        raise UsageError("mapping", "is not a table of your own model", "leave it out")
    converted = open_converted(path, family)
    from wdport.models.keras_runtime import require_policy  # imports keras

    require_policy(dtype)
    keras_model = converted.family.build(converted.config, dtype)
    fill(keras_model, converted)
    if family is not None:
        remember(keras_model, family, converted.config)
    if isinstance(converted.family, Accompanied):
        converted.family.keep(keras_model, verified_assets(converted, converted.family.kept))
    return keras_model


def verified_assets(converted: Converted, names: Iterable[str]) -> dict[str, bytes]:
    """The files of these names that a ``.keras`` file keeps, each compared with its SHA-256; raises ``InputError``."""
    assets = read_assets(converted.path, names)
    output: Any = converted.account.manifest["output"] if converted.account is not None else {}
    for name, sha256 in output.get("kept", {}).items():
        if name in names and hashlib.sha256(assets.get(name, b"")).hexdigest() != sha256:
            raise InputError((converted.path, name), "is damaged: it is not the file that was written", CONVERT_AGAIN)
    return assets


def sound_variables(converted: Converted) -> Iterator[tuple[str, Array]]:
    """Yield every variable of a converted file after checking its SHA-256.

    A file that Keras saved has no hashes; non-finite values in it are refused as in a conversion. Raises
    ``InputError``.
    """
    if isinstance(converted.family, KeptByKeras) and converted.by_keras:
        arrays = _by_keras(converted, converted.family)
    else:
        arrays = read_variables(converted.path, converted.variables, converted.digests, converted.dtypes)
    for name, array in arrays:
        if converted.digests is None and not np.isfinite(array).all():
            raise InputError((converted.path, name), "has NaN or infinite values", "save a model with finite weights")
        yield name, array


def _by_keras(converted: Converted, family: KeptByKeras) -> Iterator[tuple[str, Array]]:
    digests = converted.digests
    for name, array in family.read(converted.config, converted.path).items():
        if digests is not None and digest(array) != digests.get(name):
            raise InputError(
                (converted.path, name), "is damaged: its SHA-256 differs from the written one", CONVERT_AGAIN
            )
        yield name, array


def fill(model: KerasModel, converted: Converted) -> None:
    """Set every variable of ``model`` to its value in the file."""
    from wdport.models.keras_runtime import set_variable, variables_by_path  # brings in jax

    variables = variables_by_path(model)
    for name, array in sound_variables(converted):
        # An owned copy: a Keras variable on JAX's CPU may keep the very memory that it is given.
        set_variable(variables.pop(name), np.array(array, copy=True))
    if variables:
        raise InputError((converted.path, next(iter(variables))), "is missing", CONVERT_AGAIN)
