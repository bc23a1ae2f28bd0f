"""Statistics of data by a second way: those of a conversion agree, and edits of their code are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.edits import edit
from tests.uses.data.test_transforms import prices
from wdport.uses.data import transforms, units
from wdport.uses.data.series import Series
from wdport.uses.data.statistics import Statistics
from wdport.uses.data.units import units_of

LENGTH = 8


def findings(series: Series, transform: str | None) -> list[Any]:
    """On a conversion of a model of this data, by the code as it is."""
    made = units_of(series, transform)
    settings = made.flags()
    if callable(packed := settings.get("window_statistics")):
        settings["window_statistics"] = packed(LENGTH)
    return list(made.differences({"seq_len": LENGTH, **settings}))


@pytest.mark.parametrize("transform", [None, "zscore", "log1p-volume", "ohlc-atr"])
@pytest.mark.parametrize("steps", [28, 90])
def test_statistics_of_a_conversion_agree(transform: str | None, steps: int) -> None:
    assert findings(prices(steps), transform) == []


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("shift", [0.0, 1.0, -3e9])
def test_statistics_of_any_units_agree(scale: float, shift: float) -> None:
    """Small deviations of large numbers, small volumes, and constants too."""
    values = scale * (np.random.default_rng(0).standard_normal((5000, 5)) + shift)
    values[:, 2] = 0.1 * scale
    assert findings(Series.of(values), "zscore") == []
    assert findings(Series.of(np.abs(values)), "log1p-volume") == []


EDITS: dict[str, tuple[str, Callable[..., Any], str, str, str]] = {
    "deviation by n - 1": ("zscore", Statistics.of, "table.std(axis=0)", "table.std(axis=0, ddof=1)", "norm_std"),
    "median": ("zscore", Statistics.of, "table.mean(axis=0)", "np.median(table, axis=0)", "norm_mean"),
    "log": ("log1p-volume", units.logarithmic, "np.log1p(", "np.log(", "norm_mean"),
    "decimal log": ("log1p-volume", units.logarithmic, "np.log1p(", "np.log10(1.0 + ", "norm_mean"),
    "smoothing of 2 / 15": ("ohlc-atr", transforms._average_true_range,
                            "average * (1.0 - 1.0 / ATR_PERIOD) + true[step] / ATR_PERIOD",
                            "average * 13.0 / 15.0 + true[step] * 2.0 / 15.0", "window_statistics, atr_pcts,"),
    "range without the close before": ("ohlc-atr", transforms._average_true_range, "[close[:1], close[:-1]]", "[close]",
                                       "window_statistics, atr_pcts,"),
    "first range instead of the mean": ("ohlc-atr", transforms._average_true_range, "true[:ATR_PERIOD].mean()",
                                        "true[ATR_PERIOD - 1]", "window_statistics, atr_pcts,"),
    "volumes of 19 steps": ("ohlc-atr", transforms._moving_average, "(sums[AVERAGE_PERIOD:]",
                            "(sums[AVERAGE_PERIOD - 1:-1]", "window_statistics, vol_smas,"),
}  # fmt: skip
"""A transform, an edit of its statistics, and what is then named."""


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_statistics_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transform, function, old, new, place = EDITS[name]
    edit(monkeypatch, function, old, new)
    found = findings(prices(60), transform)
    assert any(str(each).startswith(f"{place} in the converted file is not what the formula gives") for each in found)


class Mine:
    """Windows as they are, with their first values."""

    def __init__(self, length: int) -> None:
        self.length = length

    def forward(self, series: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(series.values, self.length, axis=0).transpose(0, 2, 1)
        return windows, {"first": windows[:, 0, 0]}

    def inverse(self, windows: Any, statistics: Any) -> Any:
        return windows


def test_those_of_the_users_transform_are_compared_with_themselves() -> None:
    (found,) = findings(prices(30), f"{__name__}:Mine")
    assert f"are compared with what {__name__}:Mine computes, which has also made them" in str(found)
    assert found.kind == "notice"
