"""The dtype of sums and exponentials, whatever the compute dtype of the layers."""

from __future__ import annotations

import keras
from keras import ops

from wdport.model import KerasTensor as Tensor


def wide(x: Tensor) -> Tensor:
    """``x`` in at least float32: sums and exponentials are not computed in 16 bits (nor in PyTorch)."""
    return ops.cast(x, "float32") if keras.backend.standardize_dtype(x.dtype) in ("bfloat16", "float16") else x
