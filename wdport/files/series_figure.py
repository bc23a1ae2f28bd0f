"""Draw series as lines or prices as candlesticks, with real windows for comparison, if any, and quantiles.

A candle is filled if the price falls. Its line goes from the lowest to the highest price of the step, and its body from
the first to the last one; bars below are volumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wdport.base.errors import printable
from wdport.models.interface import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES: Final = 20
"""Maximum number of series drawn: more would hide one another."""

LINES_BESIDE: Final = 12
"""Maximum number of series in each of two adjacent panels, which are compared line by line."""

PANELS: Final = 16
ROWS: Final = 8
"""Maximum number of features drawn: without data, and with data."""

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
FEWEST: Final = 20
"""Number of series from which a 5 % quantile is meaningful."""

NAME_CHARS: Final = 36
"""Maximum characters of a feature's name next to an axis."""

WARMEST: Final = 0.85
"""The end of the used part of the colour map: later colours are too pale on white."""

BLUE: Final = "#0072B2"
BAND: Final = "0.5"


@dataclass(frozen=True)
class DataWindows:
    """Real data shown with samples: ``windows`` (m, *shape) of the file ``name``, in the same units."""

    name: str
    windows: Array


def draw_series(
    figure: Figure,
    values: Array,
    known_values: Array | None,
    place: str,
    features: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
    last: Array | None = None,
) -> None:
    """Draw series ``values`` (n, ..., F), or (n, N) of one feature, over each other in a panel per feature.

    A series has the same colour in every panel, by the mean of its first feature; in a frame of an animation, by that
    of the ``last`` frame.
    """
    colours = colours_of(as_series(values if last is None else last)[:LINES])
    values = as_series(values)
    count = min(values.shape[2], PANELS)
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    figure.set_size_inches(4.0 * columns, 2.4 * rows + 0.3)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for feature, panel in enumerate(panels):
        if feature >= count:
            panel.set_axis_off()
            continue
        _lines(panel, values[:LINES, :, feature], colours)
        _dots(panel, known_values, feature, values.shape[1:])
        _plain(panel)
        panel.set_title(feature_label(features, feature, values.shape[2]), fontsize=10, parse_math=False)
        if limits is not None:
            panel.set_ylim(*limits)
    figure.supxlabel(f"{place}\n{_caption(features, values.shape[2], PANELS)}", fontsize=9, parse_math=False)


def draw_with_data(
    figure: Figure, values: Array, known_values: Array | None, place: str, features: Sequence[str], beside: DataWindows
) -> None:
    """Draw a row per feature: windows of the data, spread evenly over it, the first samples, and quantiles of both.

    The panels of a row have one scale. A series has the same colour in every row, by the mean of its first feature.
    """
    samples, data = as_series(values), as_series(beside.windows)
    rows, fan = min(samples.shape[2], ROWS), min(len(samples), len(data)) >= FEWEST
    left, right = evenly(data, LINES_BESIDE), samples[:LINES_BESIDE]
    colours = colours_of(np.concatenate([left, right]))
    figure.set_size_inches(13.0 if fan else 9.0, 2.2 * rows + 1.3)
    panels = figure.subplots(rows, 3 if fan else 2, squeeze=False, sharex=True, sharey="row")
    for feature, row in enumerate(panels):
        _lines(row[0], left[:, :, feature], colours[: len(left)])
        _lines(row[1], right[:, :, feature], colours[len(left) :])
        _dots(row[1], known_values, feature, samples.shape[1:])
        if fan:
            _fan(row[2], data[:, :, feature], samples[:, :, feature])
        for panel in row:
            _plain(panel)
        label = feature_label(features, feature, samples.shape[2])
        row[0].set_ylabel(label, fontsize=10, parse_math=False)
    titles = [
        f"data: {len(left)} of {len(data)} windows of {printable(beside.name, NAME_CHARS)}",
        f"samples: the first {len(right)}",
        f"quantiles of {len(data)} windows and {len(samples)} samples",
    ]
    for panel, title in zip(panels[0], titles, strict=False):
        panel.set_title(title, fontsize=11, parse_math=False)
    if fan:
        figure.legend(*panels[0, 2].get_legend_handles_labels(), fontsize=9, loc="outside lower right", ncols=2)
    figure.supxlabel(place, fontsize=10)
    caption = _caption(features, samples.shape[2], ROWS)
    figure.text(0.01, 0.01, caption, fontsize=9, color="0.35", ha="left", va="bottom", parse_math=False)


