"""The documents of ``--json`` as types: the output of every command, by its kind."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta, Struct

from wdport.conversion.entries import ConfigEntry, Manifest, Shape
from wdport.declared import Count, Number, Positive, Sha256
from wdport.exporting.facts import ConditionFacts, ProgramFacts
from wdport.parity.recording_form import CheckpointFacts, Environment
from wdport.schemas.verdict import GateFacts, SettingsFacts, VerdictDocument


class OutputFile(TypedDict):
    """A file that was written."""

    name: Annotated[str, Meta(description="Its name, without its path.")]
    sha256: Annotated[Sha256, Meta(description="Its SHA-256.")]
    bytes: Annotated[Count, Meta(description="Its size.")]


class NamedFile(TypedDict):
    """A file that was read, by its hash."""

    name: Annotated[str, Meta(description="Its name.")]
    sha256: Annotated[Sha256, Meta(description="Its SHA-256.")]


class StoredTensor(TypedDict):
    """One tensor or variable."""

    dtype: Annotated[str, Meta(description="Its dtype in the file.")]
    shape: Annotated[Shape, Meta(description="Its shape.")]


class InspectionDocument(TypedDict):
    """What ``wdport inspect --json`` prints: what is in a checkpoint or a converted file."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["inspection"], Meta(description="Kind of the document.")]
    file: Annotated[str, Meta(description="Name of the file or folder, without its path.")]
    what: Annotated[str, Meta(description="What it is, in words, such as `converted model (keras)`.")]
    bytes: Annotated[Count, Meta(description="Its size.")]
    model: Annotated[str, Meta(description=
        "Model family and key layout, in words; or why the file is not recognised; or empty.")]  # fmt: skip
    config: Annotated[dict[str, ConfigEntry], Meta(description=
        "Configuration of the model, by name; empty if unknown.")]  # fmt: skip
    tensors: Annotated[dict[str, StoredTensor], Meta(description=
        "Tensors of a checkpoint or variables of a converted file, by name.")]  # fmt: skip
    built_by: NotRequired[Annotated[str, Meta(description=
        "Function that builds the Keras model, for a converted file of your own model.")]]  # fmt: skip
    source: NotRequired[Annotated[NamedFile, Meta(description="Checkpoint that a converted file was made from.")]]
    mapping: NotRequired[Annotated[NamedFile, Meta(description="Mapping table that it was made with.")]]
    manifest: NotRequired[
        Annotated[str, Meta(description="Whether the manifest beside a converted file agrees, in words.")]
    ]
    files: NotRequired[Annotated[dict[str, str], Meta(description="Files of a checkpoint, by name, with their paths.")]]
    config_json: NotRequired[Annotated[dict[str, object] | None, Meta(description=
        "`config.json` beside a checkpoint; null if there is none.")]]  # fmt: skip
    key: NotRequired[Annotated[str | None, Meta(description=
        "Dotted key of the state_dict; null if the file itself is the state_dict.")]]  # fmt: skip
    prefixes: NotRequired[Annotated[list[str], Meta(description="Prefixes that are removed from every name.")]]
    other_keys: NotRequired[
        Annotated[list[str], Meta(description="Other contents of a checkpoint besides the state_dict.")]
    ]
    ignored: NotRequired[Annotated[dict[str, str], Meta(description=
        "Entries that are not tensors of the model, each with the reason.")]]  # fmt: skip
    not_read: NotRequired[Annotated[list[str], Meta(description="Parts that are not read, in words.")]]
    shared: NotRequired[Annotated[list[list[str]], Meta(description="Names of tensors that share one storage.")]]
    notes: NotRequired[
        Annotated[list[str], Meta(description="What to know of the model, such as a condition that it takes.")]
    ]


class OddValues(TypedDict):
    """Something unusual about the values of tensors; it does not stop a conversion."""

    kind: Annotated[str, Meta(description="Kind of the finding.")]
    level: Annotated[Literal["warning", "note"], Meta(description=
        "`warning` if a fault is likely, `note` if it may be intended.")]  # fmt: skip
    names: Annotated[list[str], Meta(description="The tensors.")]
    count: Annotated[Count, Meta(description="Number of values, channels or tensors that it is about.")]
    total: Annotated[Count, Meta(description="Total number.")]
    text: Annotated[str, Meta(description="The sentence.")]


class OptimizerFacts(TypedDict):
    """A converted optimiser."""

    name: Annotated[str, Meta(description="Name of its file.")]
    sha256: Annotated[Sha256, Meta(description="SHA-256 of the file.")]
    kind: Annotated[Literal["Adam", "AdamW", "SGD"], Meta(description="PyTorch's class.")]
    parameters: Annotated[Count, Meta(description="Number of its parameters.")]
    groups: Annotated[Count, Meta(description="Number of its groups.")]
    steps: Annotated[Count, Meta(description=
        "Largest number of steps of a parameter; 0 for SGD, which does not count them.")]  # fmt: skip
    schedule: Annotated[str, Meta(description="PyTorch's class of the learning-rate schedule; empty for none.")]
    left_out: Annotated[list[str], Meta(description="Parameters whose tensors were dropped.")]


