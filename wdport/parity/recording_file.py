"""Read the index and the arrays of a recording file, with every byte and every type checked; the index as types.

Python's conversions would turn "false" into true, 0.5 into the seed 0 and true into the batch 1. Here, each of them
raises :class:`TypeError` or :class:`ValueError`.

The file is untrusted. Its members are stored uncompressed and cover the file without gaps; their CRCs and sizes are
checked before an array is created, so memory use is bounded by the file's size.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite, prod
from pathlib import Path
from typing import Annotated, Final, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from wdport.base.errors import InputError, printable
from wdport.base.limits import MAX_EMPTY_SHAPE, MAX_ITEM_BYTES, MAX_RANK, MAX_RECORDED, MAX_RECORDED_BYTES
from wdport.base.shared_types import Count, Sha256, about
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.source import Source, Span
from wdport.checkpoint.strict_json import require_shallow, strict_json
from wdport.checkpoint.zip_archive import read_flat_members
from wdport.models.interface import Array
from wdport.recording.user_model import Tensors

LARGEST: Final = 1 << 48
"""Greater than any size, seed or number of bytes."""

_SHA256: Final = re.compile("[0-9a-f]{64}")


def table(value: object) -> dict[str, object]:
    """A dictionary with string keys."""
    if not isinstance(value, dict):
        raise TypeError(f"{_shown(value)} is not an object")
    return value


def items(value: object, length: int | None = None) -> list[object]:
    """A list, of ``length`` items if given."""
    if not isinstance(value, list) or length not in (None, len(value)):
        raise TypeError(f"{_shown(value)} is not a list" + (f" of {length}" if length else ""))
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{_shown(value)} is not a string")
    return value


def texts(value: object) -> list[str]:
    return [text(element) for element in items(value)]


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{_shown(value)} is not true or false")
    return value


def count(value: object) -> int:
    # Not isinstance, for which true is an int as well.
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise TypeError(f"{_shown(value)} is not a non-negative integer")
    return value


def number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise TypeError(f"{_shown(value)} is not a number")
    return float(value)


def pair(value: object) -> tuple[float, float]:
    first, second = map(number, items(value, 2))
    if first < 0 or second < 0:
        raise ValueError(f"{_shown(value)} is negative")
    return first, second


def tensors(value: object) -> Tensors:
    """The description of a tensor."""
    facts = table(value)
    if set(facts) != {"shape", "dtype", "sha256"}:
        raise ValueError("a tensor has fields other than shape, dtype and sha256")
    shape, digest = tuple(map(count, items(facts["shape"]))), facts["sha256"]
    if len(shape) > MAX_RANK:
        raise ValueError(f"a shape has {len(shape)} axes")
    dtype, digest = text(facts["dtype"]), None if digest is None else text(digest)
    if digest is not None and not _SHA256.fullmatch(digest):
        raise ValueError(f"{_shown(digest)} is not a SHA-256")
    return Tensors(shape, dtype, digest)


def _shown(value: object) -> str:
    return printable(reprlib.repr(value), 40)


Reference = Annotated[str, Meta(extra_json_schema={"pattern": "^(0|[1-9][0-9]{0,8})(:(p|p?[sd]))?$"})]
"""``N``: the array ``N.npy``; ``N:s``: rounded to float32; ``N:d``: rounded to float32 and converted back to float64;
``N:p``, ``N:ps`` and ``N:pd``: the same of its positive values, with zeros in place of all others."""

Arrays = list[Reference]
Nested = Reference | list[object]
"""An array, or a nested list of arrays."""

Call = tuple[list[Nested], Arrays, str, list[str]]
"""Inputs, outputs, the path of the enclosing call and the names of the inputs."""

Calls = dict[str, Call]
Pair = tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]]


class CheckpointFacts(TypedDict):
    """The checkpoint that supplied the weights."""

    name: Annotated[str, about("Name of the file.")]
    sha256: Annotated[Sha256, about("SHA-256 of the file.")]


class Environment(TypedDict):
    """The environment in which the model was run."""

    python: Annotated[str, about("Version of Python.")]
    torch: Annotated[str, about("Version of torch.")]
    numpy: Annotated[str, about("Version of NumPy.")]
    torch_matmul: Annotated[str, about("Precision of float32 matrix products.")]


class TensorFacts(TypedDict):
    """One tensor of the state_dict."""

    shape: Annotated[list[Count], about("Shape of the tensor.")]
    dtype: Annotated[str, about("Dtype in the checkpoint.")]
    sha256: Annotated[
        Sha256 | None,
        about(
            "SHA-256 of the tensor's values, in float32 if they are floating-point; null if the tensor is recomputed."
        ),
    ]


class SpreadFacts(TypedDict):
    """How much the inputs and outputs of one layer change if every value that passes between layers is perturbed by one
    rounding error: the sum of the squares of the changes, and the largest change."""

    fed: Annotated[Pair, about("Change in the layer's inputs.")]
    made: Annotated[Pair, about("Change in the layer's isolated outputs.")]
    running: Annotated[Pair, about("Change in the layer's outputs in the running network.")]
    samples: NotRequired[Annotated[dict[str, list[float]], about(
        "Sums of the squares of the changes for each sample of the batch, by `fed`, `made` and "
        "`running`.")]]  # fmt: skip


class SingleFacts(TypedDict):
    """The float32 part of a case: outputs in float32 and in float64 for the same inputs, rounded to float32."""

    inputs: Annotated[Arrays, about("Inputs, rounded to float32.")]
    outputs: Annotated[tuple[Arrays, Arrays], about("Outputs in float32 and in float64.")]
    isolated: Annotated[tuple[tuple[Arrays, Calls], tuple[Arrays, Calls]] | None, about(
        "For float32 and for float64: the outputs, and all isolated calls; null with extreme values.")]  # fmt: skip


class CaseFacts(TypedDict):
    """One test case."""

    seed: Annotated[Count, about("Seed of the inputs.")]
    batch: Annotated[Count, about("Batch size.")]
    scale: Annotated[float, about("Factor by which the inputs are multiplied.")]
    random_biases: Annotated[bool, about("Whether random shifts were added to the biases.")]
    extremes: NotRequired[Annotated[list[str], about(
        "For each sample, the kind of values that replace the ordinary ones: `zeros`, `constant`, `large`, `missing`, "
        "`hidden`, `whole`, `sparse`, `small` or `far`; \"\" for none.")]]  # fmt: skip
    batched: NotRequired[Annotated[bool, about(
        "Whether an input has a batch axis; true if absent. If not, the case has one sample.")]]  # fmt: skip
    gain: NotRequired[Annotated[float, about(
        "Factor by which the inputs of isolated layers are multiplied in float32; 1 if absent.")]]  # fmt: skip
    names: Annotated[list[str], about('Names of the outputs; "" for an unnamed output.')]
    inputs: Annotated[Arrays, about("Inputs; floating-point inputs are in float64.")]
    outputs: Annotated[Arrays, about("Outputs in float64.")]
    calls: Annotated[Calls, about(
        "For every call of a module, by path and in order of completion: its inputs, its outputs, the path of the "
        "enclosing call, and the names of the inputs; the second call of `X` is `X#2`.")]  # fmt: skip
    single: Annotated[SingleFacts | None, about("The float32 part; null if the case has none.")]
    conditioning: Annotated[dict[str, tuple[dict[str, SpreadFacts], Arrays]], about(
        "For each dtype, how much rounding to this dtype changes the inputs and outputs of every layer, and the "
        "largest change in each value of the outputs.")]  # fmt: skip


class RecordingForm(TypedDict):
    """Index of a recording, ``index.npy`` as UTF-8 JSON. Arrays are separate members, referred to as ``N``; as ``N:s``,
    rounded to float32; as ``N:d``, rounded to float32 and converted back to float64; or as ``N:p``, ``N:ps`` and
    ``N:pd``, the same of its positive values, with zeros in place of all others."""

    schema: Annotated[Literal[4], about("Version number of the format.")]
    reference: Annotated[str, about("Function that builds the PyTorch model, as `module:function`.")]
    checkpoint: Annotated[CheckpointFacts, about("The checkpoint.")]
    environment: Annotated[Environment, about("Environment in which the model was run.")]
    evaluating: Annotated[bool, about("Whether the model was in evaluation mode.")]
    names: Annotated[list[str], about("Paths of the modules that were recorded.")]
    tensors: Annotated[dict[str, TensorFacts], about("The tensors of the state_dict, by name.")]
    repeats: Annotated[bool, about("Whether a second run produced the same outputs, bit for bit.")]
    notes: Annotated[list[str], about("Notes for the reader, one sentence each.")]
    shifts: Annotated[dict[str, Reference], about(
        "The random shifts that are added to biases and constant weights, by name.")]  # fmt: skip
    sweeps: Annotated[dict[str, tuple[Reference, Reference, Reference]], about(
        "For each layer whose only input has one value per sample from a finite list, such as a time or a label, its "
        "outputs for all these values: in float64, in float32, and in float64 for the rounded values.")]  # fmt: skip
    values: NotRequired[
        Annotated[dict[str, Reference], about("Values of the tensors selected by `--keep` or by the table.")]
    ]
    cases: Annotated[list[CaseFacts], about("Test cases.")]


AGAIN: Final = "record it again with wdport record"
INDEX: Final = "index.npy"

_MEMBER: Final = re.compile(r"(0|[1-9][0-9]{0,8})\.npy|index\.npy")
_REFERENCE: Final = re.compile(r"(0|[1-9][0-9]{0,8})(?::(p|p?[sd]))?")
_MAGIC: Final = b"\x93NUMPY\x01\x00"
_HEADER: Final = re.compile(
    rb"\{'descr': '([<>|](?:f[248]|[iu][1248]|b1))', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n"
)
_SIZES: Final = re.compile(r"|[0-9]{1,12},|[0-9]{1,12}(?:, [0-9]{1,12})+")

_FAULTS: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions raised by reading a malformed index."""