def as_series(values: Array) -> Array:
    """Reshape (n, ..., F), or (n, N) of one feature, to (n, N, F)."""
    return values.reshape(len(values), -1, values.shape[-1] if values.ndim > 2 else 1)


def evenly(values: Array, count: int) -> Array:
    """Return ``count`` of ``values`` (n, ...), evenly spaced from the first to the last; all if there are fewer."""
    chosen: Array = values[np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(int)]
    return chosen


def colours_of(values: Array) -> list[Any]:
    """Return a colour for each of ``values`` (n, N, F), from dark to warm by the rank of the mean of its first
    feature."""
    from matplotlib import colormaps

    with np.errstate(invalid="ignore"):
        # The argsort of an argsort is each element's rank.
        ranks = np.argsort(np.argsort(np.nan_to_num(values[:, :, 0]).mean(axis=1), kind="stable"), kind="stable")
    return list(colormaps["plasma"](WARMEST * ranks / max(1, len(values) - 1)))


def feature_label(features: Sequence[str], feature: int, count: int) -> str:
    """Return a feature's name, shortened for an axis; ``feature 3`` if the ``count`` features have no names."""
    return printable(features[feature], NAME_CHARS) if len(features) == count else f"feature {feature + 1}"


def _lines(panel: Axes, values: Array, colours: Sequence[Any]) -> None:
    for series, colour in zip(values, colours, strict=True):
        panel.plot(series, color=colour, linewidth=1.1, alpha=0.85)


def _dots(panel: Axes, known_values: Array | None, feature: int, shape: tuple[int, ...]) -> None:
    if known_values is not None:
        panel.plot(known_values.reshape(shape)[:, feature], ".", color="black", markersize=4, zorder=3)


def _fan(panel: Axes, data: Array, samples: Array) -> None:
    """Draw quantiles at every step: those of ``data`` (m, N) as bands, those of ``samples`` (n, N) as lines."""
    steps = np.arange(data.shape[1])
    low, lower, middle, upper, high = np.nanquantile(data, QUANTILES, axis=0)
    panel.fill_between(steps, low, high, color=BAND, alpha=0.22, linewidth=0, label="data, 5 to 95 %")
    panel.fill_between(steps, lower, upper, color=BAND, alpha=0.35, linewidth=0, label="25 to 75 %")
    panel.plot(steps, middle, color="0.25", linewidth=2.5, label="median")
    styles = {":": (0, 4), "--": (1, 3), "-": (2,)}
    names = {":": "samples, 5 and 95 %", "--": "25 and 75 %", "-": "median"}
    quantiles = np.nanquantile(samples, QUANTILES, axis=0)
    for style, places in styles.items():
        for number, index in enumerate(places):
            label = "" if number else names[style]
            panel.plot(steps, quantiles[index], style, color=BLUE, linewidth=1.5, label=label or None)


def _plain(panel: Axes) -> None:
    panel.tick_params(labelsize=9)
    panel.grid(color="0.92", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(x=0.01)


def _caption(features: Sequence[str], count: int, limit: int) -> str:
    colour = f"colour: mean of {feature_label(features, 0, count)} over a series, from low (dark) to high (bright)"
    return f"{colour}\nthe first {limit} of {count} features" if count > limit else colour


PRICES: Final = ("open", "high", "low", "close")
CANDLE_ROWS: Final = 3
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
        rows = min(CANDLE_ROWS, -(-len(samples) // COLUMNS))
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
        # twinx draws its axes on top; prices must hide the bars of volume, and their panel must let them show through.
        panel.set_zorder(below.get_zorder() + 1)
        panel.patch.set_visible(False)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    return back
