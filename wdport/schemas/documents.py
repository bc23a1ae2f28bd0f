"""The documents of ``--json`` as types: the output of every command, by its kind."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from wdport.conversion.entries import ConfigEntry, Manifest, Shape
from wdport.declared import Count, Number, Positive, Sha256
from wdport.exporting.facts import ConditionFacts, ProgramFacts
from wdport.parity.recording_form import CheckpointFacts, Environment
from wdport.schemas.verdict import GateFacts, SettingsFacts, VerdictDocument


class OutputFile(TypedDict):
    """A file that was written."""

    name: str
    """Its name, without its path."""
    sha256: Sha256
    """Its SHA-256."""
    bytes: Count
    """Its size."""


class NamedFile(TypedDict):
    """A file that was read, by its hash."""

    name: str
    """Its name."""
    sha256: Sha256
    """Its SHA-256."""


class StoredTensor(TypedDict):
    """One tensor or variable."""

    dtype: str
    """Its dtype in the file."""
    shape: Shape
    """Its shape."""


class InspectionDocument(TypedDict):
    """What ``wdport inspect --json`` prints: what is in a checkpoint or a converted file."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["inspection"]
    """Kind of the document."""
    file: str
    """Name of the file or folder, without its path."""
    what: str
    """What it is, in words, such as ``converted model (keras)``."""
    bytes: Count
    """Its size."""
    model: str
    """Model family and key layout, in words; or why the file is not recognised; or empty."""
    config: dict[str, ConfigEntry]
    """Configuration of the model, by name; empty if unknown."""
    tensors: dict[str, StoredTensor]
    """Tensors of a checkpoint or variables of a converted file, by name."""
    built_by: NotRequired[str]
    """Function that builds the Keras model, for a converted file of your own model."""
    source: NotRequired[NamedFile]
    """Checkpoint that a converted file was made from."""
    mapping: NotRequired[NamedFile]
    """Mapping table that it was made with."""
    manifest: NotRequired[str]
    """Whether the manifest beside a converted file agrees, in words."""
    files: NotRequired[dict[str, str]]
    """Files of a checkpoint, by name, with their paths."""
    config_json: NotRequired[dict[str, object] | None]
    """``config.json`` beside a checkpoint; null if there is none."""
    key: NotRequired[str | None]
    """Dotted key of the state_dict; null if the file itself is the state_dict."""
    prefixes: NotRequired[list[str]]
    """Prefixes that are removed from every name."""
    other_keys: NotRequired[list[str]]
    """Other contents of a checkpoint besides the state_dict."""
    ignored: NotRequired[dict[str, str]]
    """Entries that are not tensors of the model, each with the reason."""
    not_read: NotRequired[list[str]]
    """Parts that are not read, in words."""
    shared: NotRequired[list[list[str]]]
    """Names of tensors that share one storage."""
    notes: NotRequired[list[str]]
    """What to know of the model, such as a condition that it takes."""


class OddValues(TypedDict):
    """Something unusual about the values of tensors; it does not stop a conversion."""

    kind: str
    """Kind of the finding."""
    level: Literal["warning", "note"]
    """``warning`` if a fault is likely, ``note`` if it may be intended."""
    names: list[str]
    """The tensors."""
    count: Count
    """Number of values, channels or tensors that it is about."""
    total: Count
    """Total number."""
    text: str
    """The sentence."""


class OptimizerFacts(TypedDict):
    """A converted optimiser."""

    name: str
    """Name of its file."""
    sha256: Sha256
    """SHA-256 of the file."""
    kind: Literal["Adam", "AdamW", "SGD"]
    """PyTorch's class."""
    parameters: Count
    """Number of its parameters."""
    groups: Count
    """Number of its groups."""
    steps: Count
    """Largest number of steps of a parameter; 0 for SGD, which does not count them."""
    schedule: str
    """PyTorch's class of the learning-rate schedule; empty for none."""
    left_out: list[str]
    """Parameters whose tensors were dropped."""


class ConversionDocument(Manifest):
    """What ``wdport convert --json`` prints: the manifest beside the file, and findings on unusual values."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["conversion"]
    """Kind of the document."""
    values: list[OddValues]
    """Findings on unusual values of tensors."""
    optimizer: OptimizerFacts | None
    """The optimiser's state; null if it was not converted."""


