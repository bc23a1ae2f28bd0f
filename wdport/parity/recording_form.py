"""The index of a recording as types; written by the self-contained :mod:`wdport.recorder`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from wdport.declared import Also, Count, Sha256

Reference = Annotated[str, Also(pattern="^(0|[1-9][0-9]{0,8})(:[sd])?$")]
"""``N``: the array ``N.npy``; ``N:s``: rounded to float32; ``N:d``: rounded to float32 and converted back to
float64."""

Arrays = list[Reference]
Nested = Reference | list[object]
"""An array, or a nested list of arrays."""

Call = tuple[list[Nested], Arrays, str, list[str]]
"""Inputs, outputs, the path of the enclosing call and the names of the inputs."""

Calls = dict[str, Call]
Pair = tuple[Annotated[float, Also(minimum=0)], Annotated[float, Also(minimum=0)]]


class CheckpointFacts(TypedDict):
    """The checkpoint that was recorded."""

    name: str
    """Name of the file."""
    sha256: Sha256
    """SHA-256 of the file."""


class Environment(TypedDict):
    """Where the model was run."""

    python: str
    """Version of Python."""
    torch: str
    """Version of torch."""
    numpy: str
    """Version of NumPy."""
    torch_matmul: str
    """Precision of float32 matrix products."""


class TensorFacts(TypedDict):
    """One tensor of the state_dict."""

    shape: list[Count]
    """Its shape."""
    dtype: str
    """Its dtype in the file."""
    sha256: Sha256 | None
    """SHA-256 of its float32 values; null if they were recomputed."""


class SpreadFacts(TypedDict):
    """How far one layer moves when everything that it is given is perturbed by one rounding: sum of squares and largest
    value."""

    fed: Pair
    """Of its inputs."""
    made: Pair
    """Of its isolated outputs."""
    running: Pair
    """Of its outputs in the running network."""


class SingleFacts(TypedDict):
    """The float32 half of a case: both dtypes run on the same rounded inputs."""

    inputs: Arrays
    """Inputs, rounded to float32."""
    outputs: tuple[Arrays, Arrays]
    """Outputs in float32 and in float64."""
    isolated: tuple[tuple[Arrays, Calls], tuple[Arrays, Calls]]
    """For float32 and for float64: outputs, and all calls in isolation."""


class CaseFacts(TypedDict):
    """One case of the battery."""

    seed: Count
    """Seed of the inputs."""
    batch: Count
    """Batch size."""
    scale: float
    """Factor of the inputs."""
    random_biases: bool
    """Whether random shifts were added to the biases."""
    extremes: NotRequired[list[str]]
    """By sample, what replaces ordinary values: ``zeros``, ``constant``, ``large``, ``missing``, ``whole``, ``sparse``,
    ``small`` or ``far``; "" for nothing."""
    gain: NotRequired[float]
    """Factor of the values that isolated layers are given in float32; 1 if absent."""
    names: list[str]
    """Names of the inputs."""
    inputs: Arrays
    """Inputs, floating ones in float64."""
    outputs: Arrays
    """Outputs in float64."""
    calls: Calls
    """By path, inputs and outputs of every module in order of completion; the second call of ``X`` is ``X#2``."""
    single: SingleFacts | None
    """The float32 half; null if the case has none."""
    conditioning: dict[str, tuple[dict[str, SpreadFacts], Arrays]]
    """By dtype, how far its rounding moves every layer, and the largest change of each value of the outputs."""


class RecordingForm(TypedDict):
    """Index of a recording, ``index.npy`` as UTF-8 JSON. Arrays are separate members, referred to as ``N``; as ``N:s``,
    rounded to float32; or as ``N:d``, rounded to float32 and converted back to float64."""

    schema: Literal[3]
    """Format of the file."""
    reference: str
    """Function that builds the PyTorch model, ``module:name``."""
    checkpoint: CheckpointFacts
    """The checkpoint."""
    environment: Environment
    """Where the model was run."""
    evaluating: bool
    """Whether the module was in evaluation mode."""
    names: list[str]
    """Paths of the modules that were recorded."""
    tensors: dict[str, TensorFacts]
    """The tensors of the state_dict, by name."""
    repeats: bool
    """Whether a second run gave the same outputs bit for bit."""
    notes: list[str]
    """Notes, one sentence each."""
    shifts: dict[str, Reference]
    """The shifts of the random biases, by parameter name."""
    sweeps: dict[str, tuple[Reference, Reference, Reference]]
    """By layer whose only input is time, its outputs at every time: in float64, in float32, and in float64 from rounded
    times."""
    values: NotRequired[dict[str, Reference]]
    """Values of tensors that were kept."""
    cases: list[CaseFacts]
    """The battery."""
