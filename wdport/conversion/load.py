"""A converted file to a Keras model: ``.keras``, ``.safetensors`` and ``.weights.h5`` alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from wdport.checkpoint.dtypes import ITEMSIZE
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.located import located
from wdport.checkpoint.strict_json import strict_json
from wdport.conversion.account import Account, read_account
from wdport.errors import InputError, MisfitError
from wdport.families.registry import family_of_class, find_family
from wdport.families.roles import Documented, Family, KeptByKeras
from wdport.files.manifests import CONVERT_AGAIN, manifest_of
from wdport.files.model_files import Beside, Digests, digest, read_beside, read_variables, size_at
from wdport.files.target import FORMATS, KERAS, format_at
from wdport.mapping.axes import Shape
from wdport.mapping.table import CUSTOM
from wdport.model import Array, KerasModel

UNTOLD = "nothing in it says what it was made from, and no hash shows damage"

_FAULTS = (KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Converted:
    """A converted file's own account of itself, read without keras.

    ``account`` is the manifest in it; None for a ``.keras`` file that Keras saved.
    """

    path: Path
    format: str
    family: Family
    config: Any
    account: Account | None

    @property
    def variables(self) -> dict[str, Shape]:
        """Path and shape of every variable."""
        return self.family.variables(self.config)

    @property
    def digests(self) -> Digests | None:
        """The SHA-256 of every variable; None where nothing states it."""
        return self.account.digests if self.account else None

    @property
    def dtypes(self) -> Mapping[str, str] | None:
        """The dtype that every variable is stored in; None where nothing states it."""
        return self.account.dtypes if self.account else None

    @property
    def rounded(self) -> Mapping[str, str]:
        """The dtype of every variable that was rounded to 16 bits."""
        return {name: self.account.dtypes[name] for name in self.account.rounded} if self.account else {}

    @property
    def by_keras(self) -> bool:
        """Whether Keras's own code reads it."""
        return isinstance(self.family, KeptByKeras) and self.format in KERAS

    @property
    def note(self) -> str:
        """What a user has to know of it; "" where there is nothing."""
        return "" if self.account is not None else f"{self.path.name} was saved by Keras, {UNTOLD}"

    @property
    def origins(self) -> dict[str, str]:
        """Where each value of the configuration came from; nothing where nothing states it."""
        return self.account.origins if self.account else {}


def open_converted(path: str | PathLike[str], own: Family | None = None) -> Converted:
    """Read what a converted file says about itself; raises ``InputError`` if it is none.

    ``own`` is the user's own model (:class:`wdport.families.custom.CustomFamily`), whose file Keras itself wrote.
    """
    file = Path(path)
    account, beside = open_account(file)
    form = format_of(file)
    if own is not None:
        return Converted(file, form, own, own.load_config(_own_values(account)), account)
    if account is not None and account.family == CUSTOM:
        fix = "give --mapping with the table that it was converted by, or --model"
        raise MisfitError(file, f"built by {account.values['keras']}, which is not called unless you name it", fix)
    try:
        if account is not None:
            family, values = find_family(account.family, file), account.values
            _same_description(family, family.load_config(values), beside)
        else:
            document: Any = strict_json(beside.config_json or b"{}", "config.json")
            family = family_of_class(document.get("registered_name") or document.get("class_name"), file)
            values = document["config"]["config"]
        return _large_enough(Converted(file, form, family, family.load_config(values), account))
    except Fault as fault:
        raise InputError(file, fault.what, fault.fix) from None
    except _FAULTS as error:
        raise InputError(file, f"not a model that wdport wrote ({error})", CONVERT_AGAIN) from None


def _same_description(family: Family, config: Any, beside: Beside) -> None:
    """Raise :class:`Fault` where Keras would build another model of an archive than the manifest describes."""
    if beside.config_json is None or not isinstance(family, Documented):
        return
    described: Any = json.loads(beside.config_json)
    same = isinstance(described.get("config"), dict) and family.load_config(described["config"]["config"]) == config
    ours: Any = json.loads(json.dumps(family.keras_document(config)))
    for document in (described, ours):  # an older wdport may have written fewer settings, which have their defaults
        document["config"] = {name: value for name, value in document["config"].items() if name != "config"}
    if not same or described != ours:
        raise Fault("its config.json describes another model than its manifest", CONVERT_AGAIN)


