"""The results of the commands that are documents of ``--json`` and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from wdport.base.shared_types import Count, JsonShape, Positive, Sha256, about
from wdport.conversion.manifest_schema import ConfigEntry, Manifest
from wdport.conversion.values import ValueFinding
from wdport.files.json_document import NamedFile, OutputFile
from wdport.parity.recording_file import CheckpointFacts, Environment


@dataclass(frozen=True)
class StoredTensor:
    """One tensor or variable."""

    dtype: Annotated[str, about("Dtype in the file.")]
    shape: Annotated[JsonShape, about("Shape of the tensor or variable.")]


@dataclass(frozen=True, kw_only=True)
class InspectionDocument:
    """What ``wdport inspect --json`` prints: what is in a checkpoint or a converted file."""

    file: Annotated[str, about("Name of the file or folder, without its path.")]
    what: Annotated[str, about("Kind of the file, such as `converted model (keras)`.")]
    bytes: Annotated[Count, about("Size of the file or folder in bytes.")]
    files: Annotated[Mapping[str, str] | UnsetType, about("Paths of the files of a checkpoint, by name.")] = UNSET
    config_json: Annotated[Mapping[str, object] | UnsetType | None, about(
        "`config.json` next to a checkpoint; null if there is none.")] = UNSET  # fmt: skip
    model: Annotated[str, about("Model family and key layout, or why the file is not recognized; may be empty.")]
    key: Annotated[str | UnsetType | None, about(
        "Dotted key of the state_dict; null if the file itself is the state_dict.")] = UNSET  # fmt: skip
    prefixes: Annotated[Sequence[str] | UnsetType, about("Prefixes that are removed from every name.")] = UNSET
    other_keys: Annotated[Sequence[str] | UnsetType, about(
        "Other contents of a checkpoint besides the state_dict.")] = UNSET  # fmt: skip
    ignored: Annotated[Mapping[str, str] | UnsetType, about(
        "Entries that are not tensors of the model, each with the reason.")] = UNSET  # fmt: skip
    not_read: Annotated[Sequence[str] | UnsetType, about(
        "Descriptions of the parts of the file that are not read.")] = UNSET  # fmt: skip
    shared: Annotated[Sequence[Sequence[str]] | UnsetType, about(
        "For each storage that several tensors share, the names of these tensors.")] = UNSET  # fmt: skip
    config: Annotated[Mapping[str, ConfigEntry], about("Configuration of the model, by name; empty if unknown.")]
    tensors: Annotated[Mapping[str, StoredTensor], about(
        "Tensors of a checkpoint or variables of a converted file, by name.")]  # fmt: skip
    built_by: Annotated[str | UnsetType, about(
        "For a converted file of your own model, the function that builds the Keras model.")] = UNSET  # fmt: skip
    source: Annotated[NamedFile | UnsetType, about("Checkpoint from which a converted file was made.")] = UNSET
    mapping: Annotated[NamedFile | UnsetType, about("Mapping table with which a converted file was made.")] = UNSET
    manifest: Annotated[str | UnsetType, about(
        "Phrase that states whether the manifest next to a converted file agrees with the file.")] = UNSET  # fmt: skip
    notes: Annotated[Sequence[str] | UnsetType, about(
        "Notes about the model, such as one about a conditioning input that it takes.")] = UNSET  # fmt: skip


@dataclass(frozen=True)
class OptimizerFacts:
    """A converted optimizer."""

    name: Annotated[str, about("Name of the file.")]
    sha256: Annotated[Sha256, about("SHA-256 of the file.")]
    kind: Annotated[Literal["Adam", "AdamW", "SGD"], about("Class of the optimizer in PyTorch.")]
    parameters: Annotated[Count, about("Number of parameters.")]
    groups: Annotated[Count, about("Number of parameter groups.")]
    steps: Annotated[Count, about("Largest step count of any parameter; 0 for SGD, which does not count steps.")]
    schedule: Annotated[str, about("Class of the learning-rate schedule in PyTorch; empty for none.")]
    left_out: Annotated[Sequence[str], about("Parameters that were left out because their tensors were dropped.")]


class ConversionDocument(Manifest):
    """What ``wdport convert --json`` prints: the manifest of the file, and findings on unusual values."""

    values: Annotated[Sequence[ValueFinding], about("Findings on unusual values of tensors.")]
    optimizer: Annotated[OptimizerFacts | None, about("The optimizer's state; null if it was not converted.")]


@dataclass(frozen=True)
class RecordingDocument:
    """What ``wdport record --json`` prints."""

    reference: Annotated[str, about("Function that builds the PyTorch model, as `module:function`.")]
    checkpoint: Annotated[CheckpointFacts, about("The checkpoint.")]
    output: Annotated[OutputFile, about("The recording.")]
    recording_format: Annotated[Positive, about("Value of `schema` in the recording's index.")]
    tensors: Annotated[Count, about("Number of tensors in the state_dict.")]
    modules: Annotated[Sequence[str], about("Paths of the modules that were recorded.")]
    repeats: Annotated[bool, about("Whether a second run produced the same outputs, bit for bit.")]
    evaluating: Annotated[bool, about("Whether the model was in evaluation mode.")]
    notes: Annotated[Sequence[str], about("Notes for the reader, one sentence each.")]
    environment: Annotated[Environment, about("Environment in which the model was run.")]
