"""Candlesticks: which features are prices, and what is drawn of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from wdport.files.figure import draw_samples, figure_target
from wdport.files.series_figure import FALLS, RISES, DataWindows, draw_candles, is_prices

NAMES = ("open", "high", "low", "close", "volume")


def candles(count: int = 2, steps: int = 6) -> np.ndarray:
    """Prices that rise at even steps and fall at odd ones."""
    step = np.arange(steps)
    first = np.full(steps, 10.0)
    last = first + np.where(step % 2, -1.0, 1.0)
    one = np.stack([first, first + 2.0, first - 2.0, last, 5.0 + step], axis=1)
    return np.repeat(one[None], count, axis=0)


@pytest.mark.parametrize(
    ("names", "count", "prices"),
    [(NAMES, 5, True), (NAMES[:4], 4, True), (("Volume", "Close", "LOW", "high", "Open"), 5, True),
     ((*NAMES[:4], "turnover"), 5, False), (NAMES[1:], 4, False), (NAMES, 4, False), ((), 5, False),
     (("open", "open", "high", "low", "close"), 5, False)],
)  # fmt: skip
def test_which_features_are_prices(names: tuple[str, ...], count: int, prices: bool) -> None:
    assert is_prices(names, count) is prices


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (0, 1, 2, 3)])
def test_bodies_and_wicks_are_the_prices(order: tuple[int, ...]) -> None:
    """Whatever the order of the features is."""
    figure = Figure()
    draw_candles(figure, candles(1)[..., order], None, "time step", [NAMES[at] for at in order])
    panel = figure.axes[0]
    bodies = [(bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height(), bar.get_edgecolor())
              for bar in panel.patches]  # fmt: skip
    from matplotlib.colors import to_rgba

    rises = sorted(round(x) for x, low, tall, colour in bodies if colour == to_rgba(RISES) and (low, tall) == (10, 1))
    falls = sorted(round(x) for x, low, tall, colour in bodies if colour == to_rgba(FALLS) and (low, tall) == (9, 1))
    assert (rises, falls) == ([0, 2, 4], [1, 3, 5])
    ends = np.concatenate([np.asarray(line.get_segments())[:, :, 1] for line in panel.collections])
    assert ends.tolist() == [[8.0, 12.0]] * 6


def test_values_that_are_not_finite_are_left_out() -> None:
    values = candles(1)
    values[0, 2] = np.nan
    values[0, 3, 4] = np.inf
    figure = Figure()
    draw_candles(figure, values, None, "time step", NAMES)
    assert len(figure.axes[0].patches) == 4


def test_figures_are_written(tmp_path: Path) -> None:
    beside = DataWindows("data.csv", candles(3))
    for name, data in (("alone", None), ("both", beside)):
        target = figure_target(tmp_path / f"{name}.png", True, {})
        draw_samples(target, candles(12), None, "time step", NAMES, data)
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
