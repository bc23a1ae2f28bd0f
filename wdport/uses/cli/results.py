"""The results of the verbs that use converted models that are documents of ``--json`` and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType

from wdport.base.shared_types import Count, JsonShape, Positive, about
from wdport.compare.findings import GateFacts
from wdport.files.json_document import NamedFile, OutputFile
from wdport.uses.exporting.artifact import ConditionFacts, ProgramFacts

_SPACING: Final = about("Name of the spacing of the steps, as given; null for that of the checkpoint's own code.")


@dataclass(frozen=True)
class SamplesFile(OutputFile):
    """The file of samples."""

    arrays: Annotated[Mapping[str, JsonShape], about(
        "Shapes of the states and of the decoded samples, by array name; the first axis indexes the "
        "samples.")]  # fmt: skip


@dataclass(frozen=True)
class KnownValues:
    """Known values."""

    values: Annotated[Count, about("Number of known values.")]
    of: Annotated[Count, about("Total number of values.")]


@dataclass(frozen=True)
class SamplesDocument:
    """What ``wdport sample --json`` prints."""

    model: Annotated[str, about("Name of the converted file.")]
    output: Annotated[SamplesFile, about("The file of samples.")]
    features: Annotated[Sequence[str], about(
        "Names of the features along the last axis of every array; empty if the model has no feature "
        "names.")]  # fmt: skip
    figures: Annotated[Sequence[str], about("Names of the figures that were drawn.")]
    count: Annotated[Count, about("Number of samples.")]
    already: Annotated[Count, about(
        "Number of these samples that had already been drawn by an earlier, interrupted run.")]  # fmt: skip
    not_finite: Annotated[Count, about("Number of samples that contain non-finite values.")]
    sampler: Annotated[str, about("Name of the sampler.")]
    network_calls: Annotated[Count, about("Number of network calls per sample.")]
    eta: Annotated[float, about("Eta of DDIM: the noise that each step adds, as a fraction of DDPM's; 0 for none.")]
    spacing: Annotated[str | None, _SPACING]
    seed: Annotated[Count, about("Random seed. The seed and the index of a sample determine the sample.")]
    dtype: Annotated[str, about("Keras dtype policy of the network.")]
    units: Annotated[str | None, about("Description of the units of decoded samples; null if samples are not decoded.")]
    not_decoded: Annotated[str | None, about("Why samples are not decoded; null if they are.")]
    known: Annotated[KnownValues | None, about("Known values, passed with `--known`; null if there are none.")]
    labels: Annotated[str | None, about("Class labels, as given; null if none were given.")]
    condition: Annotated[Mapping[str, str] | None, about(
        "Condition, as given, by the name of the network's input; `none` if `--unconditional` omits the input; null "
        "if no condition was given.")]  # fmt: skip
    batch: Annotated[Positive, about("Number of samples per network call.")]
    devices: Annotated[Positive, about("Number of devices.")]
    processes: Annotated[Positive, about("Number of processes.")]
    seconds: Annotated[float, about("Time that this run spent on drawing samples, in seconds.")]
    compiling_seconds: Annotated[float, about("Part of `seconds` that was spent on compilation.")]
    rate: Annotated[float | None, about("Samples per second, excluding compilation; null if unknown.")]


@dataclass(frozen=True)
class TrainingDocument:
    """What ``wdport train --json`` prints."""

    model: Annotated[str, about(
        "Name of the converted file, of the checkpoint, or of the configuration of a new model.")]  # fmt: skip
    data: Annotated[NamedFile, about("The training data.")]
    steps: Annotated[Count, about("Number of steps in the whole run.")]
    resumed_optimizer: Annotated[str | None, about(
        "Name of the file from which the optimizer was resumed, possibly the checkpoint itself; null for a new "
        "optimizer.")]  # fmt: skip
    epochs: Annotated[Sequence[Mapping[str, float]], about(
        "Metrics of every epoch, by name: epoch, steps, loss, learning_rate, seconds, and, if there are any, val_loss, "
        "accuracy, and the loss of each part of a sample.")]  # fmt: skip
    outputs: Annotated[Sequence[OutputFile], about("The files of the run.")]
    seconds: Annotated[float, about("Duration in seconds, including compilation.")]


@dataclass(frozen=True)
class CodedDocument:
    """What ``wdport encode --json`` and ``wdport decode --json`` print."""

    model: Annotated[str, about("Name of the converted file.")]
    direction: Annotated[Literal["encode", "decode"], about("Whether a video was encoded or latents were decoded.")]
    input: Annotated[NamedFile, about("The file that was read.")]
    output: Annotated[OutputFile, about("The file that was written.")]
    latents: Annotated[JsonShape, about("Shape of the latents: videos, frames, height, width, channels.")]
    video: Annotated[JsonShape, about("Shape of the video: videos, frames, height, width, channels.")]
    values: Annotated[Literal["float32", "uint8"], about("Dtype of the written values.")]
    normalised: Annotated[bool, about("Whether the latents are normalized by the model's mean and standard deviation.")]
    truncated: Annotated[bool, about("Whether values were converted to bytes by truncation instead of rounding.")]
    dtype: Annotated[str, about("Keras dtype policy of the model.")]
    compute_dtype: Annotated[str, about("Dtype of the activations.")]
    chunk: Annotated[Positive, about("Number of latent frames that are processed at a time.")]
    fps: Annotated[float | None, about("Frames per second of a playable video file; null for other files.")]
    seconds: Annotated[float, about("Duration in seconds, including compilation.")]


@dataclass(frozen=True)
class GeneratedText:
    """One completed text."""

    tokens: Annotated[Sequence[Count], about("Tokens of the text.")]
    steps: Annotated[Sequence[int], about(
        "For every token, the step that last set it, counting from 0; -1 for a given token.")]  # fmt: skip
    text: Annotated[str | None, about("The text without special tokens; null without a tokenizer.")]


@dataclass(frozen=True)
class GeneratedDocument:
    """What ``wdport generate --json`` prints, and ``-o NAME.json`` holds."""

    model: Annotated[str, about("Name of the converted file.")]
    prompts: Annotated[
        NamedFile | None, about("The file that contains the prompts; null if they were passed with `--text`.")
    ]
    output: Annotated[OutputFile | None, about(
        "The file that was written; null if no file was written, and in the written file itself.")]  # fmt: skip
    texts: Annotated[Sequence[GeneratedText], about("The texts, in the order of the prompts.")]
    generated: Annotated[Count, about("Total number of generated tokens.")]
    network_calls: Annotated[Count, about("Number of network calls for all texts.")]
    mask: Annotated[Count, about("The mask token.")]
    end: Annotated[Count | None, about("Token that ends a text; null for none.")]
    forbid: Annotated[Sequence[Count], about("Tokens that are never generated, in addition to the mask token.")]
    steps: Annotated[Positive | None, about("Maximum number of steps per block; null for one step per token.")]
    length: Annotated[Count, about("Number of tokens to append to each prompt.")]
    block_length: Annotated[Positive | None, about("Number of tokens to fill in per block; null for the default.")]
    threshold: Annotated[float, about("Probability above which a token is kept.")]
    edit: Annotated[float | None, about(
        "Probability above which another token replaces a generated one; null if no token is replaced.")]  # fmt: skip
    temperature: Annotated[float, about("Temperature; at 0, the most probable token is taken.")]
    top_k: Annotated[Positive | None, about(
        "Number of most probable tokens from which each token is drawn; null for all tokens.")]  # fmt: skip
    top_p: Annotated[float | None, about(
        "Total probability of the tokens from which each token is drawn; null for all tokens.")]  # fmt: skip
    seed: Annotated[Count, about("Random seed.")]
    dtype: Annotated[str, about("Keras dtype policy of the model.")]
    seconds: Annotated[float, about("Duration in seconds, including compilation.")]


@dataclass(frozen=True)
class ExportedSampler:
    """The sampler in an exported file."""

    name: Annotated[str, about("Name of the sampler.")]
    network_calls: Annotated[Count, about("Number of network calls per sample.")]
    eta: Annotated[float, about("Eta of DDIM: the noise that each step adds, as a fraction of DDPM's; 0 for none.")]
    spacing: Annotated[str | None, _SPACING]


@dataclass(frozen=True, kw_only=True)
class ExportDocument:
    """What ``wdport export --json`` prints. The fields from ``what`` on are for a StableHLO file, those from
    ``tensors`` on for a PyTorch file."""

    model: Annotated[str, about("Name of the converted file.")]
    to: Annotated[Literal["stablehlo", "torch"], about("Kind of file that was written.")]
    what: Annotated[Literal["denoiser", "sampler", "network"] | UnsetType, about("What the programs compute.")] = UNSET
    output: Annotated[OutputFile, about("The file that was written.")]
    platforms: Annotated[Sequence[str] | UnsetType, about("Platforms on which the programs run.")] = UNSET
    batch: Annotated[Positive | UnsetType | None, about(
        "Number of samples per call; null if any number is possible.")] = UNSET  # fmt: skip
    arrays: Annotated[Mapping[str, JsonShape] | UnsetType, about(
        "Shapes of one sample by array name: of the state and, if samples are decoded, of the decoded sample; absent "
        "for a network.")] = UNSET  # fmt: skip
    programs: Annotated[Mapping[str, ProgramFacts] | UnsetType, about(
        "The network's programs by name, each with its inputs and outputs; absent for a denoiser or "
        "sampler.")] = UNSET  # fmt: skip
    classes: Annotated[Positive | UnsetType | None, about(
        "Number of classes; null for a model without labels, and for a network.")] = UNSET  # fmt: skip
    condition: Annotated[ConditionFacts | UnsetType, about(
        "The conditioning input, which is the last input; absent if there is none.")] = UNSET  # fmt: skip
    compute_dtype: Annotated[str | UnsetType, about("Dtype in which the network computes.")] = UNSET
    precision: Annotated[str | UnsetType, about("Precision of float32 matrix products and convolutions.")] = UNSET
    sampler: Annotated[ExportedSampler | UnsetType | None, about(
        "The sampler; null for a denoiser or network.")] = UNSET  # fmt: skip
    tensors: Annotated[Count | UnsetType, about("Number of tensors.")] = UNSET
    prefixes: Annotated[Sequence[str] | UnsetType, about(
        "Prefixes that were removed from the tensor names in the checkpoint.")] = UNSET  # fmt: skip
    recomputed: Annotated[Sequence[str] | UnsetType, about("Tensors that were computed from their formulas.")] = UNSET
    chosen: Annotated[Sequence[str] | UnsetType, about(
        "Tensors that the conversion combined arithmetically and that the export separated again. The model computes "
        "the same results, but these tensors are not bit-identical to the originals.")] = UNSET  # fmt: skip
    left_out: Annotated[Mapping[str, str] | UnsetType, about(
        "Checkpoint tensors that the file does not contain, each with the reason.")] = UNSET  # fmt: skip
    verified: Annotated[Sequence[GateFacts] | UnsetType, about(
        "The gates that `--verify` ran; absent without this option.")] = UNSET  # fmt: skip