class RecordingDocument(TypedDict):
    """What ``wdport record --json`` prints."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["recording"]
    """Kind of the document."""
    reference: str
    """Function that builds the PyTorch model, ``module:name``."""
    checkpoint: CheckpointFacts
    """The checkpoint."""
    output: OutputFile
    """The recording."""
    recording_format: Positive
    """``schema`` of the recording's index."""
    tensors: Count
    """Number of tensors of the state_dict."""
    modules: list[str]
    """Paths of the modules that were recorded."""
    repeats: bool
    """Whether a second run gave the same outputs bit for bit."""
    evaluating: bool
    """Whether the module was in evaluation mode."""
    notes: list[str]
    """What a reader should know, one sentence each."""
    environment: Environment
    """Where the model was run."""


class SamplesFile(OutputFile):
    """The file of samples."""

    arrays: dict[str, Shape]
    """Shape of every array in it, samples on the first axis."""


class KnownValues(TypedDict):
    """Values that were given."""

    values: Count
    """Number of given values."""
    of: Count
    """Total number."""


class SamplesDocument(TypedDict):
    """What ``wdport sample --json`` prints."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["samples"]
    """Kind of the document."""
    model: str
    """Name of the converted file."""
    output: SamplesFile
    """The file of samples."""
    features: list[str]
    """Names of the features, the last axis of every array; empty if the model has none."""
    figures: list[str]
    """Names of the figures that were drawn."""
    count: Count
    """Number of samples."""
    already: Count
    """Number of them that an interrupted run had drawn before."""
    not_finite: Count
    """Number of samples with a value that is not finite."""
    sampler: str
    """Name of the sampler."""
    network_calls: Count
    """Calls of the network for every sample."""
    eta: float
    """Share of noise that a DDIM step adds."""
    seed: Count
    """Random seed. It and the number of a sample determine the sample."""
    dtype: str
    """Dtype that the network computes in."""
    units: str | None
    """Units of decoded samples, in words; null if samples are not decoded."""
    not_decoded: str | None
    """Why samples are not decoded; null if they are."""
    known: KnownValues | None
    """Values that were given with ``--known``; null if none were."""
    labels: str | None
    """Class labels as given; null for a model without classes."""
    condition: dict[str, str] | None
    """Condition as given, by the name of the network's input; null if it was called without one."""
    batch: Positive
    """Number of samples in every call."""
    devices: Positive
    """Number of devices."""
    processes: Positive
    """Number of processes."""
    seconds: float
    """Seconds that this run took to draw."""
    compiling_seconds: float
    """Seconds of them spent on compiling."""
    rate: float | None
    """Samples per second without compiling; null if unknown."""


class ScoreEntry(TypedDict):
    """One score of one set of series; smaller is better."""

    mean: float
    """Mean over the repetitions."""
    std: float
    """Standard deviation over the repetitions, with n - 1 degrees of freedom; 0 for one repetition."""
    values: list[float]
    """The score of every repetition."""


class ScoredSet(TypedDict):
    """A set of series and its scores."""

    name: str
    """Its name: ``samples``, ``against``, a setting of a sweep, or ``real`` and ``itself`` for the floors."""
    count: Count
    """Series of it that every repetition compares with as many real ones."""
    network_calls: Count | None
    """Calls of the network for every sample; null for a set that was read."""
    seconds: float | None
    """Seconds that sampling took, without compiling; null for a set that was read."""
    scores: dict[str, ScoreEntry]
    """Scores by the name of the metric."""


class UnscoredSetting(TypedDict):
    """A setting of a sweep whose samples cannot be scored."""

    name: str
    """Its name."""
    reason: str
    """Why they cannot."""


