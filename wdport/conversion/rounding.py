"""Convert stored values of a checkpoint to the bits of another floating-point dtype.

Values are rounded to nearest, ties to even, via float32, as ``torch.Tensor.to`` rounds them; a NaN stays a NaN, with
any payload. Bits are little-endian arrays of :data:`wdport.checkpoint.tensor.NUMPY`, uint16 for bfloat16.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from wdport.checkpoint.source import decode
from wdport.checkpoint.tensor import NUMPY
from wdport.models.interface import Array

STORED: Final = ("float32", "float16", "bfloat16")
"""Dtypes that variables can be stored in."""

FLOATS: Final = (*STORED, "float64")

_INFINITY: Final = {"float64": 0x7FF << 52, "float32": 0xFF << 23, "float16": 0x1F << 10, "bfloat16": 0xFF << 7}
"""The bits of infinity; the bits of a NaN are larger."""


class Cast:
    """Convert the values of one tensor, in pieces, from their stored dtype to the dtype of a variable.

    ``lost`` counts the finite values that became infinite, and ``largest`` is the largest of them; ``inexact`` is true
    if float32 changed a float64 value.
    """

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self.lost, self.largest, self.inexact = 0, 0.0, False

    @property
    def needed(self) -> bool:
        """Whether the dtype changes."""
        return self.source != self.target

    def __call__(self, stored: Array) -> Array:
        """Return the bits in the variable's dtype, with the same shape."""
        if not self.needed:
            return stored
        values = decode(stored, self.source)
        with np.errstate(over="ignore", invalid="ignore"):
            # Via float32, as torch does: float64 to bfloat16 in one step would round some values the other way.
            single = values.astype(np.float32, copy=False)
            if self.target == "float32":
                # Widening back for the comparison is exact, so any difference is a lost bit.
                self.inexact |= self.source == "float64" and not np.array_equal(single, values, equal_nan=True)
                return single
            rounded = narrow(single, self.target)
        if is_nonfinite(rounded, self.target):
            self._count(values, rounded)
        return rounded

    def _count(self, values: Array, rounded: Array) -> None:
        """Count finite values that were rounded to infinity."""
        over = np.isfinite(values) & ~np.isfinite(decode(rounded, self.target))
        if over.any():
            self.lost += int(np.count_nonzero(over))
            self.largest = max(self.largest, float(np.max(np.abs(values[over]))))


def narrow(single: Array, dtype: str) -> Array:
    """Round float32 values and return the bits of ``dtype``."""
    if dtype == "bfloat16":
        return single.astype(ml_dtypes.bfloat16).view(np.uint16)
    return single.astype(NUMPY[dtype], copy=False)


def rounded_values(array: Array, dtype: str) -> Array:
    """Return float32 values as read back from a file that stores them in ``dtype``, in float32."""
    return array if dtype == "float32" else decode(narrow(array, dtype), dtype).astype(np.float32, copy=False)


def is_nonfinite(stored: Array, dtype: str) -> bool:
    """Return whether the stored values contain a NaN or infinity, without a copy, for any strides."""
    return bool(stored.size) and extremes(stored, dtype) is None


def extremes(stored: Array, dtype: str) -> tuple[float, float] | None:
    """Return the least and the greatest of the stored values, None if any is NaN or infinite; without a copy, for any
    strides.

    The bits of positive values are ordered as signed integers, those of negative ones reversed as unsigned integers.
    """
    size, infinity = stored.itemsize, _INFINITY[dtype]
    sign = 1 << (8 * size - 1)
    # Of the stored bits: np.isfinite would allocate an array, and numpy has no bfloat16 and is slow in float16.
    signed, unsigned = stored.view(f"<i{size}"), stored.view(f"<u{size}")
    top, bottom = int(signed.max()), int(unsigned.max())
    if top >= infinity or bottom >= infinity + sign:
        return None
    low = bottom if bottom >= sign else int(unsigned.min())
    high = top if top >= 0 else int(unsigned.min())
    values = decode(np.array([low, high], f"<u{size}").view(NUMPY[dtype]), dtype)
    return float(values[0]), float(values[1])


def typed(array: Array, dtype: str) -> Array:
    """Return an array in a dtype of PyTorch, contiguous; bfloat16 as the dtype of `ml_dtypes`."""
    target = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    # ascontiguousarray gives an array without axes the shape (1,).
    return np.ascontiguousarray(array.astype(target, copy=False)).reshape(array.shape)
