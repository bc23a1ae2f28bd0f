"""The dtype in which sums and exponentials are taken, whatever the layers compute in."""

from __future__ import annotations

import keras
from keras import ops

from wdport.model import KerasTensor as Tensor


def wide(x: Tensor) -> Tensor:
    """``x`` in at least float32: sums and exponentials are not taken in 16 bits (nor does PyTorch)."""
    return ops.cast(x, "float32") if keras.backend.standardize_dtype(x.dtype) in ("bfloat16", "float16") else x
