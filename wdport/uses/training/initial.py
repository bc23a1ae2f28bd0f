"""New models of a library's class: its configuration, and the random weights that the library begins with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors.numpy import save_file

from wdport.base.errors import MisfitError
from wdport.base.limits import MAX_KEPT_BYTES
from wdport.checkpoint.error_context import located
from wdport.checkpoint.regular_file import read_option
from wdport.checkpoint.strict_json import strict_json
from wdport.conversion.convert import convert
from wdport.families.registry import all_families
from wdport.models.interface import Document
from wdport.uses.roles import InitializedByLibrary

_NAME: Final = "config.json"
_FIX: Final = "give the config.json of a model that wdport knows, or a folder with it"


def is_library_configuration(config: str | None) -> bool:
    """Whether ``config`` names a ``.json`` file or a folder, not the training configuration of a script."""
    return config is not None and (Path(config).is_dir() or Path(config).suffix == ".json")


def convert_initial_model(config: Path, seed: int, values: Mapping[str, str], folder: Path) -> Path:
    """Return the converted file of a new model, in ``folder``; raises as :func:`save_initial_model` and
    :func:`wdport.convert` do."""
    start = folder / "initial"
    save_initial_model(config, seed, start)
    return convert(start, folder / "begin.keras", values=dict(values) or None).output


def save_initial_model(config: Path, seed: int, folder: Path) -> None:
    """Save a new model with the configuration ``config``, a ``config.json`` or the folder of one, to ``folder``.

    Other JSON files of the folder, such as those of a scheduler or a tokenizer, are copied.

    Raises:
        InputError: a file cannot be read.
        MisfitError: it is the configuration of no model that wdport knows, or the library rejects it.
        MachineError: the library is not installed.
    """
    file = config / _NAME if config.is_dir() else config
    with located(file):
        document = strict_json(read_option(file, MAX_KEPT_BYTES, _FIX), "file")
    module: Any = _family(document, file).random_module(document, seed, file)
    folder.mkdir()
    # Not by the library's own save, which prints a progress bar.
    save_file({name: tensor.numpy() for name, tensor in module.state_dict().items()}, folder / "model.safetensors")
    (folder / _NAME).write_text(json.dumps(document))
    for other in sorted(file.parent.glob("*.json")) if config.is_dir() else ():
        if other.name != _NAME:
            (folder / other.name).write_bytes(read_option(other, MAX_KEPT_BYTES, _FIX))


def _family(document: Document, file: Path) -> InitializedByLibrary:
    families: list[Any] = [family for family in all_families() if isinstance(family, InitializedByLibrary)]
    for family in families:
        if family.is_configuration_of_library(document):
            return family
    raise MisfitError(file, "states no class that wdport can create", _FIX)
