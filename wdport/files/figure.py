"""Draw samples: series as lines, images in a grid, points in a plane; with real data for comparison, if any."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wdport.files.atomic import replacing
from wdport.files.model_target import Needed, Target, file_target
from wdport.files.series_figure import (
    BLUE,
    LINES,
    LINES_BESIDE,
    DataWindows,
    draw_candles,
    draw_series,
    draw_with_data,
    is_prices,
)
from wdport.models.interface import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS: Final = (".png", ".svg", ".pdf")
ANIMATED: Final = (".gif",)

IMAGES: Final = 100
POINTS: Final = 20_000

MOST: Final = 1000
MOST_VALUES: Final = 10_000_000
"""Limits on the series whose quantiles are drawn, and on all their values."""

COLOURS: Final = (1, 3, 4)
"""Numbers of channels of an image that can be drawn: grey, RGB, and RGBA."""

FRAMES_PER_SECOND: Final = 12

DRAWN: Final = Needed("matplotlib", "matplotlib", "figures")
"""What drawing needs."""


def figure_target(
    path: Path,
    force: bool = False,
    inputs: Mapping[str, Path] | None = None,
    option: str = "--plot",
    formats: tuple[str, ...] = FORMATS,
) -> Target:
    """Return the target of a figure; raises an error if it cannot be written."""
    return file_target(path, formats, inputs, force, option, dict.fromkeys(formats, DRAWN), "figure")


def max_drawn(shape: tuple[int, ...], beside: bool = False) -> int:
    """Return how many samples of this shape a figure shows, as lines or, with data ``beside``, as quantiles."""
    if is_point(shape) or is_image(shape):
        return POINTS if is_point(shape) else IMAGES
    return min(MOST, max(LINES_BESIDE, MOST_VALUES // prod(shape))) if beside else LINES


def is_point(shape: tuple[int, ...]) -> bool:
    """Return whether a sample of this shape is a point in a plane."""
    return shape == (2,)


def is_image(shape: tuple[int, ...]) -> bool:
    """Return whether a sample of this shape, (height, width, channels), is an image."""
    return len(shape) == 3 and shape[-1] in COLOURS


def draw_samples(
    target: Target,
    values: Array,
    known_values: Array | None = None,
    place: str = "time step",
    features: Sequence[str] = (),
    beside: DataWindows | None = None,
) -> None:
    """Draw some of ``values`` (n, *shape), and ``known_values`` (*shape) as dots where they are finite; known steps of
    prices are shaded.

    A shape (2,) is a point; (height, width, channels) with a number of channels that colours have is an image, its
    values from 0 to 1; (..., F) is a series with F features, and (N,) one with a single feature. ``features`` are
    their names, if any; series of prices (open, high, low, close) are drawn as candlesticks. Real windows ``beside``
    samples are drawn for points and series.
    """
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    shape = values.shape[1:]
    selection = values[: max_drawn(shape, beside is not None)]
    if len(shape) == 2 and is_prices(features, shape[-1]):
        draw_candles(figure, selection, known_values, place, features, beside)
    elif beside is None or is_image(shape):
        _drawn(figure, selection, known_values, place, features)
    elif is_point(shape):
        _points(figure, selection, None, beside)
    else:
        draw_with_data(figure, selection, known_values, place, features, beside)
    with replacing(target.output) as (temporary,), any_script():
        figure.savefig(temporary, format=target.format, dpi=150)


def animate_samples(target: Target, states: Array, place: str = "time step", features: Sequence[str] = ()) -> None:
    """Draw ``states`` (frames, n, *shape) one after another, as :func:`draw_samples` does, and pause on the last."""
    from matplotlib.animation import PillowWriter
    from matplotlib.figure import Figure

    selection = states[:, : max_drawn(states.shape[2:])]
    finite = selection[np.isfinite(selection)]
    # One scale for all frames: an axis that follows each frame would hide the change.
    low, high = (float(np.min(finite)), float(np.max(finite))) if finite.size else (0.0, 1.0)
    figure = Figure(layout="constrained")
    writer = PillowWriter(fps=FRAMES_PER_SECOND)
    with replacing(target.output) as (temporary,), writer.saving(figure, temporary, dpi=80), any_script():
        for frame in (*selection, *[selection[-1]] * FRAMES_PER_SECOND):
            figure.clear()
            _drawn(figure, frame, None, place, features, (low, high), selection[-1])
            writer.grab_frame()


@contextmanager
def any_script() -> Iterator[None]:
    """Suppress warnings about letters of a feature's name that the font lacks."""
    with warnings.catch_warnings():
        # matplotlib draws a box for such a letter, which is still a readable figure.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def _drawn(
    figure: Figure,
    values: Array,
    known_values: Array | None,
    place: str,
    features: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
    last: Array | None = None,
) -> None:
    if is_point(values.shape[1:]):
        _points(figure, values, limits)
    elif is_image(values.shape[1:]):
        _images(figure, values)
    else:
        draw_series(figure, values, known_values, place, features, limits, last)


def _points(
    figure: Figure, values: Array, limits: tuple[float, float] | None, beside: DataWindows | None = None
) -> None:
    groups = [("", values)] if beside is None else [("data", beside.windows[:POINTS]), ("samples", values)]
    figure.set_size_inches(5.0 * len(groups), 5.0)
    for panel, (title, points) in zip(
        figure.subplots(1, len(groups), squeeze=False, sharex=True, sharey=True)[0], groups, strict=True
    ):
        panel.plot(points[:, 0], points[:, 1], ".", color=BLUE, markersize=2, alpha=0.5)
        panel.set_aspect("equal")
        panel.set_title(title)
        if limits is not None:
            panel.set_xlim(*limits)
            panel.set_ylim(*limits)


def _images(figure: Figure, values: Array) -> None:
    count = len(values)
    columns = 10 if count > 10 and count % 10 == 0 else int(np.ceil(np.sqrt(count)))  # ten classes in turn
    rows = -(-count // columns)
    figure.set_size_inches(0.8 * columns, 0.8 * rows)
    for panel in (panels := figure.subplots(rows, columns, squeeze=False).ravel()):
        panel.set_axis_off()
    grey: dict[str, Any] = {"cmap": "gray", "vmin": 0.0, "vmax": 1.0} if values.shape[-1] == 1 else {}
    for panel, image in zip(panels, np.clip(np.nan_to_num(values), 0.0, 1.0), strict=False):
        panel.imshow(image[..., 0] if grey else image, interpolation="nearest", **grey)
