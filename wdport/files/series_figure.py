"""Draw series as lines, one panel per feature, with real windows for comparison, if any, and the quantiles of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wdport.errors import printable
from wdport.model import Array

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
