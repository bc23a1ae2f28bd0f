"""A transform for the tests of the pipeline: PyWavelets' own, or its matrix, under the pipeline's protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pywt


def truth(x: Any, wavelet: str = "db2", level: int = 2) -> Any:
    """The coefficients (..., C, F) that PyWavelets makes of (..., N, F)."""
    return np.concatenate(pywt.wavedec(x, wavelet, mode="symmetric", level=level, axis=-2), axis=-2)


class Exact:
    """One window and feature after the other: the same bits in any batch. ``calls`` holds the batches' shapes."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.coefficients = len(truth(np.zeros((length, 1))))
        self.calls: list[tuple[int, ...]] = []

    def decompose(self, x: Any) -> Any:
        self.calls.append(x.shape)
        return truth(x)
