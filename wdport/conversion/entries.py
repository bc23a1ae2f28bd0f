"""What a manifest says, entry by entry, as types: JSON values that :mod:`wdport.conversion.manifest` makes."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class SourceEntry(TypedDict):
    """The checkpoint, and what of it was not converted."""

    name: str
    sha256: str
    format: str
    layout: str
    key: str | None
    prefixes: list[str]
    other_keys: list[str]
    not_read: list[str]


class MappingEntry(TypedDict):
    """The mapping table."""

    name: str
    sha256: str
    family: str
    variant: str


class FileEntry(TypedDict):
    """One file of a folder."""

    name: str
    sha256: str
    bytes: int


class OutputEntry(TypedDict):
    """The file that was written: ``config_json`` is the SHA-256 of Keras's own description in a ``.keras`` archive,
    ``dtype`` what was asked for instead of float32, and ``files`` the index and the shards of a folder.

    What the whole file is, ``name``, ``sha256`` and ``bytes``, the manifest beside it says alone.
    """

    format: str
    variables: int
    config_json: NotRequired[str]
    dtype: NotRequired[str]
    files: NotRequired[list[FileEntry]]
    name: NotRequired[str]
    sha256: NotRequired[str]
    bytes: NotRequired[int]


class ConfigEntry(TypedDict):
    """One value of the configuration, and where it came from: see :class:`wdport.model.Resolved`."""

    value: object
    origin: str


class TargetEntry(TypedDict):
    """One variable as it was written; float32 where no dtype stands."""

    path: str
    shape: list[int]
    sha256: str
    dtype: NotRequired[str]


class TensorEntry(TypedDict):
    """One tensor of the checkpoint, the row of the table that moved it, and what it became."""

    source: str
    dtype: str
    shape: list[int]
    rule: str
    combine: str
    table: str
    line: int
    recomputed: bool
    targets: list[TargetEntry]


class CheckEntry(TypedDict):
    """One stored table beside the recomputed one: the largest difference and its bound."""

    source: str
    constant: str
    error: float | None
    tolerance: float | None


class Manifest(TypedDict):
    """A manifest, as JSON has it."""

    manifest: int
    wdport: str
    source: SourceEntry
    mapping: MappingEntry
    output: OutputEntry
    config: dict[str, ConfigEntry]
    assumed: dict[str, object]
    alternatives: dict[str, str]
    notes: list[str]
    tensors: list[TensorEntry]
    checks: list[CheckEntry]
    drops: dict[str, str]
    ties: dict[str, str]
    ignored: dict[str, str]
    versions: dict[str, str | None]
