"""Some sampled series in, a figure with a panel per feature out (PNG, SVG or PDF)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wdport.errors import MachineError, UsageError
from wdport.files.atomic import replacing
from wdport.files.target import Target
from wdport.files.writable import require_writable
from wdport.model import Array

FORMATS = (".png", ".svg", ".pdf")
LINES = 20
"""Series drawn at most: more of them hide one another."""

PANELS = 16


def figure_target(path: Path, force: bool = False, inputs: Mapping[str, Path] | None = None) -> Target:
    """Where a figure goes; raises an error where it cannot."""
    if path.suffix not in FORMATS:
        raise UsageError(path, "unknown figure format", f"end the name in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise MachineError(path, "drawing it needs matplotlib, which is not installed", "install wdport[figures]")
    require_writable(path, inputs, force, "--plot")
    return Target(path, path.suffix[1:])


def draw_samples(target: Target, values: Array, known: Array | None = None, place: str = "time step") -> None:
    """Draw the first :data:`LINES` of ``values`` (n, N, F), and ``known`` (N, F) as dots where it is finite.

    With more axes in place of N, they are one after another.
    """
    from matplotlib.figure import Figure

    values = values.reshape(len(values), -1, values.shape[-1])

    features = min(values.shape[2], PANELS)
    columns = int(np.ceil(np.sqrt(features)))
    rows = -(-features // columns)
    figure = Figure(figsize=(3.2 * columns, 2.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    steps = np.arange(values.shape[1])
    for feature, panel in enumerate(panels):
        if feature >= features:
            panel.set_axis_off()
            continue
        panel.plot(steps, values[:LINES, :, feature].T, color="tab:blue", linewidth=0.8, alpha=0.5)
        if known is not None:
            panel.plot(steps, known[:, feature], ".", color="black", markersize=4)
        panel.set_title(f"feature {feature + 1}", fontsize=9)
        panel.tick_params(labelsize=7)
    figure.supxlabel(place, fontsize=9)
    with replacing(target.path) as (temporary,):
        figure.savefig(temporary, format=target.format, dpi=150)