class ConversionDocument(Manifest):
    """What ``wdport convert --json`` prints: the manifest beside the file, and findings on unusual values."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["conversion"], Meta(description="Kind of the document.")]
    values: Annotated[list[OddValues], Meta(description="Findings on unusual values of tensors.")]
    optimizer: Annotated[OptimizerFacts | None, Meta(description=
        "The optimiser's state; null if it was not converted.")]  # fmt: skip


class RecordingDocument(TypedDict):
    """What ``wdport record --json`` prints."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["recording"], Meta(description="Kind of the document.")]
    reference: Annotated[str, Meta(description="Function that builds the PyTorch model, `module:name`.")]
    checkpoint: Annotated[CheckpointFacts, Meta(description="The checkpoint.")]
    output: Annotated[OutputFile, Meta(description="The recording.")]
    recording_format: Annotated[Positive, Meta(description="`schema` of the recording's index.")]
    tensors: Annotated[Count, Meta(description="Number of tensors of the state_dict.")]
    modules: Annotated[list[str], Meta(description="Paths of the modules that were recorded.")]
    repeats: Annotated[bool, Meta(description="Whether a second run gave the same outputs bit for bit.")]
    evaluating: Annotated[bool, Meta(description="Whether the module was in evaluation mode.")]
    notes: Annotated[list[str], Meta(description="What a reader should know, one sentence each.")]
    environment: Annotated[Environment, Meta(description="Where the model was run.")]


class SamplesFile(OutputFile):
    """The file of samples."""

    arrays: Annotated[dict[str, Shape], Meta(description="Shape of every array in it, samples on the first axis.")]


class KnownValues(TypedDict):
    """Values that were given."""

    values: Annotated[Count, Meta(description="Number of given values.")]
    of: Annotated[Count, Meta(description="Total number.")]


class SamplesDocument(TypedDict):
    """What ``wdport sample --json`` prints."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["samples"], Meta(description="Kind of the document.")]
    model: Annotated[str, Meta(description="Name of the converted file.")]
    output: Annotated[SamplesFile, Meta(description="The file of samples.")]
    features: Annotated[list[str], Meta(description=
        "Names of the features, the last axis of every array; empty if the model has none.")]  # fmt: skip
    figures: Annotated[list[str], Meta(description="Names of the figures that were drawn.")]
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
    condition: Annotated[dict[str, str] | None, Meta(description=
        "Condition as given, by the name of the network's input; null if it was called without one.")]  # fmt: skip
    batch: Annotated[Positive, Meta(description="Number of samples in every call.")]
    devices: Annotated[Positive, Meta(description="Number of devices.")]
    processes: Annotated[Positive, Meta(description="Number of processes.")]
    seconds: Annotated[float, Meta(description="Seconds that this run took to draw.")]
    compiling_seconds: Annotated[float, Meta(description="Seconds of them spent on compiling.")]
    rate: Annotated[float | None, Meta(description="Samples per second without compiling; null if unknown.")]


class ScoreEntry(TypedDict):
    """One score of one set of series; smaller is better."""

    mean: Annotated[float, Meta(description="Mean over the repetitions.")]
    std: Annotated[float, Meta(description=
        "Standard deviation over the repetitions, with n - 1 degrees of freedom; 0 for one repetition.")]  # fmt: skip
    values: Annotated[list[float], Meta(description="The score of every repetition.")]


class ScoredSet(TypedDict):
    """A set of series and its scores."""

    name: Annotated[str, Meta(description=
        "Its name: `samples`, `against`, a setting of a sweep, or `real` and `itself` for the floors.")]  # fmt: skip
    count: Annotated[Count, Meta(description="Series of it that every repetition compares with as many real ones.")]
    network_calls: Annotated[Count | None, Meta(description=
        "Calls of the network for every sample; null for a set that was read.")]  # fmt: skip
    seconds: Annotated[float | None, Meta(description=
        "Seconds that sampling took, without compiling; null for a set that was read.")]  # fmt: skip
    scores: Annotated[dict[str, ScoreEntry], Meta(description="Scores by the name of the metric.")]


class UnscoredSetting(TypedDict):
    """A setting of a sweep whose samples cannot be scored."""

    name: Annotated[str, Meta(description="Its name.")]
    reason: Annotated[str, Meta(description="Why they cannot.")]


class EvaluationDocument(TypedDict):
    """What ``wdport evaluate --json`` prints."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["evaluation"], Meta(description="Kind of the document.")]
    samples: Annotated[str, Meta(description="Name of the file of samples, or of the converted model.")]
    data: Annotated[NamedFile, Meta(description="The real data.")]
    windows: Annotated[Count, Meta(description="Windows of the real data.")]
    shape: Annotated[Shape, Meta(description="Steps and features of a series.")]
    features: Annotated[list[str], Meta(description="Names of the features; empty if the data have none.")]
    repeats: Annotated[Positive, Meta(description="Repetitions of every score.")]
    seed: Annotated[Count, Meta(description="Random seed.")]
    floor: Annotated[str | None, Meta(description=
        "Name of the set that is the floor; null if the data are too few for one.")]  # fmt: skip
    cheapest: Annotated[str | None, Meta(description=
        "The setting of a sweep with the fewest network calls that is as good as the one with the most; null if there "
        "is one setting, or one repetition.")]  # fmt: skip
    sets: Annotated[list[ScoredSet], Meta(description="All sets of series, the floor first.")]
    failed: Annotated[list[UnscoredSetting], Meta(description="Settings of a sweep whose samples cannot be scored.")]


