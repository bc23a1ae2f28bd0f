"""The results of the commands that are documents of ``--json`` and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from wdport.compare.findings import GateFacts
from wdport.conversion.manifest_schema import ConfigEntry, JsonShape, Manifest
from wdport.conversion.values import ValueFinding
from wdport.exporting.artifact import ConditionFacts, ProgramFacts
from wdport.files.json_document import NamedFile, OutputFile
from wdport.parity.recording_file import CheckpointFacts, Environment
from wdport.shared_types import Count, Positive, Sha256


@dataclass(frozen=True)
class StoredTensor:
    """One tensor or variable."""

    dtype: Annotated[str, Meta(description="Its dtype in the file.")]
    shape: Annotated[JsonShape, Meta(description="Its shape.")]


@dataclass(frozen=True, kw_only=True)
class InspectionDocument:
    """What ``wdport inspect --json`` prints: what is in a checkpoint or a converted file."""

    file: Annotated[str, Meta(description="Name of the file or folder, without its path.")]
    what: Annotated[str, Meta(description="What it is, in words, such as `converted model (keras)`.")]
    bytes: Annotated[Count, Meta(description="Its size.")]
    files: Annotated[Mapping[str, str] | UnsetType, Meta(description=
        "Files of a checkpoint, by name, with their paths.")] = UNSET  # fmt: skip
    config_json: Annotated[Mapping[str, object] | UnsetType | None, Meta(description=
        "`config.json` next to a checkpoint; null if there is none.")] = UNSET  # fmt: skip
    model: Annotated[str, Meta(description=
        "Model family and key layout, in words; or why the file is not recognised; or empty.")]  # fmt: skip
    key: Annotated[str | UnsetType | None, Meta(description=
        "Dotted key of the state_dict; null if the file itself is the state_dict.")] = UNSET  # fmt: skip
    prefixes: Annotated[Sequence[str] | UnsetType, Meta(description=
        "Prefixes that are removed from every name.")] = UNSET  # fmt: skip
    other_keys: Annotated[Sequence[str] | UnsetType, Meta(description=
        "Other contents of a checkpoint besides the state_dict.")] = UNSET  # fmt: skip
    ignored: Annotated[Mapping[str, str] | UnsetType, Meta(description=
        "Entries that are not tensors of the model, each with the reason.")] = UNSET  # fmt: skip
    not_read: Annotated[Sequence[str] | UnsetType, Meta(description="Parts that are not read, in words.")] = UNSET
    shared: Annotated[Sequence[Sequence[str]] | UnsetType, Meta(description=
        "Names of tensors that share one storage.")] = UNSET  # fmt: skip
    config: Annotated[Mapping[str, ConfigEntry], Meta(description=
        "Configuration of the model, by name; empty if unknown.")]  # fmt: skip
    tensors: Annotated[Mapping[str, StoredTensor], Meta(description=
        "Tensors of a checkpoint or variables of a converted file, by name.")]  # fmt: skip
    built_by: Annotated[str | UnsetType, Meta(description=
        "Function that builds the Keras model, for a converted file of your own model.")] = UNSET  # fmt: skip
    source: Annotated[NamedFile | UnsetType, Meta(description=
        "Checkpoint that a converted file was made from.")] = UNSET  # fmt: skip
    mapping: Annotated[NamedFile | UnsetType, Meta(description="Mapping table that it was made with.")] = UNSET
    manifest: Annotated[str | UnsetType, Meta(description=
        "Whether the manifest of a converted file agrees, in words.")] = UNSET  # fmt: skip
    notes: Annotated[Sequence[str] | UnsetType, Meta(description=
        "What to know of the model, such as a condition that it takes.")] = UNSET  # fmt: skip


@dataclass(frozen=True)
class OptimizerFacts:
    """A converted optimizer."""

    name: Annotated[str, Meta(description="Name of its file.")]
    sha256: Annotated[Sha256, Meta(description="SHA-256 of the file.")]
    kind: Annotated[Literal["Adam", "AdamW", "SGD"], Meta(description="PyTorch's class.")]
    parameters: Annotated[Count, Meta(description="Number of its parameters.")]
    groups: Annotated[Count, Meta(description="Number of its groups.")]
    steps: Annotated[Count, Meta(description=
        "Largest number of steps of a parameter; 0 for SGD, which does not count them.")]  # fmt: skip
    schedule: Annotated[str, Meta(description="PyTorch's class of the learning-rate schedule; empty for none.")]
    left_out: Annotated[Sequence[str], Meta(description="Parameters whose tensors were dropped.")]


class ConversionDocument(Manifest):
    """What ``wdport convert --json`` prints: the manifest of the file, and findings on unusual values."""

    values: Annotated[Sequence[ValueFinding], Meta(description="Findings on unusual values of tensors.")]
    optimizer: Annotated[OptimizerFacts | None, Meta(description=
        "The optimizer's state; null if it was not converted.")]  # fmt: skip


@dataclass(frozen=True)
class RecordingDocument:
    """What ``wdport record --json`` prints."""

    reference: Annotated[str, Meta(description="Function that builds the PyTorch model, `module:name`.")]
    checkpoint: Annotated[CheckpointFacts, Meta(description="The checkpoint.")]
    output: Annotated[OutputFile, Meta(description="The recording.")]
    recording_format: Annotated[Positive, Meta(description="`schema` of the recording's index.")]
    tensors: Annotated[Count, Meta(description="Number of tensors of the state_dict.")]
    modules: Annotated[Sequence[str], Meta(description="Paths of the modules that were recorded.")]
    repeats: Annotated[bool, Meta(description="Whether a second run gave the same outputs bit for bit.")]
    evaluating: Annotated[bool, Meta(description="Whether the module was in evaluation mode.")]
    notes: Annotated[Sequence[str], Meta(description="What a reader should know, one sentence each.")]
    environment: Annotated[Environment, Meta(description="Where the model was run.")]


@dataclass(frozen=True)
class SamplesFile(OutputFile):
    """The file of samples."""

    arrays: Annotated[
        Mapping[str, JsonShape], Meta(description="Shape of every array in it, samples on the first axis.")
    ]


@dataclass(frozen=True)
class KnownValues:
    """Values that were given."""

    values: Annotated[Count, Meta(description="Number of given values.")]
    of: Annotated[Count, Meta(description="Total number.")]


@dataclass(frozen=True)
class SamplesDocument:
    """What ``wdport sample --json`` prints."""

    model: Annotated[str, Meta(description="Name of the converted file.")]
    output: Annotated[SamplesFile, Meta(description="The file of samples.")]
    features: Annotated[Sequence[str], Meta(description=
        "Names of the features, the last axis of every array; empty if the model has none.")]  # fmt: skip
    figures: Annotated[Sequence[str], Meta(description="Names of the figures that were drawn.")]
    count: Annotated[Count, Meta(description="Number of samples.")]
    already: Annotated[Count, Meta(description="Number of them that an interrupted run had drawn before.")]
    not_finite: Annotated[Count, Meta(description="Number of samples with a value that is not finite.")]
    sampler: Annotated[str, Meta(description="Name of the sampler.")]
    network_calls: Annotated[Count, Meta(description="Calls of the network for every sample.")]
    eta: Annotated[float, Meta(description="Share of noise that a DDIM step adds.")]
    seed: Annotated[Count, Meta(description="Random seed. It and the number of a sample determine the sample.")]
    dtype: Annotated[str, Meta(description="Dtype that the network computes in.")]
    units: Annotated[str | None, Meta(description=
        "Units of decoded samples, in words; null if samples are not decoded.")]  # fmt: skip
    not_decoded: Annotated[str | None, Meta(description="Why samples are not decoded; null if they are.")]
    known: Annotated[KnownValues | None, Meta(description="Values that were given with `--known`; null if none were.")]
    labels: Annotated[str | None, Meta(description="Class labels as given; null for a model without classes.")]
    condition: Annotated[Mapping[str, str] | None, Meta(description=
        "Condition as given, by the name of the network's input; null if it was called without one.")]  # fmt: skip
    batch: Annotated[Positive, Meta(description="Number of samples in every call.")]
    devices: Annotated[Positive, Meta(description="Number of devices.")]
    processes: Annotated[Positive, Meta(description="Number of processes.")]
    seconds: Annotated[float, Meta(description="Seconds that this run took to draw.")]
    compiling_seconds: Annotated[float, Meta(description="Seconds of them spent on compiling.")]
    rate: Annotated[float | None, Meta(description="Samples per second without compiling; null if unknown.")]


@dataclass(frozen=True)
class TrainingDocument:
    """What ``wdport train --json`` prints."""

    model: Annotated[str, Meta(description=
        "Name of the converted file, the checkpoint, or the configuration of a new model.")]  # fmt: skip
    data: Annotated[NamedFile, Meta(description="The data.")]
    steps: Annotated[Count, Meta(description="Steps of the whole run.")]
    resumed_optimizer: Annotated[str | None, Meta(description=
        "Name of the file of the optimizer that was resumed, which may be the checkpoint; null for a new "
        "one.")]  # fmt: skip
    epochs: Annotated[Sequence[Mapping[str, float]], Meta(description=
        "Metrics of every epoch by name: epoch, steps, loss, the loss of every part, learning_rate and "
        "seconds.")]  # fmt: skip
    outputs: Annotated[Sequence[OutputFile], Meta(description="The files of the run.")]
    seconds: Annotated[float, Meta(description="Seconds that it took, with compiling.")]


@dataclass(frozen=True)
class CodedDocument:
    """What ``wdport encode --json`` and ``wdport decode --json`` print."""

    model: Annotated[str, Meta(description="Name of the converted file.")]
    direction: Annotated[Literal["encode", "decode"], Meta(description="What was done.")]
    input: Annotated[NamedFile, Meta(description="The file that was read.")]
    output: Annotated[OutputFile, Meta(description="The file that was written.")]
    latents: Annotated[JsonShape, Meta(description="Shape of the latents: videos, frames, height, width, channels.")]
    video: Annotated[JsonShape, Meta(description="Shape of the video: videos, frames, height, width, channels.")]
    values: Annotated[Literal["float32", "uint8"], Meta(description="Type of the written values.")]
    normalised: Annotated[bool, Meta(description=
        "Whether the latents are normalised by the model's mean and standard deviation.")]  # fmt: skip
    truncated: Annotated[bool, Meta(description=
        "Whether bytes were made by dropping the fraction; otherwise they are rounded.")]  # fmt: skip
    dtype: Annotated[str, Meta(description="Keras dtype policy of the model.")]
    compute_dtype: Annotated[str, Meta(description="Dtype of activations.")]
    chunk: Annotated[Positive, Meta(description="Latent frames at a time.")]
    fps: Annotated[float | None, Meta(description="Frames per second of a file that is played; null for others.")]
    seconds: Annotated[float, Meta(description="Seconds that it took, with compiling.")]


@dataclass(frozen=True)
class GeneratedText:
    """One completed text."""

    tokens: Annotated[Sequence[Count], Meta(description="Its tokens.")]
    steps: Annotated[Sequence[int], Meta(description=
        "For every token the step that last set it, from 0; -1 for a given one.")]  # fmt: skip
    text: Annotated[str | None, Meta(description="The text without special tokens; null without a tokenizer.")]


@dataclass(frozen=True)
class GeneratedDocument:
    """What ``wdport generate --json`` prints, and ``-o NAME.json`` holds."""

    model: Annotated[str, Meta(description="Name of the converted file.")]
    prompts: Annotated[NamedFile | None, Meta(description=
        "The file of the prompts; null if they were given with `--text`.")]  # fmt: skip
    output: Annotated[OutputFile | None, Meta(description=
        "The file that was written; null if none was, and in that file itself.")]  # fmt: skip
    texts: Annotated[Sequence[GeneratedText], Meta(description="The texts, in the order of the prompts.")]
    generated: Annotated[Count, Meta(description="Number of generated tokens of all texts.")]
    network_calls: Annotated[Count, Meta(description="Calls of the network for all texts.")]
    mask: Annotated[Count, Meta(description="The mask token.")]
    end: Annotated[Count | None, Meta(description="Token that ends a text; null for none.")]
    forbid: Annotated[
        Sequence[Count], Meta(description="Tokens that are never generated, in addition to the mask token.")
    ]
    steps: Annotated[Positive | None, Meta(description="Steps of a block; null for one for every token.")]
    length: Annotated[Count, Meta(description="Tokens to append to each prompt.")]
    block_length: Annotated[Positive | None, Meta(description="Wanted tokens in a block; null for the default.")]
    threshold: Annotated[float, Meta(description="Probability above which tokens are kept earlier.")]
    edit: Annotated[float | None, Meta(description=
        "Probability above which a generated token is replaced; null if none is.")]  # fmt: skip
    temperature: Annotated[float, Meta(description="Temperature; 0 takes the most probable token.")]
    top_k: Annotated[Positive | None, Meta(description="Number of tokens that are drawn from; null for all.")]
    top_p: Annotated[float | None, Meta(description="Probability of the tokens that are drawn from; null for all.")]
    seed: Annotated[Count, Meta(description="Random seed.")]
    dtype: Annotated[str, Meta(description="Keras dtype policy of the model.")]
    seconds: Annotated[float, Meta(description="Seconds that it took, with compiling.")]


@dataclass(frozen=True)
class ExportedSampler:
    """The sampler in an exported file."""

    name: Annotated[str, Meta(description="Name of the sampler.")]
    network_calls: Annotated[Count, Meta(description="Calls of the network for every sample.")]
    eta: Annotated[float, Meta(description="Share of noise that a DDIM step adds.")]


@dataclass(frozen=True, kw_only=True)
class ExportDocument:
    """What ``wdport export --json`` prints. The fields from ``what`` on are for a StableHLO file, those from
    ``tensors`` on for a PyTorch file."""

    model: Annotated[str, Meta(description="Name of the converted file.")]
    to: Annotated[Literal["stablehlo", "torch"], Meta(description="What was written.")]
    what: Annotated[Literal["denoiser", "sampler", "network"] | UnsetType, Meta(description=
        "What the programs compute.")] = UNSET  # fmt: skip
    output: Annotated[OutputFile, Meta(description="The file that was written.")]
    platforms: Annotated[Sequence[str] | UnsetType, Meta(description="Platforms that it runs on.")] = UNSET
    batch: Annotated[Positive | UnsetType | None, Meta(description=
        "Number of samples of every call; null for any number.")] = UNSET  # fmt: skip
    arrays: Annotated[Mapping[str, JsonShape] | UnsetType, Meta(description=
        "Shape of one sample of every array that it takes or returns; absent for a network.")] = UNSET  # fmt: skip
    programs: Annotated[Mapping[str, ProgramFacts] | UnsetType, Meta(description=
        "The programs of a network by name, with their inputs and outputs; absent for a denoiser or "
        "sampler.")] = UNSET  # fmt: skip
    classes: Annotated[Positive | UnsetType | None, Meta(description=
        "Number of classes; null for a model without labels, and for a network.")] = UNSET  # fmt: skip
    condition: Annotated[ConditionFacts | UnsetType, Meta(description=
        "The further input that it takes last; absent if it takes none.")] = UNSET  # fmt: skip
    compute_dtype: Annotated[str | UnsetType, Meta(description="Dtype that the network computes in.")] = UNSET
    precision: Annotated[str | UnsetType, Meta(description="Precision of float32 products.")] = UNSET
    sampler: Annotated[ExportedSampler | UnsetType | None, Meta(description=
        "The sampler; null for a denoiser or network.")] = UNSET  # fmt: skip
    tensors: Annotated[Count | UnsetType, Meta(description="Number of tensors.")] = UNSET
    prefixes: Annotated[Sequence[str] | UnsetType, Meta(description=
        "Prefixes of the checkpoint that were removed.")] = UNSET  # fmt: skip
    recomputed: Annotated[Sequence[str] | UnsetType, Meta(description=
        "Tensors that were computed from their formulas.")] = UNSET  # fmt: skip
    chosen: Annotated[Sequence[str] | UnsetType, Meta(description=
        "Tensors that the conversion had combined by arithmetic, separated again by choice: the function is the same, "
        "the bits are not.")] = UNSET  # fmt: skip
    left_out: Annotated[Mapping[str, str] | UnsetType, Meta(description=
        "Tensors of the checkpoint that the file lacks, each with the reason.")] = UNSET  # fmt: skip
    verified: Annotated[Sequence[GateFacts] | UnsetType, Meta(description=
        "The gates of `--verify`; absent without it.")] = UNSET  # fmt: skip
