"""The manifest in a converted file, as types: JSON values; and whether the manifest next to the file agrees with it.

Its content is only quoted, never executed: it is as untrusted as the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from wdport.base.limits import MAX_MANIFEST_BYTES, MAX_MANIFEST_MARKS
from wdport.base.shared_types import Count, JsonShape, Sha256, about
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.source import Source
from wdport.checkpoint.strict_json import strict_json
from wdport.conversion.rounding import STORED
from wdport.files.json_document import NamedFile
from wdport.files.manifest_seal import CONVERT_AGAIN, manifest_of, unsealed
from wdport.mapping.axes import FillValue, Shape


class SourceEntry(TypedDict):
    """The checkpoint, and the parts of it that were not converted."""

    name: Annotated[str, about("Name of the file or folder, without its path.")]
    hub: Annotated[str | None, about(
        "ORGANIZATION/NAME@COMMIT, if it is in a cache of the Hugging Face Hub; null if not.")]  # fmt: skip
    sha256: Annotated[Sha256, about(
        "SHA-256 of the file; for a sharded checkpoint, of the index followed by the shards.")]  # fmt: skip
    format: Annotated[str, about("Format of the file, such as `torch zip` or `safetensors`.")]
    layout: Annotated[str, about("Description of where the tensors are in the file.")]
    key: Annotated[str | None, about(
        "Dotted key of the state_dict; null if the file itself is the state_dict.")]  # fmt: skip
    prefixes: Annotated[list[str], about("Prefixes that were removed from every name, such as `module.`.")]
    other_keys: Annotated[list[str], about("Other contents of the file besides the state_dict.")]
    not_read: Annotated[list[str], about("Descriptions of the parts of the file that were not read.")]


class MappingEntry(TypedDict):
    """The mapping table."""

    name: Annotated[str, about("Path of the table as given; only the file name if the path is absolute.")]
    sha256: Annotated[Sha256, about(
        "SHA-256 of the table; if it includes other tables, of the concatenated hashes of all tables.")]  # fmt: skip
    family: Annotated[str, about("Model family.")]
    variant: Annotated[str, about("Key layout within the family; empty if the table names none.")]


class FileEntry(TypedDict):
    """One file of a folder."""

    name: Annotated[str, about("Name of the file.")]
    sha256: Annotated[Sha256, about("SHA-256 of the file.")]
    bytes: Annotated[Count, about("Size of the file in bytes.")]


class OutputEntry(TypedDict):
    """The file that was written. ``name``, ``sha256`` and ``bytes`` are only in the manifest next to the file."""

    format: Annotated[str, about(
        "Format: `keras`, `safetensors`, `npz`, `weights.h5`, `orbax`, or `safetensors-sharded` for a folder of "
        "shards.")]  # fmt: skip
    variables: Annotated[Count, about("Number of variables.")]
    config_json: NotRequired[Annotated[Sha256, about("SHA-256 of Keras's model description in a `.keras` archive.")]]
    kept: NotRequired[Annotated[dict[str, Sha256], about(
        "SHA-256 of each file from the checkpoint's folder that a `.keras` archive contains, by name.")]]  # fmt: skip
    dtype: NotRequired[Annotated[str, about("Dtype that was requested instead of float32.")]]
    files: NotRequired[Annotated[list[FileEntry], about("The index and the shards of a folder.")]]
    name: NotRequired[Annotated[str, about("Name of the file or folder.")]]
    sha256: NotRequired[Annotated[Sha256, about(
        "SHA-256 of the whole file, or of the lines that `sha256sum` prints for the files of a folder.")]]  # fmt: skip
    bytes: NotRequired[Annotated[Count, about("Size of the whole file or folder in bytes.")]]


class ConfigEntry(TypedDict):
    """One value of the configuration, and its origin."""

    value: Annotated[object, about("The value; the model family defines its meaning.")]
    origin: Annotated[str, about(
        "Origin of the value, such as `shapes`, `buffers`, `config`, `flag` or `table`; `default` for a default value; "
        "`assumed` if no source determined it.")]  # fmt: skip


class TargetEntry(TypedDict):
    """One written variable."""

    path: Annotated[str, about("Path of the variable, with its parts joined by `/`.")]
    shape: Annotated[JsonShape, about("Shape of the variable.")]
    sha256: Annotated[Sha256, about(
        "SHA-256 of the variable's values in its own dtype, in row-major order and little-endian.")]  # fmt: skip
    dtype: NotRequired[Annotated[str, about("Dtype of the variable; float32 if absent.")]]


class TensorEntry(TypedDict):
    """One tensor of the checkpoint, the row of the mapping table that converted it, and the variables that it fills."""

    source: Annotated[str, about("Name of the tensor, without the prefixes.")]
    dtype: Annotated[str, about("Dtype in the checkpoint.")]
    shape: Annotated[JsonShape, about("Shape in the checkpoint.")]
    rule: Annotated[str, about("How the axes were rearranged: the name of a rule, or the rule itself.")]
    combine: Annotated[Literal["", "sum", "weight_norm"], about(
        "Arithmetic that combined the tensors of the row before the rule was applied; empty for none.")]  # fmt: skip
    table: Annotated[str, about("File that contains the row.")]
    line: Annotated[Count, about("Line of the row, counting from 1.")]
    recomputed: Annotated[bool, about(
        "Whether it was recomputed because its values had become too inaccurate in 16-bit storage.")]  # fmt: skip
    targets: Annotated[list[TargetEntry], about("The variables that the tensor fills.")]


class FilledEntry(TargetEntry):
    """One written variable that no tensor of the checkpoint fills."""

    fill: Annotated[FillValue, about("What every value of the variable is.")]
    table: Annotated[str, about("File that contains the row.")]
    line: Annotated[Count, about("Line of the row, counting from 1.")]


class CheckEntry(TypedDict):
    """One constant tensor of the checkpoint, compared with its recomputed values."""

    source: Annotated[str, about("Name of the tensor.")]
    constant: Annotated[str, about("Name of the constant with which the tensor was compared.")]
    error: Annotated[float | None, about(
        "Largest absolute difference; null if the values were used without a comparison.")]  # fmt: skip
    tolerance: Annotated[float | None, about(
        "Largest allowed difference; null if the values were used without a comparison.")]  # fmt: skip


class Manifest(TypedDict):
    """Inputs, steps and output of a conversion. The same inputs give the same manifest."""

    manifest: Annotated[Literal[2], about("Version number of the manifest format.")]
    wdport: Annotated[str, about("Version of wdport that wrote the manifest.")]
    source: Annotated[SourceEntry, about("The checkpoint.")]
    mapping: Annotated[MappingEntry, about("The mapping table.")]
    output: Annotated[OutputEntry, about("The file that was written.")]
    config: Annotated[dict[str, ConfigEntry], about("The configuration of the model, by name.")]
    assumed: Annotated[dict[str, object], about(
        "Values of the configuration that no source determined, by name.")]  # fmt: skip
    alternatives: Annotated[dict[str, str], about(
        "Description of the alternatives to each assumed value, by name.")]  # fmt: skip
    notes: Annotated[list[str], about("Notes for the reader, one sentence each.")]
    tensors: Annotated[list[TensorEntry], about(
        "Every converted tensor. All tensors that the same row of the mapping table converts have the same "
        "targets.")]  # fmt: skip
    checks: Annotated[list[CheckEntry], about(
        "Every constant tensor of the checkpoint, and how far it is from its recomputed values.")]  # fmt: skip
    drops: Annotated[dict[str, str], about("Tensors that were left out, each with its reason.")]
    ties: Annotated[dict[str, str], about(
        "Tensors that are bit-identical to another tensor, each with the name of that tensor.")]  # fmt: skip
    ignored: Annotated[dict[str, str], about(
        "Entries of the checkpoint that are not tensors of the model, each with its reason.")]  # fmt: skip
    filled: NotRequired[Annotated[list[FilledEntry], about(
        "Every variable that no tensor fills; absent if there is none.")]]  # fmt: skip
    versions: Annotated[dict[str, str | None], about(
        "Versions of Python and of the libraries; null for one that is not installed.")]  # fmt: skip


_FAULTS = (ValueError, KeyError, TypeError, AttributeError)
_WHOLE = ("name", "sha256", "bytes")
"""Facts about a file that only the manifest next to it can state, not the one inside."""


@dataclass(frozen=True)
class Account:
    """A manifest: the file's source, the configuration with the origin of each value, and the path, shape, dtype and
    SHA-256 of every variable. ``config_json`` is the SHA-256 of Keras's model description in an archive."""

    manifest: Mapping[str, object] = field(repr=False)
    family: str
    variant: str
    source: NamedFile
    mapping: NamedFile
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
        targets += manifest.get("filled", ())
        return Account(
            manifest,
            str(mapping["family"]),
            str(mapping["variant"]),
            NamedFile(str(source["name"]), str(source["sha256"])),
            NamedFile(str(mapping["name"]), str(mapping["sha256"])),
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
    # The whole document, not only the hash: another tool may have edited any part of it.
    if {**document, "output": output} != account.manifest:
        return f"{beside.name} belongs to another conversion"
    return "" if file_facts["sha256"] == sha256 else f"{beside.name} describes a file with another SHA-256"
