"""Transforms: the way back, plain loops of the same formulas, packing, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdport.base.errors import InputError, UsageError, WdportError
from wdport.base.limits import MAX_FEATURES
from wdport.uses.data.series import Series
from wdport.uses.data.transforms import (
    OHLCV,
    OhlcAtr,
    WindowStatistics,
    by_window,
    checked_name,
    transform_of,
    windows_of,
)
from wdport.uses.data.units import read_units, units_of


def prices(steps: int = 60, seed: int = 0, names: tuple[str, ...] = OHLCV) -> Series:
    """A random walk of prices, with volumes."""
    rng = np.random.default_rng(seed)
    close = 50.0 * np.exp(np.cumsum(rng.normal(0.0, 0.02, steps)))
    first = close * np.exp(rng.normal(0.0, 0.01, steps))
    high = np.maximum(first, close) * (1.0 + rng.random(steps) * 0.02)
    low = np.minimum(first, close) * (1.0 - rng.random(steps) * 0.02)
    volume = np.exp(rng.normal(15.0, 0.5, steps))
    return Series(np.stack([first, high, low, close, volume], axis=1), names)


def by_hand(series: Series, start: int, length: int) -> tuple[list[list[float]], float, float, list[float]]:
    """One window by the formulas, a step at a time."""
    rows = series.values.tolist()
    atr, found = 0.0, []
    for at, (_, high, low, _, _) in enumerate(rows):
        before = rows[max(at - 1, 0)][3]
        true = max(high - low, abs(high - before), abs(low - before))
        if at < 14:
            atr += true / 14
        else:
            atr = atr * (1 - 1 / 14) + true / 14
        found.append(atr)
    window = range(start + 19, start + 19 + length)
    anchor = rows[start + 19][0]
    percent = max(sum(found[at] for at in window) / length / anchor * 100, 1e-6)
    averages = [sum(rows[at - back][4] for back in range(20)) / 20 for at in window]
    made = []
    for at, average in zip(window, averages, strict=True):
        o, h, low, c, v = rows[at]
        unit = anchor * percent / 100
        made.append([(o - anchor) / unit, (c - o) / unit, (h - max(o, c)) / unit, (min(o, c) - low) / unit,
                     float(np.log((v + 1e-6) / (average + 1e-6)))])  # fmt: skip
    return made, anchor, percent, averages


@pytest.mark.parametrize("start", [0, 7, 33])
def test_a_window_is_that_of_the_formulas(start: int) -> None:
    series = prices()
    windows, statistics = OhlcAtr(8).forward(series)
    made, anchor, percent, averages = by_hand(series, start, 8)
    np.testing.assert_allclose(windows[start], made, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(statistics["anchors"][start], anchor)
    np.testing.assert_allclose(statistics["atr_pcts"][start], percent)
    np.testing.assert_allclose(statistics["vol_smas"][start], averages)
    assert len(windows) == 60 - 19 - 8 + 1


def test_the_way_back_gives_the_prices() -> None:
    series = prices(80)
    windows, statistics = OhlcAtr(12).forward(series)
    back = OhlcAtr(12).inverse(windows, statistics)
    rows = series.values[19:]
    for at in range(len(windows)):
        np.testing.assert_allclose(back[at], rows[at : at + 12], rtol=1e-9)


@given(st.integers(0, 4), st.integers(0, 7))
def test_known_values_are_converted_as_far_as_they_determine_a_window(column: int, step: int) -> None:
    """Without an open price nothing but the volume is known; without a close price the body and both wicks are not."""
    transform = OhlcAtr(8)
    windows, statistics = transform.forward(prices(40))
    series = transform.inverse(windows, statistics)
    np.testing.assert_allclose(transform.normalize(series, statistics), windows, rtol=1e-9, atol=1e-9)
    series[:, step, column] = np.nan
    lost = {0: [0, 1, 2, 3], 1: [2], 2: [3], 3: [1, 2, 3], 4: [4]}[column]
    wanted = np.zeros(windows.shape, bool)
    wanted[:, step, lost] = True
    assert np.array_equal(np.isnan(transform.normalize(series, statistics)), wanted)


def test_the_window_whose_volumes_are_nearest() -> None:
    transform = OhlcAtr(8)
    _, statistics = transform.forward(prices(40))
    series = np.full((8, 5), np.nan)
    assert transform.nearest(series, statistics) is None
    for window in range(len(statistics["anchors"])):
        series[:3, 4] = statistics["vol_smas"][window, :3]
        assert transform.nearest(series, statistics) == window


def test_wicks_and_volumes_of_samples_stay_possible() -> None:
    """A wick below 0 and a volume beyond all bounds, as a network may draw them."""
    windows = np.zeros((2, 3, 5))
    windows[0, :, 2:4] = -5.0
    windows[1, :, 4] = 1e9
    statistics = {"anchors": np.array([100.0, 10.0]), "atr_pcts": np.array([1.0, 2.0]), "vol_smas": np.ones((2, 3))}
    back = OhlcAtr(3).inverse(windows, statistics)
    assert (back[..., 1] >= np.maximum(back[..., 0], back[..., 3])).all()
    assert (back[..., 2] <= np.minimum(back[..., 0], back[..., 3])).all()
    np.testing.assert_allclose(back[1, :, 4], np.exp(20.0))


def test_columns_are_found_by_name_in_any_case() -> None:
    plain = prices()
    mixed = Series(np.concatenate([plain.values[:, ::-1], plain.values[:, 3:4]], axis=1),
                   ("VOLUME", "Close", "LOW", "High", "open", "Adj Close"))  # fmt: skip
    np.testing.assert_array_equal(OhlcAtr(8).forward(mixed)[0], OhlcAtr(8).forward(plain)[0])


@given(count=st.integers(1, 9), length=st.integers(1, 5), seed=st.integers(0, 99))
def test_packed_statistics_come_back(count: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {"a": rng.normal(size=count), "b": rng.normal(size=(count, length)), "mean": rng.normal(size=17)}
    held = WindowStatistics({name: array.astype(np.float32) for name, array in arrays.items()}, count)
    again = WindowStatistics.unpack(held.pack())
    assert again.count == count
    assert list(again.arrays) == list(held.arrays)
    for name, array in held.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    rows = again.rows(np.array([count - 1, 0]))
    assert rows["a"].tolist() == held.arrays["a"][[count - 1, 0]].tolist()
    assert len(rows["mean"]) == 17


GOOD = WindowStatistics({"a": np.ones(3, np.float32)}, 3).pack()
DAMAGED = {
    "nothing": "", "no values": "3;a=3;", "no shape": GOOD.replace("a=3", "a"), "no count": GOOD.replace("3;", "x;", 1),
    "another size": GOOD.replace("a=3", "a=4"), "fewer": GOOD.replace("a=3", "a=2"), "no base64": GOOD[:-4] + "!!!!",
    "cut": GOOD[:-8], "twice": GOOD.replace("a=3", "a=3;a=3"), "huge": GOOD.replace("a=3", "a=9999999999x9999999999"),
    "infinite": WindowStatistics({"a": np.full(3, np.inf, np.float32)}, 3).pack(),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_statistics_are_refused(case: str) -> None:
    with pytest.raises(ValueError, match="window_statistics"):
        WindowStatistics.unpack(DAMAGED[case])


class Halved:
    """A transform of the user's: windows without overlap, halved, and the mean of each."""

    def __init__(self, length: int) -> None:
        self.length = length

    def forward(self, series: Series) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        count = len(series.values) // self.length
        windows = series.values[: count * self.length].reshape(count, self.length, -1) / 2.0
        means = windows.mean(axis=(1, 2))
        return windows - means[:, None, None], {"means": means}

    def inverse(self, windows: np.ndarray, statistics: Mapping[str, np.ndarray]) -> np.ndarray:
        made: np.ndarray = 2.0 * (windows + statistics["means"][:, None, None])
        return made


