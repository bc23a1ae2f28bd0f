"""The published formulas of statistics and of ``ohlc-atr`` in plain loops, for comparisons with the code that is used,
with which they share nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum, log1p, sqrt

import numpy as np

from wdport.models.interface import Array


def plain_statistics(values: Array, logged: int | None = None) -> tuple[list[float], list[float]]:
    """The mean and standard deviation, by n and not n - 1, of every feature of values (T, F), summed exactly; for the
    feature ``logged``, those of the logarithm of 1 + it. The deviation of a constant is 1."""
    means, deviations = [], []
    for feature, column in enumerate(np.asarray(values, np.float64).T.tolist()):
        numbers = [log1p(value) for value in column] if feature == logged else column
        mean = fsum(numbers) / len(numbers)
        variance = fsum((value - mean) ** 2 for value in numbers) / len(numbers)
        means.append(mean)
        deviations.append(1.0 if min(numbers) == max(numbers) else sqrt(variance) or 1.0)
    return means, deviations


def plain_window_statistics(prices: Array, length: int) -> dict[str, Array]:
    """The statistics of every window of ``length`` steps of open, high, low, close and volume (T, 5): Wilder's average
    true range over 14 steps, and the mean volume of 20 steps, before which there are no windows."""
    rows = np.asarray(prices, np.float64).tolist()
    ranges, average = [], 0.0
    for step, (_, high, low, _, _) in enumerate(rows):
        before = rows[step - 1][3] if step else rows[0][3]
        true = max(high - low, abs(high - before), abs(low - before))
        average = average + true / 14.0 if step < 14 else (13.0 * average + true) / 14.0
        ranges.append(average)
    volumes = [fsum(row[4] for row in rows[step - 19 : step + 1]) / 20.0 for step in range(19, len(rows))]
    starts = range(19, len(rows) - length + 1)
    anchors = [rows[start][0] for start in starts]
    means = [fsum(ranges[start : start + length]) / length for start in starts]
    return {
        "anchors": np.array(anchors),
        "atr_pcts": np.array([max(100.0 * mean / anchor, 1e-6) for mean, anchor in zip(means, anchors, strict=True)]),
        "vol_smas": np.array([volumes[start - 19 : start - 19 + length] for start in starts]),
    }


def plain_prices(windows: Array, statistics: Mapping[str, Array]) -> Array:
    """Open, high, low, close and volume (B, N, 5) of windows (B, N, 5) with these statistics, in float64."""
    prices = np.zeros(windows.shape)
    for index, (anchor, percent) in enumerate(zip(statistics["anchors"], statistics["atr_pcts"], strict=True)):
        unit = float(anchor) * float(percent) / 100.0
        for step, (first, body, upper, lower, volume) in enumerate(windows[index].astype(np.float64)):
            opened = float(anchor) + first * unit
            closed = opened + body * unit
            high, low = max(opened, closed) + max(upper, 0.0) * unit, min(opened, closed) - max(lower, 0.0) * unit
            shares = float(np.exp(min(max(volume, -20.0), 20.0))) * float(statistics["vol_smas"][index, step])
            prices[index, step] = opened, high, low, closed, shares
    return prices