class EvaluationDocument(TypedDict):
    """What ``wdport evaluate --json`` prints."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["evaluation"]
    """Kind of the document."""
    samples: str
    """Name of the file of samples, or of the converted model."""
    data: NamedFile
    """The real data."""
    windows: Count
    """Windows of the real data."""
    shape: Shape
    """Steps and features of a series."""
    features: list[str]
    """Names of the features; empty if the data have none."""
    repeats: Positive
    """Repetitions of every score."""
    seed: Count
    """Random seed."""
    floor: str | None
    """Name of the set that is the floor; null if the data are too few for one."""
    cheapest: str | None
    """The setting of a sweep with the fewest network calls that is as good as the one with the most; null if there is
    one setting, or one repetition."""
    sets: list[ScoredSet]
    """All sets of series, the floor first."""
    failed: list[UnscoredSetting]
    """Settings of a sweep whose samples cannot be scored."""


class TrainingDocument(TypedDict):
    """What ``wdport train --json`` prints."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["training"]
    """Kind of the document."""
    model: str
    """Name of the converted file, the checkpoint, or the configuration of a new model."""
    data: NamedFile
    """The data."""
    steps: Count
    """Steps of the whole run."""
    resumed_optimizer: str | None
    """Name of the file of the optimizer that was resumed, which may be the checkpoint; null for a new one."""
    epochs: list[dict[str, float]]
    """Metrics of every epoch by name: epoch, steps, loss, the loss of every part, learning_rate and seconds."""
    outputs: list[OutputFile]
    """The files of the run."""
    seconds: float
    """Seconds that it took, with compiling."""


class CodedDocument(TypedDict):
    """What ``wdport encode --json`` and ``wdport decode --json`` print."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["coded"]
    """Kind of the document."""
    model: str
    """Name of the converted file."""
    direction: Literal["encode", "decode"]
    """What was done."""
    input: NamedFile
    """The file that was read."""
    output: OutputFile
    """The file that was written."""
    latents: Shape
    """Shape of the latents: videos, frames, height, width, channels."""
    video: Shape
    """Shape of the video: videos, frames, height, width, channels."""
    values: Literal["float32", "uint8"]
    """Type of the written values."""
    normalised: bool
    """Whether the latents are normalised by the model's mean and standard deviation."""
    truncated: bool
    """Whether bytes were made by dropping the fraction; otherwise they are rounded."""
    dtype: str
    """Keras dtype policy of the model."""
    compute_dtype: str
    """Dtype of activations."""
    chunk: Positive
    """Latent frames at a time."""
    fps: float | None
    """Frames per second of a file that is played; null for others."""
    seconds: float
    """Seconds that it took, with compiling."""


class GeneratedText(TypedDict):
    """One completed text."""

    tokens: list[Count]
    """Its tokens."""
    steps: list[int]
    """For every token the step that last set it, from 0; -1 for a given one."""
    text: str | None
    """The text without special tokens; null without a tokenizer."""