class TrainingDocument(TypedDict):
    """What ``wdport train --json`` prints."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["training"], Meta(description="Kind of the document.")]
    model: Annotated[str, Meta(description=
        "Name of the converted file, the checkpoint, or the configuration of a new model.")]  # fmt: skip
    data: Annotated[NamedFile, Meta(description="The data.")]
    steps: Annotated[Count, Meta(description="Steps of the whole run.")]
    resumed_optimizer: Annotated[str | None, Meta(description=
        "Name of the file of the optimizer that was resumed, which may be the checkpoint; null for a new "
        "one.")]  # fmt: skip
    epochs: Annotated[list[dict[str, float]], Meta(description=
        "Metrics of every epoch by name: epoch, steps, loss, the loss of every part, learning_rate and "
        "seconds.")]  # fmt: skip
    outputs: Annotated[list[OutputFile], Meta(description="The files of the run.")]
    seconds: Annotated[float, Meta(description="Seconds that it took, with compiling.")]


class CodedDocument(TypedDict):
    """What ``wdport encode --json`` and ``wdport decode --json`` print."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["coded"], Meta(description="Kind of the document.")]
    model: Annotated[str, Meta(description="Name of the converted file.")]
    direction: Annotated[Literal["encode", "decode"], Meta(description="What was done.")]
    input: Annotated[NamedFile, Meta(description="The file that was read.")]
    output: Annotated[OutputFile, Meta(description="The file that was written.")]
    latents: Annotated[Shape, Meta(description="Shape of the latents: videos, frames, height, width, channels.")]
    video: Annotated[Shape, Meta(description="Shape of the video: videos, frames, height, width, channels.")]
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


class GeneratedText(TypedDict):
    """One completed text."""

    tokens: Annotated[list[Count], Meta(description="Its tokens.")]
    steps: Annotated[list[int], Meta(description=
        "For every token the step that last set it, from 0; -1 for a given one.")]  # fmt: skip
    text: Annotated[str | None, Meta(description="The text without special tokens; null without a tokenizer.")]


