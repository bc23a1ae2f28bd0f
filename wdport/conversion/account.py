"""What a converted file of a user's own model says of itself, by the manifest beside it.

Everything in it is quoted and nothing called: it is as untrusted as the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wdport.conversion.entries import ConfigEntry
from wdport.errors import InputError
from wdport.files.manifests import file_sha256, manifest_of
from wdport.mapping.axes import Shape

_FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Account:
    """Where the file is from: the checkpoint and the table, each with its SHA-256; the configuration, each value with
    its origin, as in the manifest; the path and shape of every variable."""

    source: str
    source_sha256: str
    mapping: str
    mapping_sha256: str
    config: Mapping[str, ConfigEntry]
    variables: Mapping[str, Shape]

    @property
    def built_by(self) -> str:
        """``module:function`` of the Keras model."""
        return str(self.config["keras"]["value"])


def read_account(file: Path) -> Account | None:
    """The account of a user's own model; ``None`` for other files, and for one without a manifest.

    Raises :class:`InputError` if it is of another file, or damaged.
    """
    manifest = _manifest(file)
    if manifest is None:
        return None
    try:
        source, mapping, config = manifest["source"], manifest["mapping"], manifest["config"]
        told: dict[str, ConfigEntry] = {
            name: {"value": each["value"], "origin": str(each["origin"])} for name, each in config.items()
        }
        targets = [target for each in manifest["tensors"] for target in each["targets"]]
        variables = {str(each["path"]): tuple(map(int, each["shape"])) for each in targets}
        hashes = [str(each["sha256"]) for each in (manifest["output"], source, mapping)]
        account = Account(str(source["name"]), hashes[1], str(mapping["name"]), hashes[2], told, variables)
        told["keras"]["value"]  # what it is for
    except _FAULTS as error:
        what = f"its manifest is damaged ({type(error).__name__}: {error})"
        raise InputError(file, what, "convert the checkpoint again") from None
    if hashes[0] != file_sha256(file):
        what = f"is damaged, or not the file that {manifest_of(file).name} describes: another SHA-256"
        raise InputError(file, what, "convert the checkpoint again")
    return account


def own_config(file: Path) -> dict[str, object]:
    """The configuration of a user's own model as the manifest has it; nothing for other models."""
    try:
        return {name: each["value"] for name, each in (_manifest(file) or {"config": {}})["config"].items()}
    except _FAULTS:
        return {}


def _manifest(file: Path) -> dict[str, Any] | None:
    """The manifest beside a file, if it is there and of a user's own model."""
    try:
        manifest: dict[str, Any] = json.loads(manifest_of(file).read_text(encoding="utf-8"))
        return manifest if manifest["mapping"]["family"] == "custom" else None
    except _FAULTS:
        return None
