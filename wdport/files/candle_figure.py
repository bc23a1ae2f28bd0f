"""Draw series of prices as candlesticks, with real windows for comparison, if any.

A candle is filled if the price falls. Its line goes from the lowest to the highest price of the step, and its body from
the first to the last one; bars below are volumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wdport.errors import printable
from wdport.files.series_figure import NAME_CHARS, DataWindows, as_series, evenly
from wdport.model import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRICES: Final = ("open", "high", "low", "close")
ROWS: Final = 3
COLUMNS: Final = 3
ROWS_BESIDE: Final = 4

RISES: Final = "#0072B2"
FALLS: Final = "#D55E00"
VOLUME: Final = "0.8"
BODY: Final = 0.7
SHADE: Final = "0.92"
VOLUME_SHARE: Final = 4.0
"""The tallest bar of volume is this part of the panel's height."""


def is_prices(features: Sequence[str], count: int) -> bool:
    """Whether the names of ``count`` features are those of prices, with or without a volume."""
    names = [name.casefold() for name in features]
    return len(names) == count and len(set(names)) == count and set(names) - {"volume"} == set(PRICES)


def draw_candles(
    figure: Figure,
    values: Array,
    known_values: Array | None,
    place: str,
    features: Sequence[str],
    beside: DataWindows | None = None,
) -> None:
    """Draw the first of ``values`` (n, N, F), a panel each; windows of the data in a separate column.

    Steps of the samples with ``known_values`` (N, F) are shaded.
    """
    samples = _ordered(as_series(values), features)
    steps = () if known_values is None else np.flatnonzero(np.isfinite(known_values).any(axis=-1))
    if beside is None:
        rows = min(ROWS, -(-len(samples) // COLUMNS))
        figure.set_size_inches(4.4 * COLUMNS, 2.7 * rows + 0.4)
        panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        _fill(panels, samples, steps)
    else:
        data = _ordered(as_series(beside.windows), features)
        rows = min(ROWS_BESIDE, max(len(samples), 1))
        figure.set_size_inches(11.0, 2.5 * rows + 0.6)
        columns = figure.subplots(rows, 2, squeeze=False)
        _fill(columns[:, 0], evenly(data, rows))
        _fill(columns[:, 1], samples, steps)
        name = printable(beside.name, NAME_CHARS)
        columns[0, 0].set_title(f"data: {min(rows, len(data))} of {len(data)} windows of {name}", fontsize=11,
                                parse_math=False)  # fmt: skip
        columns[0, 1].set_title(f"samples: the first {min(rows, len(samples))}", fontsize=11, parse_math=False)
    figure.supxlabel(place, fontsize=10, parse_math=False)


def _ordered(values: Array, features: Sequence[str]) -> Array:
    """The features open, high, low, close and, if there is one, volume."""
    names = [name.casefold() for name in features]
    return values[..., [names.index(name) for name in (*PRICES, "volume") if name in names]]


def _fill(panels: Any, series: Array, shaded: Iterable[int] = ()) -> None:
    for panel, values in zip(panels, series, strict=False):
        back = _candles(panel, values)
        for step in shaded:
            back.axvspan(step - 0.5, step + 0.5, color=SHADE, linewidth=0.0, zorder=0)
    for panel in panels[len(series) :]:
        panel.set_axis_off()


def _candles(panel: Axes, values: Array) -> Axes:
    """Draw one series; returns the axes that lie behind all others."""
    back = panel
    first, high, low, last = values[:, :4].T
    steps = np.arange(len(values))
    finite = np.isfinite(values).all(axis=1)
    falls = last < first
    for chosen, colour, inside in ((~falls & finite, RISES, "white"), (falls & finite, FALLS, FALLS)):
        panel.vlines(steps[chosen], low[chosen], high[chosen], color=colour, linewidth=0.9, zorder=2)
        body = np.abs(last - first)[chosen]
        panel.bar(steps[chosen], body, BODY, np.minimum(first, last)[chosen], color=inside, edgecolor=colour,
                  linewidth=0.9, zorder=3)  # fmt: skip
    if values.shape[1] > len(PRICES):
        back = below = panel.twinx()
        below.bar(steps[finite], values[finite, 4], BODY, color=VOLUME)
        tallest = float(values[finite, 4].max(initial=0.0))
        below.set_ylim(0.0, VOLUME_SHARE * tallest if np.isfinite(tallest) and tallest > 0 else 1.0)
        below.set_axis_off()
        panel.set_zorder(below.get_zorder() + 1)
        panel.patch.set_visible(False)
    panel.tick_params(labelsize=8)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    return back
