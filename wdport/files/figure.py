"""Some samples in, a figure of them out: series as lines, images in a grid, points in a plane."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wdport.errors import MachineError, UsageError
from wdport.files.atomic import replacing
from wdport.files.target import Target
from wdport.files.writable import require_writable
from wdport.model import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS: Final = (".png", ".svg", ".pdf")
ANIMATED: Final = (".gif",)

LINES: Final = 20
"""Series drawn at most: more of them hide one another."""

IMAGES: Final = 100
POINTS: Final = 20_000

PANELS: Final = 16
COLOURS: Final = (1, 3, 4)
"""Channels of an image that can be drawn: grey, red, green and blue, and those with an opacity."""

FRAMES_PER_SECOND: Final = 12


def figure_target(
    path: Path,
    force: bool = False,
    inputs: Mapping[str, Path] | None = None,
    option: str = "--plot",
    formats: tuple[str, ...] = FORMATS,
) -> Target:
    """Where a figure goes; raises an error where it cannot."""
    if path.suffix not in formats:
        raise UsageError(path, "unknown figure format", f"end the name in {', '.join(formats)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise MachineError(path, "drawing it needs matplotlib, which is not installed", "install wdport[figures]")
    require_writable(path, inputs, force, option)
    return Target(path, path.suffix[1:])


def drawn_at_most(shape: tuple[int, ...]) -> int:
    """How many samples of this shape a figure shows."""
    return POINTS if is_point(shape) else IMAGES if is_image(shape) else LINES


def is_point(shape: tuple[int, ...]) -> bool:
    """Whether a sample of this shape is a point in a plane."""
    return shape == (2,)


def is_image(shape: tuple[int, ...]) -> bool:
    """Whether a sample of this shape, (height, width, channels), is an image."""
    return len(shape) == 3 and shape[-1] in COLOURS


def draw_samples(target: Target, values: Array, known: Array | None = None, place: str = "time step") -> None:
    """Draw some of ``values`` (n, *shape), and ``known`` (*shape) as dots where it is finite.

    A shape (2,) is a point; (height, width, channels) with as many channels as colours have is an image, its values
    from 0 to 1; (..., F) is a series with F features, and (N,) one with a single feature.
    """
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    _drawn(figure, values[: drawn_at_most(values.shape[1:])], known, place)
    with replacing(target.path) as (temporary,):
        figure.savefig(temporary, format=target.format, dpi=150)


def animate_samples(target: Target, states: Array, place: str = "time step") -> None:
    """Draw ``states`` (frames, n, *shape) one after another, as :func:`draw_samples` does, and hold the last."""
    from matplotlib.animation import PillowWriter
    from matplotlib.figure import Figure

    shown = states[:, : drawn_at_most(states.shape[2:])]
    finite = shown[np.isfinite(shown)]
    low, high = (float(np.min(finite)), float(np.max(finite))) if finite.size else (0.0, 1.0)
    figure = Figure(layout="constrained")
    writer = PillowWriter(fps=FRAMES_PER_SECOND)
    with replacing(target.path) as (temporary,), writer.saving(figure, temporary, dpi=80):
        for frame in (*shown, *[shown[-1]] * FRAMES_PER_SECOND):
            figure.clear()
            _drawn(figure, frame, None, place, (low, high))
            writer.grab_frame()


def _drawn(
    figure: Figure, values: Array, known: Array | None, place: str, limits: tuple[float, float] | None = None
) -> None:
    if is_point(values.shape[1:]):
        _points(figure, values, limits)
    elif is_image(values.shape[1:]):
        _images(figure, values)
    else:
        _series(figure, values, known, place, limits)


def _points(figure: Figure, values: Array, limits: tuple[float, float] | None) -> None:
    figure.set_size_inches(5.0, 5.0)
    panel = figure.subplots()
    panel.plot(values[:, 0], values[:, 1], ".", color="tab:blue", markersize=2, alpha=0.5)
    panel.set_aspect("equal")
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


def _series(figure: Figure, values: Array, known: Array | None, place: str, limits: tuple[float, float] | None) -> None:
    values = values.reshape(len(values), -1, values.shape[-1] if values.ndim > 2 else 1)
    features = min(values.shape[2], PANELS)
    columns = int(np.ceil(np.sqrt(features)))
    rows = -(-features // columns)
    figure.set_size_inches(3.2 * columns, 2.2 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    steps = np.arange(values.shape[1])
    for feature, panel in enumerate(panels):
        if feature >= features:
            panel.set_axis_off()
            continue
        panel.plot(steps, values[:, :, feature].T, color="tab:blue", linewidth=0.8, alpha=0.5)
        if known is not None:
            panel.plot(steps, known.reshape(values.shape[1:])[:, feature], ".", color="black", markersize=4)
        panel.set_title(f"feature {feature + 1}", fontsize=9)
        panel.tick_params(labelsize=7)
        if limits is not None:
            panel.set_ylim(*limits)
    figure.supxlabel(place, fontsize=9)