class GeneratedDocument(TypedDict):
    """What ``wdport generate --json`` prints, and ``-o NAME.json`` holds."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["generated"], Meta(description="Kind of the document.")]
    model: Annotated[str, Meta(description="Name of the converted file.")]
    prompts: Annotated[NamedFile | None, Meta(description=
        "The file of the prompts; null if they were given with `--text`.")]  # fmt: skip
    output: Annotated[OutputFile | None, Meta(description=
        "The file that was written; null if none was, and in that file itself.")]  # fmt: skip
    texts: Annotated[list[GeneratedText], Meta(description="The texts, in the order of the prompts.")]
    generated: Annotated[Count, Meta(description="Number of generated tokens of all texts.")]
    network_calls: Annotated[Count, Meta(description="Calls of the network for all texts.")]
    mask: Annotated[Count, Meta(description="The mask token.")]
    length: Annotated[Count, Meta(description="Tokens to write behind every prompt.")]
    block_length: Annotated[Positive | None, Meta(description="Wanted tokens in a block; null for the default.")]
    steps: Annotated[Positive | None, Meta(description="Steps of a block; null for one for every token.")]
    threshold: Annotated[float, Meta(description="Probability above which tokens are kept earlier.")]
    edit: Annotated[float | None, Meta(description=
        "Probability above which a generated token is replaced; null if none is.")]  # fmt: skip
    temperature: Annotated[float, Meta(description="Temperature; 0 takes the most probable token.")]
    top_k: Annotated[Positive | None, Meta(description="Number of tokens that are drawn from; null for all.")]
    top_p: Annotated[float | None, Meta(description="Probability of the tokens that are drawn from; null for all.")]
    end: Annotated[Count | None, Meta(description="Token that ends a text; null for none.")]
    forbid: Annotated[list[Count], Meta(description="Tokens that are never generated, beside the mask token.")]
    seed: Annotated[Count, Meta(description="Random seed.")]
    dtype: Annotated[str, Meta(description="Keras dtype policy of the model.")]
    seconds: Annotated[float, Meta(description="Seconds that it took, with compiling.")]


class ExportedSampler(TypedDict):
    """The sampler in an exported file."""

    name: Annotated[str, Meta(description="Name of the sampler.")]
    network_calls: Annotated[Count, Meta(description="Calls of the network for every sample.")]
    eta: Annotated[float, Meta(description="Share of noise that a DDIM step adds.")]


class ExportDocument(TypedDict):
    """What ``wdport export --json`` prints. The fields from ``what`` on are for a StableHLO file, those from
    ``tensors`` on for a PyTorch file."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["export"], Meta(description="Kind of the document.")]
    model: Annotated[str, Meta(description="Name of the converted file.")]
    to: Annotated[Literal["stablehlo", "torch"], Meta(description="What was written.")]
    output: Annotated[OutputFile, Meta(description="The file that was written.")]
    what: NotRequired[
        Annotated[Literal["denoiser", "sampler", "network"], Meta(description="What the programs compute.")]
    ]
    platforms: NotRequired[Annotated[list[str], Meta(description="Platforms that it runs on.")]]
    batch: NotRequired[
        Annotated[Positive | None, Meta(description="Number of samples of every call; null for any number.")]
    ]
    arrays: NotRequired[Annotated[dict[str, Shape], Meta(description=
        "Shape of one sample of every array that it takes or gives; absent for a network.")]]  # fmt: skip
    programs: NotRequired[Annotated[dict[str, ProgramFacts], Meta(description=
        "The programs of a network by name, with their inputs and outputs; absent for a denoiser or "
        "sampler.")]]  # fmt: skip
    classes: NotRequired[Annotated[Positive | None, Meta(description=
        "Number of classes; null for a model without labels, and for a network.")]]  # fmt: skip
    condition: NotRequired[Annotated[ConditionFacts, Meta(description=
        "The further input that it takes last; absent if it takes none.")]]  # fmt: skip
    compute_dtype: NotRequired[Annotated[str, Meta(description="Dtype that the network computes in.")]]
    precision: NotRequired[Annotated[str, Meta(description="Precision of float32 products.")]]
    sampler: NotRequired[
        Annotated[ExportedSampler | None, Meta(description="The sampler; null for a denoiser or network.")]
    ]
    tensors: NotRequired[Annotated[Count, Meta(description="Number of tensors.")]]
    prefixes: NotRequired[Annotated[list[str], Meta(description="Prefixes of the checkpoint that were left off.")]]
    recomputed: NotRequired[Annotated[list[str], Meta(description="Tensors that were computed from their formulas.")]]
    chosen: NotRequired[Annotated[list[str], Meta(description=
        "Tensors that the conversion had combined by arithmetic, separated again by choice: the function is the same, "
        "the bits are not.")]]  # fmt: skip
    left_out: NotRequired[Annotated[dict[str, str], Meta(description=
        "Tensors of the checkpoint that the file lacks, each with the reason.")]]  # fmt: skip
    verified: NotRequired[Annotated[list[GateFacts], Meta(description="The gates of `--verify`; absent without it.")]]