class GeneratedDocument(TypedDict):
    """What ``wdport generate --json`` prints, and ``-o NAME.json`` holds."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["generated"]
    """Kind of the document."""
    model: str
    """Name of the converted file."""
    prompts: NamedFile | None
    """The file of the prompts; null if they were given with ``--text``."""
    output: OutputFile | None
    """The file that was written; null if none was, and in that file itself."""
    texts: list[GeneratedText]
    """The texts, in the order of the prompts."""
    generated: Count
    """Number of generated tokens of all texts."""
    network_calls: Count
    """Calls of the network for all texts."""
    mask: Count
    """The mask token."""
    length: Count
    """Tokens to write behind every prompt."""
    block_length: Positive | None
    """Wanted tokens in a block; null for the default."""
    steps: Positive | None
    """Steps of a block; null for one for every token."""
    threshold: float
    """Probability above which tokens are kept earlier."""
    edit: float | None
    """Probability above which a generated token is replaced; null if none is."""
    temperature: float
    """Temperature; 0 takes the most probable token."""
    top_k: Positive | None
    """Number of tokens that are drawn from; null for all."""
    top_p: float | None
    """Probability of the tokens that are drawn from; null for all."""
    end: Count | None
    """Token that ends a text; null for none."""
    forbid: list[Count]
    """Tokens that are never generated, beside the mask token."""
    seed: Count
    """Random seed."""
    dtype: str
    """Keras dtype policy of the model."""
    seconds: float
    """Seconds that it took, with compiling."""


class ExportedSampler(TypedDict):
    """The sampler in an exported file."""

    name: str
    """Name of the sampler."""
    network_calls: Count
    """Calls of the network for every sample."""
    eta: float
    """Share of noise that a DDIM step adds."""


class ExportDocument(TypedDict):
    """What ``wdport export --json`` prints. The fields from ``what`` on are for a StableHLO file, those from
    ``tensors`` on for a PyTorch file."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["export"]
    """Kind of the document."""
    model: str
    """Name of the converted file."""
    to: Literal["stablehlo", "torch"]
    """What was written."""
    output: OutputFile
    """The file that was written."""
    what: NotRequired[Literal["denoiser", "sampler", "network"]]
    """What the programs compute."""
    platforms: NotRequired[list[str]]
    """Platforms that it runs on."""
    batch: NotRequired[Positive | None]
    """Number of samples of every call; null for any number."""
    arrays: NotRequired[dict[str, Shape]]
    """Shape of one sample of every array that it takes or gives; absent for a network."""
    programs: NotRequired[dict[str, ProgramFacts]]
    """The programs of a network by name, with their inputs and outputs; absent for a denoiser or sampler."""
    classes: NotRequired[Positive | None]
    """Number of classes; null for a model without labels, and for a network."""
    condition: NotRequired[ConditionFacts]
    """The further input that it takes last; absent if it takes none."""
    compute_dtype: NotRequired[str]
    """Dtype that the network computes in."""
    precision: NotRequired[str]
    """Precision of float32 products."""
    sampler: NotRequired[ExportedSampler | None]
    """The sampler; null for a denoiser or network."""
    tensors: NotRequired[Count]
    """Number of tensors."""
    prefixes: NotRequired[list[str]]
    """Prefixes of the checkpoint that were left off."""
    recomputed: NotRequired[list[str]]
    """Tensors that were computed from their formulas."""
    chosen: NotRequired[list[str]]
    """Tensors that the conversion had combined by arithmetic, separated again by choice: the function is the same, the
    bits are not."""
    left_out: NotRequired[dict[str, str]]
    """Tensors of the checkpoint that the file lacks, each with the reason."""
    verified: NotRequired[list[GateFacts]]
    """The gates of ``--verify``; absent without it."""


class VerificationDocument(TypedDict):
    """What ``wdport verify`` of an exported file prints with ``--json``, and ``wdport export --verify`` if it fails."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["verification"]
    """Kind of the document."""
    passed: bool
    """Whether everything was compared and agrees."""
    complete: bool
    """Whether everything that had to be compared was compared."""
    exit_code: Literal[0, 1, 6]
    """Exit code of the command."""
    gates: list[GateFacts]
    """The gates."""
    model: str
    """Path of the converted file."""
    exported: str
    """Path of the exported file."""
    digests: dict[str, Sha256]
    """SHA-256 of both files, by these names."""
    inputs: list[str]
    """The calls that were compared, in words."""
    ratios: dict[str, Number]
    """For every program the largest error of its outputs, relative to float64 and as a multiple of the model's own."""
    members: dict[str, Sha256]
    """SHA-256 of the weights and programs of a StableHLO file."""
    environment: dict[str, str]
    """Versions of the libraries, and the device."""
    seconds: float
    """Seconds that it took, with compiling."""


class PlaceFacts(TypedDict):
    """A layer in both models; either name may be empty."""

    keras: str
    """Path of the Keras layer."""
    torch: str
    """Path of the PyTorch module."""


class SuggestionDocument(TypedDict):
    """What ``wdport map suggest --json`` prints."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["suggestion"]
    """Kind of the document."""
    found: bool
    """Whether a table was found for the whole model."""
    proved: bool
    """Whether the table was proved by ``verify``."""
    layers: Count
    """Number of layers."""
    passes: Count
    """Number of passes through the models."""
    seconds: float
    """Seconds in all."""
    forward_seconds: float
    """Seconds of them in the models."""
    doubts: list[str]
    """What is uncertain, one sentence each."""
    notes: list[str]
    """What a reader should know, one sentence each."""
    rows: list[dict[str, object]]
    """Rows of the table, as a mapping table has them under ``layers``, ``tensors`` and ``tied``."""
    failure: str
    """Why the table is not proved; empty if it is, or if no proof was tried."""
    verdict: VerdictDocument | None
    """The proof; null if there is none."""
    last_alike: PlaceFacts | None
    """The last layer at which the models agree."""
    first_unlike: PlaceFacts | None
    """The first layer that does not agree."""
    causes: list[str]
    """Probable causes of the difference, the most likely first."""
    what: NotRequired[str]
    """What is wrong at the first layer that does not agree."""
    wanted: NotRequired[str]
    """What its input or output should be; empty if unknown."""


class TensorFlow(TypedDict):
    """An input or output tensor of a step."""

    from_: str
    """Its source, from the view of the enclosing module: a step, an argument or a parameter."""
    argument: str | None
    """Parameter of the step that receives it."""
    axes: str | None
    """Its axes in PyTorch's order, such as ``b c h w``."""
    sizes: list[int | str]
    """Their sizes; ``b`` for the batch size."""
    kind: str
    """``float``, ``int``, ``bool`` or ``complex``."""


