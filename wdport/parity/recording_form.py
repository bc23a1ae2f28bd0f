"""The index of a recording as types; written by the self-contained :mod:`wdport.recorder`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from wdport.declared import Count, Sha256

Reference = Annotated[str, Meta(extra_json_schema={"pattern": "^(0|[1-9][0-9]{0,8})(:[sd])?$"})]
"""``N``: the array ``N.npy``; ``N:s``: rounded to float32; ``N:d``: rounded to float32 and converted back to
float64."""

Arrays = list[Reference]
Nested = Reference | list[object]
"""An array, or a nested list of arrays."""

Call = tuple[list[Nested], Arrays, str, list[str]]
"""Inputs, outputs, the path of the enclosing call and the names of the inputs."""

Calls = dict[str, Call]
Pair = tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]]


class CheckpointFacts(TypedDict):
    """The checkpoint that was recorded."""

    name: Annotated[str, Meta(description="Name of the file.")]
    sha256: Annotated[Sha256, Meta(description="SHA-256 of the file.")]


class Environment(TypedDict):
    """Where the model was run."""

    python: Annotated[str, Meta(description="Version of Python.")]
    torch: Annotated[str, Meta(description="Version of torch.")]
    numpy: Annotated[str, Meta(description="Version of NumPy.")]
    torch_matmul: Annotated[str, Meta(description="Precision of float32 matrix products.")]


class TensorFacts(TypedDict):
    """One tensor of the state_dict."""

    shape: Annotated[list[Count], Meta(description="Its shape.")]
    dtype: Annotated[str, Meta(description="Its dtype in the file.")]
    sha256: Annotated[Sha256 | None, Meta(description="SHA-256 of its float32 values; null if they were recomputed.")]


class SpreadFacts(TypedDict):
    """How far one layer moves when everything that it is given is perturbed by one rounding: sum of squares and largest
    value."""

    fed: Annotated[Pair, Meta(description="Of its inputs.")]
    made: Annotated[Pair, Meta(description="Of its isolated outputs.")]
    running: Annotated[Pair, Meta(description="Of its outputs in the running network.")]


class SingleFacts(TypedDict):
    """The float32 half of a case: both dtypes run on the same rounded inputs."""

    inputs: Annotated[Arrays, Meta(description="Inputs, rounded to float32.")]
    outputs: Annotated[tuple[Arrays, Arrays], Meta(description="Outputs in float32 and in float64.")]
    isolated: Annotated[tuple[tuple[Arrays, Calls], tuple[Arrays, Calls]], Meta(description=
        "For float32 and for float64: outputs, and all calls in isolation.")]  # fmt: skip


class CaseFacts(TypedDict):
    """One case of the battery."""

    seed: Annotated[Count, Meta(description="Seed of the inputs.")]
    batch: Annotated[Count, Meta(description="Batch size.")]
    scale: Annotated[float, Meta(description="Factor of the inputs.")]
    random_biases: Annotated[bool, Meta(description="Whether random shifts were added to the biases.")]
    extremes: NotRequired[Annotated[list[str], Meta(description=
        "By sample, what replaces ordinary values: `zeros`, `constant`, `large`, `missing`, `whole`, `sparse`, "
        "`small` or `far`; \"\" for nothing.")]]  # fmt: skip
    gain: NotRequired[Annotated[float, Meta(description=
        "Factor of the values that isolated layers are given in float32; 1 if absent.")]]  # fmt: skip
    names: Annotated[list[str], Meta(description="Names of the inputs.")]
    inputs: Annotated[Arrays, Meta(description="Inputs, floating ones in float64.")]
    outputs: Annotated[Arrays, Meta(description="Outputs in float64.")]
    calls: Annotated[Calls, Meta(description=
        "By path, inputs and outputs of every module in order of completion; the second call of `X` is "
        "`X#2`.")]  # fmt: skip
    single: Annotated[SingleFacts | None, Meta(description="The float32 half; null if the case has none.")]
    conditioning: Annotated[dict[str, tuple[dict[str, SpreadFacts], Arrays]], Meta(description=
        "By dtype, how far its rounding moves every layer, and the largest change of each value of the "
        "outputs.")]  # fmt: skip


class RecordingForm(TypedDict):
    """Index of a recording, ``index.npy`` as UTF-8 JSON. Arrays are separate members, referred to as ``N``; as ``N:s``,
    rounded to float32; or as ``N:d``, rounded to float32 and converted back to float64."""

    schema: Annotated[Literal[3], Meta(description="Format of the file.")]
    reference: Annotated[str, Meta(description="Function that builds the PyTorch model, `module:name`.")]
    checkpoint: Annotated[CheckpointFacts, Meta(description="The checkpoint.")]
    environment: Annotated[Environment, Meta(description="Where the model was run.")]
    evaluating: Annotated[bool, Meta(description="Whether the module was in evaluation mode.")]
    names: Annotated[list[str], Meta(description="Paths of the modules that were recorded.")]
    tensors: Annotated[dict[str, TensorFacts], Meta(description="The tensors of the state_dict, by name.")]
    repeats: Annotated[bool, Meta(description="Whether a second run gave the same outputs bit for bit.")]
    notes: Annotated[list[str], Meta(description="Notes, one sentence each.")]
    shifts: Annotated[dict[str, Reference], Meta(description="The shifts of the random biases, by parameter name.")]
    sweeps: Annotated[dict[str, tuple[Reference, Reference, Reference]], Meta(description=
        "By layer whose only input is time, its outputs at every time: in float64, in float32, and in float64 from "
        "rounded times.")]  # fmt: skip
    values: NotRequired[Annotated[dict[str, Reference], Meta(description="Values of tensors that were kept.")]]
    cases: Annotated[list[CaseFacts], Meta(description="The battery.")]
