"""The manifest in a converted file, as types, and whether the manifest next to the file agrees with it.

Its content is only quoted, never executed: it is as untrusted as the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.source import Source
from wdport.checkpoint.strict_json import strict_json
from wdport.conversion.entries import ConfigEntry
from wdport.conversion.rounding import STORED
from wdport.files.manifests import CONVERT_AGAIN, manifest_of, unsealed
from wdport.limits import MAX_MANIFEST_BYTES, MAX_MANIFEST_MARKS
from wdport.mapping.axes import Shape

_FAULTS = (ValueError, KeyError, TypeError, AttributeError)
_WHOLE = ("name", "sha256", "bytes")
"""Facts about a file that only the manifest next to it can state, not the one inside."""


@dataclass(frozen=True)
class FileHash:
    """A file that the conversion read: its name and SHA-256."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Account:
    """A manifest: the file's source, the configuration with the origin of each value, and the path, shape, dtype and
    SHA-256 of every variable. ``config_json`` is the SHA-256 of Keras's model description in an archive."""

    manifest: Mapping[str, object] = field(repr=False)
    family: str
    variant: str
    source: FileHash
    mapping: FileHash
    config: Mapping[str, ConfigEntry]
    variables: Mapping[str, Shape] = field(repr=False)
    digests: Mapping[str, str] = field(repr=False)
    config_json: str | None
    dtypes: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def rounded(self) -> tuple[str, ...]:
        """Variables that are stored in 16 bits and come from tensors of another dtype."""
        tensors: Any = self.manifest["tensors"]
        pairs = [(target["path"], tensor["dtype"]) for tensor in tensors for target in tensor["targets"]]
        return tuple(dict.fromkeys(name for name, dtype in pairs if self.dtypes[name] not in ("float32", dtype)))

    @property
    def values(self) -> dict[str, object]:
        """The configuration without origins."""
        return {name: entry["value"] for name, entry in self.config.items()}

    @property
    def origins(self) -> dict[str, str]:
        """The origin of each value of the configuration."""
        return {name: entry["origin"] for name, entry in self.config.items()}


def read_account(text: bytes) -> Account:
    """Parse the manifest text of a converted file; raises :class:`Fault`."""
    manifest: Mapping[str, Any] = unsealed(text)
    try:
        source, mapping, output = manifest["source"], manifest["mapping"], manifest["output"]
        config: dict[str, ConfigEntry] = {
            str(name): {"value": entry["value"], "origin": str(entry["origin"])}
            for name, entry in manifest["config"].items()
        }
        targets = [target for entry in manifest["tensors"] for target in entry["targets"]]
        return Account(
            manifest,
            str(mapping["family"]),
            str(mapping["variant"]),
            FileHash(str(source["name"]), str(source["sha256"])),
            FileHash(str(mapping["name"]), str(mapping["sha256"])),
            config,
            {str(target["path"]): tuple(map(int, target["shape"])) for target in targets},
            {str(target["path"]): str(target["sha256"]) for target in targets},
            output.get("config_json"),
            {str(target["path"]): _dtype(target) for target in targets},
        )
    except _FAULTS as error:
        raise Fault(f"its manifest is damaged ({type(error).__name__}: {error})", CONVERT_AGAIN) from None


def _dtype(target: Mapping[str, object]) -> str:
    if (dtype := str(target.get("dtype", "float32"))) not in STORED:
        raise ValueError(f"unknown dtype {dtype}")
    return dtype


def contradiction_of(path: Path, account: Account, sha256: str) -> str:
    """Return a sentence on how the manifest next to a converted file, whose hash is ``sha256``, contradicts it; "" if
    it does not, or does not exist."""
    beside = manifest_of(path)
    try:
        source = Source(beside)
    except FileNotFoundError:
        return ""
    except (Fault, OSError) as error:
        return f"{beside.name} cannot be read ({error})"
    try:
        text = source.read(0, min(source.size, MAX_MANIFEST_BYTES))
        document: Mapping[str, Any] = strict_json(text, "manifest", marks=MAX_MANIFEST_MARKS)
        output = dict(document["output"])
        file_facts = {name: output.pop(name) for name in _WHOLE}
    except (Fault, OSError, *_FAULTS):
        return f"{beside.name} is damaged"
    finally:
        source.close()
    if {**document, "output": output} != account.manifest:
        return f"{beside.name} belongs to another conversion"
    return "" if file_facts["sha256"] == sha256 else f"{beside.name} describes a file with another SHA-256"