class KerasCallFacts(TypedDict):
    """A layer or function of Keras."""

    name: str
    """Its name, such as ``layers.Conv2D``."""
    arguments: dict[str, object]
    """Its arguments, by name."""


class DefaultFacts(TypedDict):
    """An argument whose default in Keras differs from PyTorch's."""

    layer: str
    """The Keras layer."""
    argument: str
    """Its argument."""
    keras: object
    """Default of the argument."""
    setting: str
    """PyTorch's hyper-parameter."""
    torch: object
    """Default of the hyper-parameter."""
    needed: object
    """Required value of the argument."""


class OutlineStep(TypedDict):
    """One step of the model."""

    what: Literal["layer", "function", "module"]
    """A layer, a function of torch between layers, or a module that contains steps."""
    number: Positive | None
    """Position in call order; null for a module."""
    name: str
    """Name within the enclosing module."""
    path: str | None
    """Path in the model; null for a function."""
    type: str
    """Class or function, by its full name."""
    kind: str | None
    """Layer kind for a row of a mapping table."""
    settings: dict[str, object]
    """Hyper-parameters, or arguments that are not tensors."""
    torch: str
    """The step in PyTorch, in short."""
    inputs: list[TensorFlow]
    """Input tensors."""
    outputs: list[TensorFlow]
    """Output tensors."""
    keras: list[KerasCallFacts]
    """Calls of Keras that compute the same, in order."""
    keras_text: str | None
    """The same in short, or the code that has to be written."""
    defaults: list[DefaultFacts]
    """Arguments that must be stated, since their defaults differ."""
    notes: list[str]
    """Other differences."""
    parameters: dict[str, Shape]
    """Shapes of the module's own tensors that its code reads directly."""
    steps: list[OutlineStep]
    """Steps inside a module."""


class OutlineDocument(TypedDict):
    """What ``wdport map outline --json`` prints: what a PyTorch model computes, step by step."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["outline"]
    """Kind of the document."""
    model: str
    """Function that builds the model, ``module:name``."""
    parameters: Count
    """Number of its parameters."""
    batch: Positive
    """Batch size of the run."""
    versions: dict[str, str]
    """Versions of torch and Keras."""
    notes: list[str]
    """What a reader should know, one sentence each."""
    uncalled: dict[str, str]
    """Layers that the run did not call, by path, with their constructors."""
    inputs: list[TensorFlow]
    """Inputs of the model."""
    outputs: list[TensorFlow]
    """Outputs of the model."""
    steps: list[OutlineStep]
    """Steps, in call order."""


class RemarkFacts(TypedDict):
    """A remark on one line of a mapping table."""

    level: Literal["error", "warning", "note"]
    """``error``: no checkpoint can fit. ``warning``: it may be correct."""
    file: str
    """The table, or an included one."""
    line: Count
    """Line; 0 for the table as a whole."""
    what: str
    """The sentence."""


class ClaimFacts(TypedDict):
    """A row and the tensors that it claims."""

    file: str
    """File of the row."""
    line: Count
    """Line of the row."""
    torch: str
    """Patterns of the names that it matches."""
    becomes: str
    """What it does with them, in short."""
    when: str | None
    """Feature that it needs."""
    tensors: list[str]
    """Names that it matched."""


class CoverageFacts(TypedDict):
    """Which row claims which tensor."""

    rows: list[ClaimFacts]
    """Every row."""
    unclaimed: list[str]
    """Tensors that no row claims."""
    doubled: dict[str, list[str]]
    """Tensors that several rows claim, each with the places of the rows."""
    idle: list[str]
    """Rows that match nothing, by place."""
    incomplete: list[str]
    """Rows of which only some names exist, in words."""


class CheckDocument(TypedDict):
    """What ``wdport map check --json`` prints."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["check"]
    """Kind of the document."""
    table: str
    """Path of the table."""
    family: str
    """Model family."""
    variant: str
    """Key layout; empty if the table names none."""
    sound: bool
    """Whether the table has no errors: the exit code is then 0, otherwise 4."""
    faults: list[str]
    """Reasons for refusing a conversion, one sentence each."""
    remarks: list[RemarkFacts]
    """Remarks on the table itself."""
    checkpoint: str | None
    """Path of the checkpoint; null without one."""
    coverage: CoverageFacts | None
    """Which row claims which tensor; null without a checkpoint."""
    plan: dict[str, Count] | None
    """Numbers of tensors that are used, checked, dropped and tied, and of variables; null if there is no plan."""
    misfits: list[str]
    """Errors of the conversion plan, one sentence each."""
    notes: list[str]
    """What a reader should know, one sentence each."""
    values: list[OddValues] | None
    """Findings on unusual values; null without ``--values``."""
    settings: SettingsFacts | None
    """Hyper-parameters that differ; null without ``--settings``."""