def returning(made: Any) -> type[Halved]:
    """One whose ``forward`` returns this."""
    return type("Returning", (Halved,), {"forward": lambda self, series: made})


Wrong = returning((np.full((3, 4, 2), np.nan), {}))
Odd = returning((np.ones((3, 8, 2)), {"means": np.full(3, 1e300)}))
Short = returning((np.ones((3, 7, 2)), {}))
Nothing = returning(None)
Texts = returning((np.ones((3, 8, 2)), {"means": "abc"}))
Ragged = returning(([[1.0], [2.0, 3.0]], {}))


class Raises(Halved):
    def forward(self, series: Series) -> Any:
        raise RuntimeError("two\nlines")


class Exits(Halved):
    def __init__(self, length: int) -> None:
        sys.exit(0)


class Stops(BaseException):
    pass


class Base(Halved):
    def forward(self, series: Series) -> Any:
        raise Stops


class Careless(Halved):
    """Changes what it is given, and returns text."""

    def inverse(self, windows: np.ndarray, statistics: Mapping[str, np.ndarray]) -> Any:
        windows *= 0.0
        statistics["means"][:] = 0.0
        return "abc"


class Half:
    def __init__(self, length: int) -> None:
        pass


HERE = __name__


def test_the_users_own_transform() -> None:
    series = Series.of(prices(40).values[:, :4])
    name = f"{HERE}:Halved"
    windows, statistics = windows_of(name, 8, series)
    assert windows.shape == (5, 8, 4)
    assert by_window(name)
    back = transform_of(name, 8).inverse(windows, statistics.rows(np.arange(5)))
    np.testing.assert_allclose(back.reshape(40, 4), series.values, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{HERE}:Missing", "has no Missing"),
        ("no_such_module_at_all:Transform", "no module named no_such_module_at_all"),
        (f"{HERE}:Short", r"windows of shape \(3, 7, 2\); return finite ones: \(n, 8, features\)"),
        (f"{HERE}:Nothing", "forward returns a NoneType; return windows and their statistics"),
        (f"{HERE}:Texts", "forward returns a str; return arrays of real numbers"),
        (f"{HERE}:Ragged", "forward returns a list; return arrays of real numbers"),
        (f"{HERE}:Raises", "forward raises RuntimeError: two lines; correct the class"),
        (f"{HERE}:Exits", "__init__ raises SystemExit: 0"),
        (f"{HERE}:Base", "forward raises Stops"),
        (f"{HERE}:Half", "has no forward and inverse"),
        (f"{HERE}:Wrong", "forward returns windows of shape"),
        (f"{HERE}:Odd", "forward returns statistics that float32 does not hold"),
        ("ohlc_atr", "did you mean ohlc-atr"),
        ("z score", "is not a transform"),
    ],
)
def test_transforms_that_cannot_be_used(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        windows_of(name, 8, prices())


def test_what_a_transform_changes_is_its_own() -> None:
    windows, statistics = np.ones((2, 8, 2)), {"means": np.ones(2)}
    transform = transform_of(f"{HERE}:Careless", 8)
    with pytest.raises(UsageError, match="inverse returns a str"):
        transform.inverse(windows, statistics)
    assert windows.min() == statistics["means"].min() == 1.0
    assert getattr(transform, "normalize", None) is None


@pytest.mark.parametrize(
    ("series", "said"),
    [
        (prices(names=("open", "high", "low", "close", "turnover")), "has no column of numbers called volume, and has "
         "open, high, low, close, turnover; give the columns open, high, low, close, volume"),
        (Series.of(prices().values), "ohlc-atr finds columns by name, and these 5 have none"),
        (prices(26), "has 26 steps, and ohlc-atr takes 19 and a window of 8"),
        (Series(prices().values * -1.0, OHLCV), "a price is not positive at step 0"),
        (Series(prices().values[:, [0, 2, 1, 3, 4]], OHLCV), "the highest price is below the lowest at step 0"),
        (Series(prices().values * np.array([1, 1, 1, 1, 1e12]), OHLCV), "a number is above 1e\\+18"),
        (Series(prices().values * np.array([1, 1, 1, 1, -1.0]), OHLCV), "a volume is negative"),
    ],
)  # fmt: skip
def test_series_that_are_no_prices(series: Series, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        OhlcAtr(8).forward(series)


def test_log_volume() -> None:
    units = units_of(prices(), "log1p-volume")
    assert units.statistics is not None
    np.testing.assert_allclose(units.statistics.mean[4], np.log1p(prices().values[:, 4]).mean())
    np.testing.assert_allclose(units.statistics.mean[:4], prices().values[:, :4].mean(axis=0))
    with pytest.raises(WdportError, match="takes 5 features, and this has 2"):
        units_of(Series.of(np.ones((4, 2))), "log1p-volume")
    with pytest.raises(WdportError, match="a volume is negative"):
        units_of(Series.of(-np.ones((4, 5))), "log1p-volume")


def npz(**arrays: Any) -> str:
    np.savez("stats.npz", **arrays)
    return "stats.npz"


ATR = {"anchors": np.ones(4), "atr_pcts": np.ones(4), "vol_smas": np.ones((4, 8))}


def test_statistics_of_windows_are_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    units = read_units(npz(**ATR), None)
    assert units is not None
    assert units.transform == "ohlc-atr"
    assert WindowStatistics.unpack(units.flags()["window_statistics"](8)).count == 4
    (tmp_path / "s.json").write_text('{"mean": [1, 2], "std": [1, 1], "transform": "zscore"}')
    stated = read_units("s.json", None)
    assert stated is not None
    assert stated.flags() == {"transform": "zscore", "norm_mean": (1.0, 2.0), "norm_std": (1.0, 1.0)}


@pytest.mark.parametrize(
    ("arrays", "transform", "said"),
    [
        ({**ATR, "anchors": np.ones(3)}, None, "different numbers of windows: 3 anchors, 4 atr_pcts, 4 vol_smas"),
        ({**ATR, "anchors": np.zeros(4)}, None, "anchors or atr_pcts that are not positive"),
        ({**ATR, "anchors": np.full(4, np.nan)}, None, "not finite numbers"),
        ({**ATR, "vol_smas": np.ones(4)}, None, "statistics of other shapes"),
        (ATR, "log1p-volume", "is of the transform ohlc-atr, not log1p-volume"),
        ({"mean": np.ones(2), "std": np.ones(2)}, "ohlc-atr", "holds no statistics of windows"),
    ],
)
def test_files_of_statistics_that_do_not_fit(
    arrays: dict[str, Any], transform: str | None, said: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        read_units(npz(**arrays), None, transform)


def test_a_transform_that_a_file_of_statistics_cannot_have(tmp_path: Path) -> None:
    for stated in ("log", "ohlc-atr", ["zscore"]):
        (tmp_path / "s.json").write_text(json.dumps({"mean": [1, 2], "std": [1, 1], "transform": stated}))
        with pytest.raises(InputError, match=r"s\.json: states the transform .*; give zscore or log1p-volume"):
            read_units(tmp_path / "s.json", None)


def test_a_transform_needs_data() -> None:
    with pytest.raises(UsageError, match="needs data or their statistics"):
        read_units(None, None, "ohlc-atr")
    assert checked_name("zscore") == "zscore"
    assert len(OHLCV) < MAX_FEATURES
