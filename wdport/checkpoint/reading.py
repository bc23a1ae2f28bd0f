"""Read a symbolic tensor from the bytes of its storage into an owned numpy array.

Memory: a tensor that fills its storage is read directly into the result. A strided one needs its extent in addition
to the result, and bfloat16 (two bytes, widened to four) half the result.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from wdport.checkpoint.dtypes import ITEMSIZE, NUMPY
from wdport.checkpoint.faults import COPY_AGAIN, OTHER_DTYPE, Fault
from wdport.checkpoint.source import Span
from wdport.checkpoint.tensor import TensorRef

Array = np.ndarray[Any, np.dtype[Any]]


def read_tensor(ref: TensorRef, span: Span) -> Array:
    """Return the tensor, C-contiguous and in native byte order; bfloat16 is widened to float32, which is exact."""
    return decode(read_stored(ref, span), ref.dtype)


def read_stored(ref: TensorRef, span: Span) -> Array:
    """Return the tensor's stored values, C-contiguous and little-endian; bfloat16 as uint16 bits."""
    if ref.dtype not in NUMPY:
        raise Fault(f"has dtype {ref.dtype}, which is not read", OTHER_DTYPE)
    first = ref.storage.first + ref.offset
    try:
        if ref.contiguous:
            stored = np.empty(ref.shape, NUMPY[ref.dtype])
            _fill(stored.reshape(-1), first, span)
            return stored
        run = np.empty(ref.extent, NUMPY[ref.dtype])
        _fill(run, first, span)
        return strided(run, ref).copy(order="C")
    except MemoryError:
        raise MemoryError(f"needs {2 * ref.nbytes >> 20} MiB of memory") from None


def _fill(flat: Array, first: int, span: Span) -> None:
    """Fill ``flat``, starting at element ``first`` of the storage."""
    if flat.size:
        span.read_into(flat.view(np.uint8).data, first * flat.itemsize)


def strided(run: Array, ref: TensorRef) -> Array:
    """Return the view of ``run``, an extent, with the tensor's shape and strides.

    The ndarray constructor checks the view against its buffer again; ``as_strided`` would not.
    """
    strides = tuple(stride * ITEMSIZE[ref.dtype] for stride in ref.strides)
    return np.ndarray(ref.shape, run.dtype, run.data, strides=strides)


def decode(stored: Array, dtype: str) -> Array:
    """Convert little-endian stored bits to native values."""
    if dtype == "bfloat16":
        # A bfloat16 is the upper half of a float32.
        wide = stored.astype(np.uint32)
        wide <<= np.uint32(16)  # NumPy 2.1 may shift a single value by a Python int into 64 bits
        return wide.view(np.float32)
    if dtype == "bool":
        # numpy would treat a byte 2 as True in some operations and as 2 in others.
        if stored.size and stored.max() > 1:
            raise Fault("a bool tensor holds bytes other than 0 and 1", COPY_AGAIN)
        return stored.view(np.bool_)
    return stored if sys.byteorder == "little" else stored.astype(stored.dtype.newbyteorder("="))