class EndFacts(TypedDict):
    """A tensor or a variable."""

    name: str
    """Its name."""
    shape: Shape | None
    """Its shape; null if unknown."""
    dtype: str | None
    """Its dtype; null if unknown."""


class RouteFacts(TypedDict):
    """The destination of tensors, or the source of variables."""

    fate: Literal["moved", "checked", "dropped", "tied", "ignored"]
    """Whether the tensors fill variables, or how else they are used."""
    sources: list[EndFacts]
    """The tensors, in the order of the rule."""
    targets: list[EndFacts]
    """The variables."""
    rule: str | None
    """Name of the rule; null unless tensors are moved."""
    axes: str | None
    """The rule written out."""
    inverse: str | None
    """Its inverse."""
    sizes: dict[str, Count]
    """Size of every axis of the rule; empty if the shapes do not determine them."""
    combine: str
    """Arithmetic before the rule; empty for none."""
    table: str | None
    """File of the row."""
    line: Positive | None
    """Line of the row."""
    reason: str | None
    """The constant, the reason for dropping, or the other tensor."""
    notes: list[str]
    """What a reader should know, one sentence each."""


class ExplanationDocument(TypedDict):
    """What ``wdport map explain --json`` prints."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["explanation"]
    """Kind of the document."""
    name: str
    """The tensor or variable that was asked for."""
    file: str
    """Name of the file."""
    prefixes: list[str]
    """Prefixes that were taken off every name."""
    routes: list[RouteFacts]
    """Where it goes, or what it is made of."""


class RenamedFacts(TypedDict):
    """A name that was probably renamed."""

    a: str
    """Its name in A."""
    b: str
    """Its name in B."""
    of: tuple[int, int]
    """Numbers of names with the same properties that are only in A and only in B."""


class DifferenceDocument(TypedDict):
    """What ``wdport map diff --json`` prints: how B differs from A."""

    schema: Literal[2]
    """Format of the document."""
    kind: Literal["difference"]
    """Kind of the document."""
    same: bool
    """Whether the two do not differ."""
    alike: Count
    """Number of names that have the same properties in both."""
    facts: dict[str, tuple[str, str]]
    """Properties of the whole that differ, in A and in B; "" for a missing one."""
    prefix: tuple[str, str] | None
    """The common prefix of the names in A, and the prefix that replaces it in B; null if it did not change."""
    only_a: dict[str, dict[str, str | Shape]]
    """Names that B lacks, with their properties: a tensor's shape and dtype, or what a row of a table does."""
    only_b: dict[str, dict[str, str | Shape]]
    """Names that A lacks, with their properties."""
    changed: dict[str, dict[str, tuple[str | Shape, str | Shape]]]
    """By name in B, the properties that differ, in A and in B; "" for a missing one."""
    renamed: list[RenamedFacts]
    """Names that were probably renamed."""


