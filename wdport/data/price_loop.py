"""The formulas of ``ohlc-atr`` as they are published, a step at a time, which gates compare the transform with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wdport.model import Array


def plain_prices(windows: Array, statistics: Mapping[str, Array]) -> Array:
    """Open, high, low, close and volume (B, N, 5) of windows (B, N, 5) with these statistics, in float64. It shares
    nothing with the vectorised transform."""
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