class VerificationDocument(TypedDict):
    """What ``wdport verify`` of an exported file prints with ``--json``, and ``wdport export --verify`` if it fails."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["verification"], Meta(description="Kind of the document.")]
    passed: Annotated[bool, Meta(description="Whether everything was compared and agrees.")]
    complete: Annotated[bool, Meta(description="Whether everything that had to be compared was compared.")]
    exit_code: Annotated[Literal[0, 1, 6], Meta(description="Exit code of the command.")]
    gates: Annotated[list[GateFacts], Meta(description="The gates.")]
    model: Annotated[str, Meta(description="Path of the converted file.")]
    exported: Annotated[str, Meta(description="Path of the exported file.")]
    digests: Annotated[dict[str, Sha256], Meta(description="SHA-256 of both files, by these names.")]
    inputs: Annotated[list[str], Meta(description="The calls that were compared, in words.")]
    ratios: Annotated[dict[str, Number], Meta(description=
        "For every program the largest error of its outputs, relative to float64 and as a multiple of the model's "
        "own.")]  # fmt: skip
    members: Annotated[dict[str, Sha256], Meta(description="SHA-256 of the weights and programs of a StableHLO file.")]
    environment: Annotated[dict[str, str], Meta(description="Versions of the libraries, and the device.")]
    seconds: Annotated[float, Meta(description="Seconds that it took, with compiling.")]


class PlaceFacts(TypedDict):
    """A layer in both models; either name may be empty."""

    keras: Annotated[str, Meta(description="Path of the Keras layer.")]
    torch: Annotated[str, Meta(description="Path of the PyTorch module.")]


class SuggestionDocument(TypedDict):
    """What ``wdport map suggest --json`` prints."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["suggestion"], Meta(description="Kind of the document.")]
    found: Annotated[bool, Meta(description="Whether a table was found for the whole model.")]
    proved: Annotated[bool, Meta(description="Whether the table was proved by `verify`.")]
    layers: Annotated[Count, Meta(description="Number of layers.")]
    passes: Annotated[Count, Meta(description="Number of passes through the models.")]
    seconds: Annotated[float, Meta(description="Seconds in all.")]
    forward_seconds: Annotated[float, Meta(description="Seconds of them in the models.")]
    doubts: Annotated[list[str], Meta(description="What is uncertain, one sentence each.")]
    notes: Annotated[list[str], Meta(description="What a reader should know, one sentence each.")]
    rows: Annotated[list[dict[str, object]], Meta(description=
        "Rows of the table, as a mapping table has them under `layers`, `tensors` and `tied`.")]  # fmt: skip
    failure: Annotated[str, Meta(description="Why the table is not proved; empty if it is, or if no proof was tried.")]
    verdict: Annotated[VerdictDocument | None, Meta(description="The proof; null if there is none.")]
    last_alike: Annotated[PlaceFacts | None, Meta(description="The last layer at which the models agree.")]
    first_unlike: Annotated[PlaceFacts | None, Meta(description="The first layer that does not agree.")]
    causes: Annotated[list[str], Meta(description="Probable causes of the difference, the most likely first.")]
    what: NotRequired[Annotated[str, Meta(description="What is wrong at the first layer that does not agree.")]]
    wanted: NotRequired[Annotated[str, Meta(description="What its input or output should be; empty if unknown.")]]


class TensorFlow(Struct, frozen=True, rename={"from_": "from"}):
    """An input or output tensor of a step."""

    from_: Annotated[str, Meta(description=
        "Its source, from the view of the enclosing module: a step, an argument or a parameter.")]  # fmt: skip
    argument: Annotated[str | None, Meta(description="Parameter of the step that receives it.")]
    axes: Annotated[str | None, Meta(description="Its axes in PyTorch's order, such as `b c h w`.")]
    sizes: Annotated[list[int | str], Meta(description="Their sizes; `b` for the batch size.")]
    kind: Annotated[str, Meta(description="`float`, `int`, `bool` or `complex`.")]


class KerasCallFacts(TypedDict):
    """A layer or function of Keras."""

    name: Annotated[str, Meta(description="Its name, such as `layers.Conv2D`.")]
    arguments: Annotated[dict[str, object], Meta(description="Its arguments, by name.")]


class DefaultFacts(TypedDict):
    """An argument whose default in Keras differs from PyTorch's."""

    layer: Annotated[str, Meta(description="The Keras layer.")]
    argument: Annotated[str, Meta(description="Its argument.")]
    keras: Annotated[object, Meta(description="Default of the argument.")]
    setting: Annotated[str, Meta(description="PyTorch's hyper-parameter.")]
    torch: Annotated[object, Meta(description="Default of the hyper-parameter.")]
    needed: Annotated[object, Meta(description="Required value of the argument.")]


class OutlineStep(TypedDict):
    """One step of the model."""

    what: Annotated[Literal["layer", "function", "module"], Meta(description=
        "A layer, a function of torch between layers, or a module that contains steps.")]  # fmt: skip
    number: Annotated[Positive | None, Meta(description="Position in call order; null for a module.")]
    name: Annotated[str, Meta(description="Name within the enclosing module.")]
    path: Annotated[str | None, Meta(description="Path in the model; null for a function.")]
    type: Annotated[str, Meta(description="Class or function, by its full name.")]
    kind: Annotated[str | None, Meta(description="Layer kind for a row of a mapping table.")]
    settings: Annotated[dict[str, object], Meta(description="Hyper-parameters, or arguments that are not tensors.")]
    torch: Annotated[str, Meta(description="The step in PyTorch, in short.")]
    inputs: Annotated[list[TensorFlow], Meta(description="Input tensors.")]
    outputs: Annotated[list[TensorFlow], Meta(description="Output tensors.")]
    keras: Annotated[list[KerasCallFacts], Meta(description="Calls of Keras that compute the same, in order.")]
    keras_text: Annotated[str | None, Meta(description="The same in short, or the code that has to be written.")]
    defaults: Annotated[list[DefaultFacts], Meta(description=
        "Arguments that must be stated, since their defaults differ.")]  # fmt: skip
    notes: Annotated[list[str], Meta(description="Other differences.")]
    parameters: Annotated[dict[str, Shape], Meta(description=
        "Shapes of the module's own tensors that its code reads directly.")]  # fmt: skip
    steps: Annotated[list[OutlineStep], Meta(description="Steps inside a module.")]


