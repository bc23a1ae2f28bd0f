"""An open safetensors file goes in; its tensors and the bytes of each come out.

The format: 8 bytes of header length, a JSON object, and the data, which the tensors have to tile without
holes or overlaps. It records no CRC, so a flipped bit in the data cannot be seen.
"""

from __future__ import annotations

from math import prod
from typing import Final

from wdport.checkpoint.contents import Contents
from wdport.checkpoint.dtypes import SAFETENSORS
from wdport.checkpoint.faults import COPY_AGAIN, Fault
from wdport.checkpoint.source import Source, Span
from wdport.checkpoint.strict_json import strict_json
from wdport.checkpoint.tensor import StorageRef, TensorRef, row_major, tensor_ref
from wdport.limits import MAX_HEADER_BYTES, MAX_RANK, MAX_TENSORS

_LENGTH_BYTES: Final = 8
_RESAVE: Final = "get the file from its author again: safetensors does not write this"


def read_safetensors(source: Source) -> Contents:
    """Parse the header; no data are read."""
    header, data_start = _header(source)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Fault("the header's __metadata__ is not a table of text", _RESAVE)
    if len(header) > MAX_TENSORS:
        raise Fault(f"more than {MAX_TENSORS} tensors", _RESAVE)
    tensors: dict[str, TensorRef] = {}
    runs: dict[str, tuple[int, int]] = {}
    for name, entry in header.items():
        tensors[name], runs[name] = _tensor(name, entry)
    _check_tiling(runs, source.size - data_start)
    spans = {name: Span(source, data_start + begin, end - begin, None, name) for name, (begin, end) in runs.items()}
    return Contents("safetensors", tensors, spans, [source], dict(metadata))


def _header(source: Source) -> tuple[dict[str, object], int]:
    """The parsed header and the offset of the data."""
    if source.size < _LENGTH_BYTES:
        raise Fault("is too short for a safetensors file", COPY_AGAIN)
    length = int.from_bytes(source.read(0, _LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES or length > source.size - _LENGTH_BYTES:
        raise Fault(f"its header claims {length} bytes, more than the file can hold", COPY_AGAIN)
    return strict_json(source.read(_LENGTH_BYTES, length), "header"), _LENGTH_BYTES + length


def _tensor(name: str, entry: object) -> tuple[TensorRef, tuple[int, int]]:
    """One header entry as a tensor and its run of bytes in the data."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Fault("its header entry is not dtype, shape and data_offsets", _RESAVE, name)
    tag, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(tag, str):
        raise Fault("its dtype is not text", _RESAVE, name)
    dtype = SAFETENSORS.get(tag)
    if dtype is None:
        raise Fault(f"has dtype {tag}, which is not read", _RESAVE, name)
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise Fault("its shape or data_offsets are not natural numbers", _RESAVE, name)
    if len(shape) > MAX_RANK:
        raise Fault(f"has {len(shape)} axes (at most {MAX_RANK} are read)", _RESAVE, name)
    begin, end = offsets
    try:
        ref = tensor_ref(StorageRef(name, dtype, prod(shape)), 0, tuple(shape), row_major(tuple(shape)))
    except Fault as fault:
        fault.part = name
        raise
    if end - begin != ref.nbytes:
        raise Fault(f"has {end - begin} bytes where its shape needs {ref.nbytes}", COPY_AGAIN, name)
    return ref, (begin, end)


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_tiling(runs: dict[str, tuple[int, int]], size: int) -> None:
    """The runs, sorted, follow one another from 0 to ``size``."""
    position = 0
    for name, (begin, end) in sorted(runs.items(), key=lambda item: item[1]):
        if begin != position:
            fault = "overlaps the tensor before it" if begin < position else "follows a hole in the data"
            raise Fault(fault, COPY_AGAIN, name)
        position = end
    if position != size:
        raise Fault(f"holds {size} bytes of data where its header describes {position}", COPY_AGAIN)
