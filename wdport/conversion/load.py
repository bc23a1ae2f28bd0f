"""A converted file to a Keras model: ``.keras``, ``.safetensors`` and ``.weights.h5`` alike."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from wdport.checkpoint import open_checkpoint
from wdport.conversion.account import own_config
from wdport.conversion.entries import Description
from wdport.errors import InputError, MisfitError
from wdport.families.registry import family_of_class, find_family
from wdport.families.roles import Family
from wdport.files.model_files import read_variables
from wdport.files.target import FORMATS
from wdport.mapping.axes import Shape
from wdport.model import KerasModel


@dataclass(frozen=True)
class Converted:
    """A converted file's own account of itself, read without keras.

    ``facts`` is what the conversion wrote about it (family, variant, origins of the configuration);
    empty for a ``.keras`` file that Keras saved.
    """

    path: Path
    format: str
    family: Family
    config: Any
    facts: Description

    @property
    def variables(self) -> dict[str, Shape]:
        """Path and shape of every variable."""
        return self.family.variables(self.config)


def open_converted(path: str | PathLike[str], own: Family | None = None) -> Converted:
    """Read what a converted file says about itself; raises ``InputError`` if it is none.

    ``own`` is the user's own model (:class:`wdport.families.custom.CustomFamily`), whose file Keras itself wrote.
    """
    file = Path(path)
    suffix = next((s for s in FORMATS if file.name.endswith(s)), None)
    if suffix is None:
        raise InputError(file, "not a converted model", f"give a file that ends in {', '.join(FORMATS)}")
    if not file.is_file():
        raise InputError(file, "is a directory" if file.is_dir() else "no such file", "check the path")
    if own is not None:
        return Converted(file, FORMATS[suffix], own, own.load_config(own_config(file)), {})
    if (told := own_config(file)).get("keras"):
        fix = "give --mapping with the table that it was converted by, or --model"
        raise MisfitError(file, f"built by {told['keras']}, which is not called unless you name it", fix)
    try:
        facts, document = _facts(file, suffix)
        if document is not None:
            family = family_of_class(document.get("registered_name") or document.get("class_name"), file)
            values = document["config"]["config"]
        else:
            family, values = find_family(facts["family"], file), facts["config"]
        return Converted(file, FORMATS[suffix], family, family.load_config(values), facts)
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile, OSError) as error:
        raise InputError(file, f"not a model that wdport wrote ({error})", "convert the checkpoint again") from None


def _facts(file: Path, suffix: str) -> tuple[Description, dict[str, Any] | None]:
    """Our metadata and, for an archive, Keras's document."""
    if suffix == ".safetensors":
        with open_checkpoint(file) as checkpoint:
            return json.loads(str(checkpoint.metadata["wdport"])), None
    from wdport.files.keras_files import read_archive_document, read_weights_metadata

    if suffix == ".keras":
        document, metadata = read_archive_document(file)
        return json.loads(metadata.get("wdport", "{}")), document
    return json.loads(read_weights_metadata(file)["wdport"]), None


def load_model(path: str | PathLike[str], dtype: str | None = None) -> KerasModel:
    """A converted file as a Keras model, ready to be called.

    Args:
        path: a ``.keras``, ``.safetensors`` or ``.weights.h5`` file from :func:`wdport.convert`.
        dtype: Keras dtype policy, such as "float64" (under JAX x64) or "mixed_bfloat16"; float32 if None.

    Raises:
        InputError: the file is damaged or not ours. UsageError: Keras runs on another backend, or
        float64 is asked for while JAX holds only 32 bits.
    """
    converted = open_converted(path)
    model = converted.family.build(converted.config, dtype)
    fill(model, converted)
    return model


def fill(model: KerasModel, converted: Converted) -> None:
    """Give every variable of ``model`` its value from the file."""
    from wdport.keras_runtime import set_variable  # brings in jax

    variables = {variable.path: variable for variable in model.weights}
    for name, array in read_variables(converted.path, converted.variables):
        # An owned copy: a Keras variable on JAX's CPU may keep the very memory that it is given.
        set_variable(variables.pop(name), np.array(array, copy=True))
    if variables:
        raise InputError((converted.path, next(iter(variables))), "is missing", "convert the checkpoint again")