class OutlineDocument(TypedDict):
    """What ``wdport map outline --json`` prints: what a PyTorch model computes, step by step."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["outline"], Meta(description="Kind of the document.")]
    model: Annotated[str, Meta(description="Function that builds the model, `module:name`.")]
    parameters: Annotated[Count, Meta(description="Number of its parameters.")]
    batch: Annotated[Positive, Meta(description="Batch size of the run.")]
    versions: Annotated[dict[str, str], Meta(description="Versions of torch and Keras.")]
    notes: Annotated[list[str], Meta(description="What a reader should know, one sentence each.")]
    uncalled: Annotated[dict[str, str], Meta(description=
        "Layers that the run did not call, by path, with their constructors.")]  # fmt: skip
    inputs: Annotated[list[TensorFlow], Meta(description="Inputs of the model.")]
    outputs: Annotated[list[TensorFlow], Meta(description="Outputs of the model.")]
    steps: Annotated[list[OutlineStep], Meta(description="Steps, in call order.")]


class RemarkFacts(TypedDict):
    """A remark on one line of a mapping table."""

    level: Annotated[Literal["error", "warning", "note"], Meta(description=
        "`error`: no checkpoint can fit. `warning`: it may be correct.")]  # fmt: skip
    file: Annotated[str, Meta(description="The table, or an included one.")]
    line: Annotated[Count, Meta(description="Line; 0 for the table as a whole.")]
    what: Annotated[str, Meta(description="The sentence.")]


class ClaimFacts(TypedDict):
    """A row and the tensors that it claims."""

    file: Annotated[str, Meta(description="File of the row.")]
    line: Annotated[Count, Meta(description="Line of the row.")]
    torch: Annotated[str, Meta(description="Patterns of the names that it matches.")]
    becomes: Annotated[str, Meta(description="What it does with them, in short.")]
    when: Annotated[str | None, Meta(description="Feature that it needs.")]
    tensors: Annotated[list[str], Meta(description="Names that it matched.")]


class CoverageFacts(TypedDict):
    """Which row claims which tensor."""

    rows: Annotated[list[ClaimFacts], Meta(description="Every row.")]
    unclaimed: Annotated[list[str], Meta(description="Tensors that no row claims.")]
    doubled: Annotated[dict[str, list[str]], Meta(description=
        "Tensors that several rows claim, each with the places of the rows.")]  # fmt: skip
    idle: Annotated[list[str], Meta(description="Rows that match nothing, by place.")]
    incomplete: Annotated[list[str], Meta(description="Rows of which only some names exist, in words.")]


class CheckDocument(TypedDict):
    """What ``wdport map check --json`` prints."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["check"], Meta(description="Kind of the document.")]
    table: Annotated[str, Meta(description="Path of the table.")]
    family: Annotated[str, Meta(description="Model family.")]
    variant: Annotated[str, Meta(description="Key layout; empty if the table names none.")]
    sound: Annotated[bool, Meta(description="Whether the table has no errors: the exit code is then 0, otherwise 4.")]
    faults: Annotated[list[str], Meta(description="Reasons for refusing a conversion, one sentence each.")]
    remarks: Annotated[list[RemarkFacts], Meta(description="Remarks on the table itself.")]
    checkpoint: Annotated[str | None, Meta(description="Path of the checkpoint; null without one.")]
    coverage: Annotated[CoverageFacts | None, Meta(description=
        "Which row claims which tensor; null without a checkpoint.")]  # fmt: skip
    plan: Annotated[dict[str, Count] | None, Meta(description=
        "Numbers of tensors that are used, checked, dropped and tied, and of variables; null if there is no "
        "plan.")]  # fmt: skip
    misfits: Annotated[list[str], Meta(description="Errors of the conversion plan, one sentence each.")]
    notes: Annotated[list[str], Meta(description="What a reader should know, one sentence each.")]
    values: Annotated[list[OddValues] | None, Meta(description="Findings on unusual values; null without `--values`.")]
    settings: Annotated[SettingsFacts | None, Meta(description=
        "Hyper-parameters that differ; null without `--settings`.")]  # fmt: skip