def _large_enough(converted: Converted) -> Converted:
    """Raise :class:`Fault` where the file cannot hold the variables of its configuration, before a model is built."""
    variables = converted.variables
    dtypes = converted.dtypes  # None: Keras may have saved them in 16 bits
    least = sum((ITEMSIZE[dtypes.get(name, "float32")] if dtypes is not None else 2) * prod(shape)
                for name, shape in variables.items())  # fmt: skip
    if (size := size_at(converted.path)) < least:
        raise Fault(f"has {size} bytes, too few for the model of its configuration", CONVERT_AGAIN)
    if converted.account is not None and converted.account.variables != variables:
        raise Fault("its manifest has other variables than the model of its configuration", CONVERT_AGAIN)
    return converted


def open_account(file: Path) -> tuple[Account | None, Beside]:
    """The manifest in a converted file, None where Keras saved it, and what else it holds; of any family.

    Raises ``InputError`` if it is no converted file, or damaged.
    """
    format_of(file)
    with located(file):
        beside = read_beside(file)
        if beside.manifest is None:
            if beside.config_json is None:
                raise Fault("not a model that wdport wrote: it holds no manifest", CONVERT_AGAIN)
            if manifest_of(file).exists():
                fix = f"if Keras saved it anew, remove {manifest_of(file).name}; else convert the checkpoint again"
                raise Fault("holds no manifest, and one stands beside it", fix)
            return None, beside
        account = read_account(beside.manifest)
        if beside.config_json is not None and hashlib.sha256(beside.config_json).hexdigest() != account.config_json:
            raise Fault("its config.json is not the one that was written", CONVERT_AGAIN)
        return account, beside


def format_of(file: Path) -> str:
    """See :func:`format_at`; raises ``InputError`` where it is no converted file or folder."""
    form = format_at(file)
    if form is None:
        raise InputError(file, "not a converted model", f"give a file that ends in {', '.join(FORMATS)}")
    return form


def _own_values(account: Account | None) -> dict[str, object]:
    return account.values if account is not None and account.family == CUSTOM else {}


def load_model(path: str | PathLike[str], dtype: str | None = None) -> KerasModel:
    """A converted file as a Keras model, ready to be called.

    Args:
        path: a ``.keras``, ``.safetensors``, ``.weights.h5`` or ``.npz`` file, or a folder, from
            :func:`wdport.convert`.
        dtype: Keras dtype policy, such as "float64" (under JAX x64) or "mixed_bfloat16"; float32 if None. Values
            that are stored in 16 bits are widened, or kept as they are under "bfloat16" or "float16".

    Raises:
        InputError: the file is damaged or not ours. UsageError: Keras runs on another backend, or
        float64 is asked for while JAX holds only 32 bits.
    """
    converted = open_converted(path)
    model = converted.family.build(converted.config, dtype)
    fill(model, converted)
    return model


def sound_variables(converted: Converted) -> Iterator[tuple[str, Array]]:
    """Every variable of a converted file, each with the SHA-256 that the file states for it.

    Of a file that Keras saved, which states none, values that are not finite are refused as at a conversion. Raises
    ``InputError``.
    """
    if isinstance(converted.family, KeptByKeras) and converted.by_keras:
        found = _by_keras(converted, converted.family)
    else:
        found = read_variables(converted.path, converted.variables, converted.digests, converted.dtypes)
    for name, array in found:
        if converted.digests is None and not np.isfinite(array).all():
            raise InputError((converted.path, name), "has NaN or infinite values", "save a sound model with Keras")
        yield name, array


def _by_keras(converted: Converted, family: KeptByKeras) -> Iterator[tuple[str, Array]]:
    digests = converted.digests
    for name, array in family.read(converted.config, converted.path).items():
        if digests is not None and digest(array) != digests.get(name):
            raise InputError((converted.path, name), "is damaged: another SHA-256 than was written", CONVERT_AGAIN)
        yield name, array


def fill(model: KerasModel, converted: Converted) -> None:
    """Give every variable of ``model`` its value from the file."""
    from wdport.keras_runtime import set_variable  # brings in jax

    variables = {variable.path: variable for variable in model.weights}
    for name, array in sound_variables(converted):
        # An owned copy: a Keras variable on JAX's CPU may keep the very memory that it is given.
        set_variable(variables.pop(name), np.array(array, copy=True))
    if variables:
        raise InputError((converted.path, next(iter(variables))), "is missing", CONVERT_AGAIN)
