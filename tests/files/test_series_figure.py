"""Figures of series: which are drawn, in which colours, beside which windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from wdport.files.figure import figure_target, max_drawn
from wdport.files.series_figure import LINES_BESIDE, DataWindows, colours_of, draw_series, draw_with_data, evenly

RNG = np.random.default_rng(0)


def test_windows_are_spread_evenly() -> None:
    assert evenly(np.arange(100)[:, None], 4)[:, 0].tolist() == [0, 33, 66, 99]
    assert evenly(np.arange(3)[:, None], 4)[:, 0].tolist() == [0, 1, 2]


def test_a_series_has_one_colour_by_the_mean_of_its_first_feature() -> None:
    values = np.zeros((3, 4, 2))
    values[:, :, 0] = np.array([5.0, -1.0, np.nan])[:, None]
    figure = Figure()
    draw_series(figure, values, None, "time step", ("a", "b"))
    one, other = ([to_hex(line.get_color()) for line in panel.lines] for panel in figure.axes[:2])
    assert one == other == [to_hex(colour) for colour in colours_of(values)]
    assert len(set(one)) == 3
    luminance = [sum(np.array([0.3, 0.6, 0.1]) * np.array(colour[:3])) for colour in colours_of(values)]
    assert luminance[0] > luminance[2] > luminance[1]


@pytest.mark.parametrize("count", [3, 30])
def test_data_and_samples_share_their_scale(count: int) -> None:
    samples, data = RNG.standard_normal((count, 6, 10)), RNG.standard_normal((25, 6, 10)) * 9
    figure = Figure()
    draw_with_data(figure, samples, None, "time step", (), DataWindows("data.csv", data))
    columns = 2 if count == 3 else 3  # a 5 % quantile of three is none
    panels = np.array(figure.axes).reshape(-1, columns)
    assert len(panels) == 8
    assert [len(panel.lines) for panel in panels[0, :2]] == [LINES_BESIDE, min(count, LINES_BESIDE)]
    assert all(len({panel.get_ylim() for panel in row}) == 1 for row in panels)
    assert np.array_equal(panels[1, 0].lines[-1].get_ydata(), data[-1, :, 1])
    assert np.array_equal(panels[1, 1].lines[0].get_ydata(), samples[0, :, 1])
    if columns == 3:
        drawn = np.array([line.get_ydata() for line in panels[2, 2].lines])
        expected = [*np.quantile(data[:, :, 2], [0.5], axis=0),
                    *np.quantile(samples[:, :, 2], [0.05, 0.95, 0.25, 0.75, 0.5], axis=0)]  # fmt: skip
        np.testing.assert_allclose(drawn, expected)
    assert "the first 8 of 10 features" in figure.texts[-1].get_text()


def test_long_series_are_drawn_within_bounded_memory() -> None:
    assert max_drawn((72, 3), True) == 1000
    assert max_drawn((1_000_000, 10), True) == LINES_BESIDE


def test_names_that_look_like_mathematics_are_drawn_as_they_are(tmp_path: Path) -> None:
    from wdport.files.figure import draw_samples

    values = RNG.standard_normal((2, 6, 2))
    for beside in (None, DataWindows("$\\frac$.csv", values)):
        draw_samples(figure_target(tmp_path / "a.svg"), values, None, "time step", ("$\\frac{1}$", "$"), beside)
        text = (tmp_path / "a.svg").read_text(encoding="utf-8")
        assert "<!-- $\\frac{1}$ -->" in text
        (tmp_path / "a.svg").unlink()