class FaultsDocument(TypedDict):
    """What a command with ``--json`` prints if it ends with several faults, such as those of a mapping table."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["faults"]
    """Kind of the document."""
    error: str
    """The error on standard error, which names the first."""
    code: Count
    """The exit code."""
    faults: list[str]
    """Every fault, for people."""


class KillFacts(TypedDict):
    """One known fault and its outcome."""

    example: str
    """Model with the fault."""
    mutant: str
    """The fault."""
    site: str
    """Layer with the fault."""
    gate: str
    """Letter of the first gate that found it; empty if none did."""
    expected: str
    """Letter of the gate that should find it."""
    sites: list[str]
    """Layers that were reported as faulty."""
    exact: bool
    """Whether they are the right ones."""
    margin: Number
    """Largest error over its bound, in decades."""
    causes: list[str]
    """The diagnosis."""
    equivalent: str
    """Why the fault does not change the result, if it is an equivalent: it must then survive."""
    inputs: str
    """Case that revealed it."""
    sought: bool
    """Whether its cause was looked for."""
    facts: str
    """Text of a correct diagnosis, if it does not name the fault."""
    ratio: Number | None
    """Largest isolated float32 error as a multiple of the reference's; null if it was not measured."""
    single: str | None
    """Letter of the gate that finds it in float32 only; null if that was not measured."""
    rejected: list[str] | None
    """Fixed tolerances that reject its output; null if that was not measured."""


class GroupFacts(TypedDict):
    """Faults of one kind."""

    gate: str
    """Letter of the gate for them; empty if there are several."""
    name: str
    """The kind, in words."""
    kills: list[KillFacts]
    """Their outcomes."""


class AlarmFacts(TypedDict):
    """A gate that fails a correct port."""

    gate: str
    """Letter of the gate."""
    place: str
    """Where."""


class VariantFacts(TypedDict):
    """One correct port, or one correct way to run it."""

    example: str
    """Model."""
    name: str
    """What was changed."""
    logic: Number | None
    """Largest isolated float64 error; null if it was not measured."""
    ratio: Number | None
    """Largest isolated float32 error as a multiple of the reference's; null if it was not measured."""
    alarms: list[AlarmFacts]
    """Gates that fail: every one is a false alarm."""
    rejected: list[str] | None
    """Fixed tolerances that reject its output; null if that was not measured."""
    why: str
    """Why it is correct, if it is another way to compute the same."""


class RuleFacts(TypedDict):
    """A rule for accepting a port, and how well it separates faults from correct ports."""

    name: str
    """The rule."""
    killed: Count
    """Faults that it rejects."""
    faults: Count
    """Faults in all."""
    rejected: Count
    """Correct ports that it rejects."""
    ports: Count
    """Correct ports in all."""


class SelftestDetails(TypedDict):
    """Every fault and every variant."""

    groups: list[GroupFacts]
    """Faults, by kind."""
    variants: list[VariantFacts]
    """Correct ports."""
    quick: bool
    """Whether only a few faults were tried."""
    causes: bool
    """Whether causes had to be looked for."""
    bounds: dict[str, float]
    """Bounds in force, by name."""
    environment: dict[str, str]
    """Versions and the machine."""
    seconds: float
    """Seconds in all."""


class SelftestDocument(TypedDict):
    """What ``wdport selftest --json`` prints."""

    schema: Literal[1]
    """Format of the document."""
    kind: Literal["selftest"]
    """Kind of the document."""
    passed: bool
    """Whether the self-test passed."""
    exit_code: Literal[0, 1, 6]
    """0 passed, 1 failed, 6 nothing was run."""
    faults: Count
    """Number of faults that change the result."""
    killed: Count
    """Number of them that a gate found."""
    right: Count
    """Number of them that the right gate found at the right place."""
    causes_sought: Count
    """Number of faults whose cause was looked for."""
    causes_right: Count
    """Number of correct causes."""
    causes_wrong: Count
    """Number of wrong causes."""
    variants: Count
    """Correct ports."""
    false_alarms: Count
    """Number of them that fail."""
    rules: list[RuleFacts]
    """Rules for accepting a port, compared."""
    details: SelftestDetails
    """Every fault and every variant."""
