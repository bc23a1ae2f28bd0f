"""The entries of a manifest, as types: JSON values that :mod:`wdport.conversion.manifest` produces."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from wdport.declared import Count, Sha256

Shape = list[Count]
"""Sizes of the axes, in order; empty for a scalar."""


class SourceEntry(TypedDict):
    """The checkpoint, and which parts of it were not converted."""

    name: str
    """Name of the file or folder, without its path."""
    sha256: Sha256
    """SHA-256 of the file; of a folder, of the lines that ``sha256sum`` prints for its files."""
    format: str
    """Format of the file, such as ``torch zip`` or ``safetensors``."""
    layout: str
    """Where in the file the tensors are, as text."""
    key: str | None
    """Dotted key of the state_dict; null if the file itself is the state_dict."""
    prefixes: list[str]
    """Prefixes that were removed from every name, such as ``module.``."""
    other_keys: list[str]
    """Other content of the file, beside the state_dict."""
    not_read: list[str]
    """Parts of the file that were not read, as text."""


class MappingEntry(TypedDict):
    """The mapping table."""

    name: str
    """Path of the table as given, but never an absolute one."""
    sha256: Sha256
    """SHA-256 of the table; with includes, of the hashes of all files."""
    family: str
    """Model family."""
    variant: str
    """Key layout within the family; empty if the table names none."""


class FileEntry(TypedDict):
    """One file of a folder."""

    name: str
    """Its name."""
    sha256: Sha256
    """Its SHA-256."""
    bytes: Count
    """Its size."""


class OutputEntry(TypedDict):
    """The file that was written. ``name``, ``sha256`` and ``bytes`` are only in the manifest beside the file."""

    format: str
    """Format: ``keras``, ``safetensors``, ``npz``, ``weights.h5``, ``orbax`` or ``safetensors-sharded``, a folder."""
    variables: Count
    """Number of variables."""
    config_json: NotRequired[Sha256]
    """SHA-256 of Keras's model description in a ``.keras`` archive."""
    kept: NotRequired[dict[str, Sha256]]
    """SHA-256 of files of the checkpoint's folder that a ``.keras`` archive keeps, by name."""
    dtype: NotRequired[str]
    """Requested dtype instead of float32."""
    files: NotRequired[list[FileEntry]]
    """The index and the shards of a folder."""
    name: NotRequired[str]
    """Name of the file or folder."""
    sha256: NotRequired[Sha256]
    """SHA-256 of the whole file, or of the lines that ``sha256sum`` prints for the files of a folder."""
    bytes: NotRequired[Count]
    """Size of the whole file or folder."""


class ConfigEntry(TypedDict):
    """One value of the configuration, and its origin."""

    value: object
    """The value; the model family defines its meaning."""
    origin: str
    """Its origin, such as ``shapes``, ``buffers``, ``config``, ``flag`` or ``table``; ``assumed`` if no source
    determined it."""


class TargetEntry(TypedDict):
    """One written variable."""

    path: str
    """Path of the variable, joined by ``/``."""
    shape: Shape
    """Its shape."""
    sha256: Sha256
    """SHA-256 of its values in row-major order, little-endian, in its dtype."""
    dtype: NotRequired[str]
    """Its dtype; float32 if absent."""


class TensorEntry(TypedDict):
    """One tensor of the checkpoint, the row of the table that moved it, and the variables that it fills."""

    source: str
    """Name of the tensor, without the prefixes."""
    dtype: str
    """Its dtype in the checkpoint."""
    shape: Shape
    """Its shape in the checkpoint."""
    rule: str
    """How its axes were rearranged: the name of a rule, or the rule itself."""
    combine: Literal["", "sum", "weight_norm"]
    """Arithmetic that combined it with the other tensors of the row before the rule; empty for none."""
    table: str
    """File of the row."""
    line: Count
    """Line of the row, from 1."""
    recomputed: bool
    """Whether it was recomputed because 16-bit storage ruined the stored values."""
    targets: list[TargetEntry]
    """The variables that it fills."""


class CheckEntry(TypedDict):
    """One stored table compared with the recomputed one."""

    source: str
    """Name of the tensor."""
    constant: str
    """Name of the constant that it was compared with."""
    error: float | None
    """Largest absolute difference; null if the values were used without a comparison."""
    tolerance: float | None
    """Largest allowed difference; null if the values were used without a comparison."""


class Manifest(TypedDict):
    """Inputs, steps and output of a conversion. The same inputs give the same manifest."""

    manifest: Literal[2]
    """Format of the manifest."""
    wdport: str
    """Version of wdport that wrote it."""
    source: SourceEntry
    """The checkpoint."""
    mapping: MappingEntry
    """The mapping table."""
    output: OutputEntry
    """The file that was written."""
    config: dict[str, ConfigEntry]
    """The configuration of the model, by name."""
    assumed: dict[str, object]
    """Values of the configuration that no source determined, by name."""
    alternatives: dict[str, str]
    """Other possible values of an assumed value, as text, by name."""
    notes: list[str]
    """Notes for the reader, one sentence each."""
    tensors: list[TensorEntry]
    """Every moved tensor. All tensors of one row have the same targets."""
    checks: list[CheckEntry]
    """Every stored table that was compared with its formula."""
    drops: dict[str, str]
    """Tensors that were left out, each with its reason."""
    ties: dict[str, str]
    """Tensors that equal another one bit for bit, each with the other's name."""
    ignored: dict[str, str]
    """Entries of the checkpoint that are not tensors of the model, each with its reason."""
    versions: dict[str, str | None]
    """Versions of Python and of the libraries; null for one that is not installed."""