class EndFacts(TypedDict):
    """A tensor or a variable."""

    name: Annotated[str, Meta(description="Its name.")]
    shape: Annotated[Shape | None, Meta(description="Its shape; null if unknown.")]
    dtype: Annotated[str | None, Meta(description="Its dtype; null if unknown.")]


class RouteFacts(TypedDict):
    """The destination of tensors, or the source of variables."""

    fate: Annotated[Literal["moved", "checked", "dropped", "tied", "ignored"], Meta(description=
        "Whether the tensors fill variables, or how else they are used.")]  # fmt: skip
    sources: Annotated[list[EndFacts], Meta(description="The tensors, in the order of the rule.")]
    targets: Annotated[list[EndFacts], Meta(description="The variables.")]
    rule: Annotated[str | None, Meta(description="Name of the rule; null unless tensors are moved.")]
    axes: Annotated[str | None, Meta(description="The rule written out.")]
    inverse: Annotated[str | None, Meta(description="Its inverse.")]
    sizes: Annotated[dict[str, Count], Meta(description=
        "Size of every axis of the rule; empty if the shapes do not determine them.")]  # fmt: skip
    combine: Annotated[str, Meta(description="Arithmetic before the rule; empty for none.")]
    table: Annotated[str | None, Meta(description="File of the row.")]
    line: Annotated[Positive | None, Meta(description="Line of the row.")]
    reason: Annotated[str | None, Meta(description="The constant, the reason for dropping, or the other tensor.")]
    notes: Annotated[list[str], Meta(description="What a reader should know, one sentence each.")]


class ExplanationDocument(TypedDict):
    """What ``wdport map explain --json`` prints."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["explanation"], Meta(description="Kind of the document.")]
    name: Annotated[str, Meta(description="The tensor or variable that was asked for.")]
    file: Annotated[str, Meta(description="Name of the file.")]
    prefixes: Annotated[list[str], Meta(description="Prefixes that were taken off every name.")]
    routes: Annotated[list[RouteFacts], Meta(description="Where it goes, or what it is made of.")]


class RenamedFacts(TypedDict):
    """A name that was probably renamed."""

    a: Annotated[str, Meta(description="Its name in A.")]
    b: Annotated[str, Meta(description="Its name in B.")]
    of: Annotated[tuple[int, int], Meta(description=
        "Numbers of names with the same properties that are only in A and only in B.")]  # fmt: skip


class DifferenceDocument(TypedDict):
    """What ``wdport map diff --json`` prints: how B differs from A."""

    schema: Annotated[Literal[2], Meta(description="Format of the document.")]
    kind: Annotated[Literal["difference"], Meta(description="Kind of the document.")]
    same: Annotated[bool, Meta(description="Whether the two do not differ.")]
    alike: Annotated[Count, Meta(description="Number of names that have the same properties in both.")]
    facts: Annotated[dict[str, tuple[str, str]], Meta(description=
        "Properties of the whole that differ, in A and in B; \"\" for a missing one.")]  # fmt: skip
    prefix: Annotated[tuple[str, str] | None, Meta(description=
        "The common prefix of the names in A, and the prefix that replaces it in B; null if it did not "
        "change.")]  # fmt: skip
    only_a: Annotated[dict[str, dict[str, str | Shape]], Meta(description=
        "Names that B lacks, with their properties: a tensor's shape and dtype, or what a row of a table "
        "does.")]  # fmt: skip
    only_b: Annotated[dict[str, dict[str, str | Shape]], Meta(description="Names that A lacks, with their properties.")]
    changed: Annotated[dict[str, dict[str, tuple[str | Shape, str | Shape]]], Meta(description=
        "By name in B, the properties that differ, in A and in B; \"\" for a missing one.")]  # fmt: skip
    renamed: Annotated[list[RenamedFacts], Meta(description="Names that were probably renamed.")]


class FaultsDocument(TypedDict):
    """What a command with ``--json`` prints if it ends with several faults, such as those of a mapping table."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["faults"], Meta(description="Kind of the document.")]
    error: Annotated[str, Meta(description="The error on standard error, which names the first.")]
    code: Annotated[Count, Meta(description="The exit code.")]
    faults: Annotated[list[str], Meta(description="Every fault, for people.")]


