"""The correlational score: how far the features' correlations of two sets of series are apart."""

from __future__ import annotations

from typing import Final

import numpy as np

from wdport.model import Array

DIVISOR: Final = 10.0
"""Of the sum over pairs, in the public evaluation."""


def correlations(series: Array) -> Array:
    """The correlations (F, F) of series (n, N, F): features standardised over windows and time, with the deviation of
    n N - 1 degrees of freedom."""
    flat = np.asarray(series, np.float64).reshape(-1, series.shape[-1])
    centred = flat - flat.mean(0)
    deviation = np.sqrt((centred**2).sum(0) / (len(flat) - 1))
    standard = centred / np.where(deviation > 0.0, deviation, 1.0)
    matrix: Array = standard.T @ standard / len(flat)
    return matrix


def correlational_score(real: Array, generated: Array) -> float:
    """The sum over pairs of features i >= j of the absolute differences of their correlations, divided by 10."""
    return float(np.tril(np.abs(correlations(real) - correlations(generated))).sum() / DIVISOR)