class RecordingFile:
    """An open recording."""

    def __init__(self, path: Path) -> None:
        self._source = Source(path)
        try:
            self._members = read_flat_members(self._source, MAX_RECORDED)
            for name in self._members:
                if not _MEMBER.fullmatch(name):
                    raise Fault(f"holds {name!r}, which is not part of a recording")
            if INDEX not in self._members:
                raise Fault(f"has no {INDEX}")
        except BaseException:
            self._source.close()
            raise

    def close(self) -> None:
        self._source.close()

    def index(self) -> dict[str, object]:
        span = self._members[INDEX]
        if span.nbytes > MAX_RECORDED_BYTES:
            raise Fault("has too long an index")
        raw = _array(span).tobytes()
        # An empty list takes two bytes of the index and about 60 of memory.
        if sum(map(raw.count, (b",", b"[", b"{"))) * MAX_ITEM_BYTES > self._source.size + MAX_RECORDED_BYTES:
            raise Fault("has too many items in its index")
        index = strict_json(raw, "index", marks=len(raw))  # its items are bounded above, by the file's own size
        require_shallow(index, "index")
        return index

    def array(self, reference: object, cache: dict[str, Array]) -> Array:
        """The array of a reference in the index; it is added to ``cache``."""
        match = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
        if match is None:
            raise Fault(f"has the invalid array reference {reference!r}")
        if match[0] not in cache:
            number, form = match[1], match[2]
            if number not in cache:
                if f"{number}.npy" not in self._members:
                    raise Fault(f"has no array {number}")
                cache[number] = _array(self._members[f"{number}.npy"])
            if form:
                cache[match[0]] = _derived(cache[number], form)
        return cache[match[0]]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert every error in reading a recording to an :class:`InputError` that names the file."""
    try:
        with located(path):
            yield
    except InputError as error:
        if not isinstance(fault := error.__context__, Fault):
            raise
        description = f"{fault.part}: {fault.what}" if fault.part else fault.what
        raise InputError(path, f"is not a valid recording ({description})", AGAIN) from None
    except _FAULTS as error:
        text = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
        raise InputError(path, f"is not a valid recording ({text})", AGAIN) from None


def _array(span: Span) -> Array:
    """The array of a member; only the form that a recorder writes is accepted."""
    data = span.read()
    header = int.from_bytes(data[8:10], "little")
    # A pattern, not NumPy's parser, which evaluates the header as a Python literal.
    match = _HEADER.fullmatch(data, 10, 10 + header) if data[:8] == _MAGIC and len(data) >= 10 + header else None
    sizes = _SIZES.fullmatch(match[2].decode()) if match else None
    if match is None or sizes is None:
        raise Fault(f"{span.name} is not a numeric array in NumPy's format")
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(size) for size in sizes[0].split(",") if size)
    if prod(shape) * dtype.itemsize != len(data) - 10 - header:
        raise Fault(f"{span.name} does not have the size of {dtype} {shape}")
    # A shape with a zero has no bytes, so its other sizes are bounded here.
    if prod(size or 1 for size in shape) * dtype.itemsize > max(len(data), MAX_EMPTY_SHAPE):
        raise Fault(f"{span.name} has the invalid shape {shape}")
    # A view of the bytes, without a copy; it is read-only, and nothing writes to a recording's arrays.
    return np.frombuffer(data, dtype, offset=10 + header).reshape(shape)


def _derived(array: Array, form: str) -> Array:
    """Of "p" the positive values; then round to float32, and for "d" convert back, which is valid only for float64."""
    if "p" in form:
        if array.dtype.kind != "f":
            raise Fault(f"takes the positive values of an array of {array.dtype}")
        array, form = np.where(array > 0, array, array.dtype.type(0)), form[1:]
    if not form:
        return array
    if array.dtype != np.float64:
        raise Fault(f"rounds an array of {array.dtype}")
    with np.errstate(over="ignore"):  # the recorder did the same
        narrow = array.astype(np.float32)
    return narrow if form == "s" else narrow.astype(np.float64)
