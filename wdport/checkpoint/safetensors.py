"""Read an open safetensors file: its tensors and the places of their bytes.

The format: 8 bytes of header length, a JSON object, and the data, which the tensors must tile without
holes or overlaps. It records no CRC, so a flipped bit in the data cannot be seen.
"""

from __future__ import annotations

from math import prod
from typing import Final

from wdport.checkpoint.dtypes import SAFETENSORS
from wdport.checkpoint.faults import COPY_AGAIN, Fault
from wdport.checkpoint.source import Contents, Source, Span
from wdport.checkpoint.tensor import StorageRef, TensorRef, row_major, tensor_ref
from wdport.checkpoint.tensor_header import RESAVE, Entry, TensorHeader
from wdport.limits import MAX_HEADER_BYTES

_LENGTH_BYTES: Final = 8


def read_safetensors(source: Source) -> Contents:
    """Parse the header without reading data."""
    header, data_start = _header(source)
    tensors: dict[str, TensorRef] = {}
    spans: dict[str, Span] = {}
    with header:
        for entry in header:
            if entry.name in tensors:
                raise Fault(f"duplicate key {entry.name!r} in its JSON", COPY_AGAIN)
            tensors[entry.name] = _tensor(entry)
            spans[entry.name] = Span(source, data_start + entry.begin, entry.end - entry.begin, None, entry.name)
    _check_tiling(spans, data_start, source.size)
    return Contents("safetensors", tensors, spans, [source], dict(header.metadata or {}))


def _header(source: Source) -> tuple[TensorHeader, int]:
    """Return the header and the offset of the data."""
    if source.size < _LENGTH_BYTES:
        raise Fault("is too short for a safetensors file", COPY_AGAIN)
    length = int.from_bytes(source.read(0, _LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES or length > source.size - _LENGTH_BYTES:
        raise Fault(f"its header claims {length} bytes, more than the file can hold", COPY_AGAIN)
    return TensorHeader(source.view(_LENGTH_BYTES, length)), _LENGTH_BYTES + length


def _tensor(entry: Entry) -> TensorRef:
    """Convert one header entry to a tensor."""
    dtype = SAFETENSORS.get(entry.tag)
    if dtype is None:
        raise Fault(f"has dtype {entry.tag}, which is not read", RESAVE, entry.name)
    try:
        ref = tensor_ref(StorageRef(entry.name, dtype, prod(entry.shape)), 0, entry.shape, row_major(entry.shape))
    except Fault as fault:
        fault.part = entry.name
        raise
    if entry.end - entry.begin != ref.nbytes:
        what = f"has {entry.end - entry.begin} bytes where its shape needs {ref.nbytes}"
        raise Fault(what, COPY_AGAIN, entry.name)
    return ref


def _check_tiling(spans: dict[str, Span], start: int, size: int) -> None:
    """Check that the sorted spans are consecutive from ``start`` to ``size``."""
    position = start
    for span in sorted(spans.values(), key=lambda span: (span.start, span.nbytes)):
        if span.start != position:
            fault = "overlaps the tensor before it" if span.start < position else "follows a hole in the data"
            raise Fault(fault, COPY_AGAIN, span.name)
        position += span.nbytes
    if position != size:
        raise Fault(f"holds {size - start} bytes of data where its header describes {position - start}", COPY_AGAIN)