class KillFacts(TypedDict):
    """One known fault and its outcome."""

    example: Annotated[str, Meta(description="Model with the fault.")]
    mutant: Annotated[str, Meta(description="The fault.")]
    site: Annotated[str, Meta(description="Layer with the fault.")]
    gate: Annotated[str, Meta(description="Letter of the first gate that found it; empty if none did.")]
    expected: Annotated[str, Meta(description="Letter of the gate that should find it.")]
    sites: Annotated[list[str], Meta(description="Layers that were reported as faulty.")]
    exact: Annotated[bool, Meta(description="Whether they are the right ones.")]
    margin: Annotated[Number, Meta(description="Largest error over its bound, in decades.")]
    causes: Annotated[list[str], Meta(description="The diagnosis.")]
    equivalent: Annotated[str, Meta(description=
        "Why the fault does not change the result, if it is an equivalent: it must then survive.")]  # fmt: skip
    inputs: Annotated[str, Meta(description="Case that revealed it.")]
    sought: Annotated[bool, Meta(description="Whether its cause was looked for.")]
    facts: Annotated[str, Meta(description="Text of a correct diagnosis, if it does not name the fault.")]
    ratio: Annotated[Number | None, Meta(description=
        "Largest isolated float32 error as a multiple of the reference's; null if it was not measured.")]  # fmt: skip
    single: Annotated[str | None, Meta(description=
        "Letter of the gate that finds it in float32 only; null if that was not measured.")]  # fmt: skip
    rejected: Annotated[list[str] | None, Meta(description=
        "Fixed tolerances that reject its output; null if that was not measured.")]  # fmt: skip


class GroupFacts(TypedDict):
    """Faults of one kind."""

    gate: Annotated[str, Meta(description="Letter of the gate for them; empty if there are several.")]
    name: Annotated[str, Meta(description="The kind, in words.")]
    kills: Annotated[list[KillFacts], Meta(description="Their outcomes.")]


class AlarmFacts(TypedDict):
    """A gate that fails a correct port."""

    gate: Annotated[str, Meta(description="Letter of the gate.")]
    place: Annotated[str, Meta(description="Where.")]


class VariantFacts(TypedDict):
    """One correct port, or one correct way to run it."""

    example: Annotated[str, Meta(description="Model.")]
    name: Annotated[str, Meta(description="What was changed.")]
    logic: Annotated[Number | None, Meta(description="Largest isolated float64 error; null if it was not measured.")]
    ratio: Annotated[Number | None, Meta(description=
        "Largest isolated float32 error as a multiple of the reference's; null if it was not measured.")]  # fmt: skip
    alarms: Annotated[list[AlarmFacts], Meta(description="Gates that fail: every one is a false alarm.")]
    rejected: Annotated[list[str] | None, Meta(description=
        "Fixed tolerances that reject its output; null if that was not measured.")]  # fmt: skip
    why: Annotated[str, Meta(description="Why it is correct, if it is another way to compute the same.")]


class RuleFacts(TypedDict):
    """A rule for accepting a port, and how well it separates faults from correct ports."""

    name: Annotated[str, Meta(description="The rule.")]
    killed: Annotated[Count, Meta(description="Faults that it rejects.")]
    faults: Annotated[Count, Meta(description="Faults in all.")]
    rejected: Annotated[Count, Meta(description="Correct ports that it rejects.")]
    ports: Annotated[Count, Meta(description="Correct ports in all.")]


class SelftestDetails(TypedDict):
    """Every fault and every variant."""

    groups: Annotated[list[GroupFacts], Meta(description="Faults, by kind.")]
    variants: Annotated[list[VariantFacts], Meta(description="Correct ports.")]
    quick: Annotated[bool, Meta(description="Whether only a few faults were tried.")]
    causes: Annotated[bool, Meta(description="Whether causes had to be looked for.")]
    bounds: Annotated[dict[str, float], Meta(description="Bounds in force, by name.")]
    environment: Annotated[dict[str, str], Meta(description="Versions and the machine.")]
    seconds: Annotated[float, Meta(description="Seconds in all.")]


class SelftestDocument(TypedDict):
    """What ``wdport selftest --json`` prints."""

    schema: Annotated[Literal[1], Meta(description="Format of the document.")]
    kind: Annotated[Literal["selftest"], Meta(description="Kind of the document.")]
    passed: Annotated[bool, Meta(description="Whether the self-test passed.")]
    exit_code: Annotated[Literal[0, 1, 6], Meta(description="0 passed, 1 failed, 6 nothing was run.")]
    faults: Annotated[Count, Meta(description="Number of faults that change the result.")]
    killed: Annotated[Count, Meta(description="Number of them that a gate found.")]
    right: Annotated[Count, Meta(description="Number of them that the right gate found at the right place.")]
    causes_sought: Annotated[Count, Meta(description="Number of faults whose cause was looked for.")]
    causes_right: Annotated[Count, Meta(description="Number of correct causes.")]
    causes_wrong: Annotated[Count, Meta(description="Number of wrong causes.")]
    variants: Annotated[Count, Meta(description="Correct ports.")]
    false_alarms: Annotated[Count, Meta(description="Number of them that fail.")]
    rules: Annotated[list[RuleFacts], Meta(description="Rules for accepting a port, compared.")]
    details: Annotated[SelftestDetails, Meta(description="Every fault and every variant.")]
