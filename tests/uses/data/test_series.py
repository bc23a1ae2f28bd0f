"""Which files are read at all, what a series or a set of them must be, and windows of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdport.base.errors import InputError, UsageError
from wdport.uses.data import Series, read_series, sliding_windows
from wdport.uses.data.samples_reader import read_samples
from wdport.uses.data.series import series_of

GRID = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.mat", "x.arff", "x.npz", "x.txt"])
def test_missing_and_empty_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(InputError, match="no such file; check the path"):
        read_series(path)
    path.touch()
    with pytest.raises(InputError):
        read_series(str(path))


def test_what_is_no_data_file(tmp_path: Path) -> None:
    (tmp_path / "x.xlsx").write_bytes(b"PK")
    (tmp_path / "x").touch()
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for name, message in [
        ("x.xlsx", r"of an unknown kind \(.xlsx\); give one of .csv, .txt, .arff, .npy, .npz, .mat"),
        ("x", "no suffix"),
        ("folder.csv", "is a directory"),
        ("pipe.csv", "is not a regular file"),
        ("x.csv/y.csv", "no such file"),
        ("a\0b.csv", "zero byte"),
    ]:
        with pytest.raises(InputError, match=message):
            read_series(tmp_path / name)


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.arff"])
def test_a_key_where_there_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match="k: does not apply to a"):
        read_series(tmp_path / name, key="k")


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        (GRID, ("a",), "1 names for 2 features"),
        (GRID, ("a", "a"), "2 columns named 'a'"),
        (GRID[0], ("a", "b"), "give .time steps, features."),
        (GRID[:0], ("a", "b"), "holds no values"),
        (GRID / np.array([1, np.nan]), ("a", "b"), "row 1: column 'b' holds NaN"),
        (GRID.astype(str), ("a", "b"), "not real numbers"),
    ],
)
def test_impossible_series(values: Any, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Series(values, names)


def test_a_series_of_an_array() -> None:
    series = Series.of(np.arange(3, dtype=np.int8))
    assert series.values.dtype == np.float64
    assert series.values.tolist() == [[0], [1], [2]]
    assert Series.of(GRID).names == ("column_1", "column_2")
    with pytest.raises(UsageError, match="shape"):
        Series.of(np.float64(1))


@pytest.mark.parametrize(("text", "named"), [("a,b\n1,2\n", True), ("1,2\n3,4\n", False), (",b\n0,2\n", True)])
def test_whether_the_file_names_its_features(tmp_path: Path, text: str, named: bool) -> None:
    (tmp_path / "x.csv").write_text(text)
    series = read_series(tmp_path / "x.csv")
    assert series.named == series.choose(series.names).named == named
    assert not Series.of(GRID).named


def test_choosing_features() -> None:
    series = Series(GRID, ("a", "b"), ("date",))
    chosen = series.choose(["b"])
    assert (chosen.names, chosen.dropped, chosen.values.tolist()) == (("b",), ("date",), [[1], [3], [5]])
    with pytest.raises(UsageError, match="c: is not a column; choose from a, b"):
        series.choose(["c"])


def test_the_features_of_a_model() -> None:
    """Columns are found by name, in any case and order; without names they are taken as they are."""
    series = Series(np.arange(6.0).reshape(2, 3), ("Time", "A", "b"))
    found = series.fitted(["B", "a"], 2, "data.csv")
    assert (found.names, found.values.tolist()) == (("b", "A"), [[2, 1], [5, 4]])
    for unnamed, names in ((series, ()), (Series.of(series.values), ("a", "b", "c"))):
        assert unnamed.fitted(names, 3, "data.csv") is unnamed
    with pytest.raises(UsageError, match=r"data\.csv: has no column of numbers called c, and has Time, A, b; give the"):
        series.fitted(["a", "c"], 2, "data.csv")
    with pytest.raises(UsageError, match=r"data\.csv: has 3 columns of numbers, and 2 are needed"):
        series.fitted((), 2, "data.csv")


def test_a_series_is_given_in_three_ways(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", GRID)
    series = Series.of(GRID)
    assert series_of(series) is series
    for source in (GRID, tmp_path / "x.npy", str(tmp_path / "x.npy")):
        assert series_of(source).values.tolist() == GRID.tolist()


@given(st.integers(1, 12), st.integers(1, 3), st.integers(1, 12), st.integers(1, 13))
def test_windows_are_slices(steps: int, features: int, length: int, stride: int) -> None:
    values = np.arange(steps * features).reshape(steps, features)
    if length > steps:
        with pytest.raises(UsageError, match=f"window: of {length} steps does not fit into a series of {steps}"):
            sliding_windows(values, length, stride)
        return
    windows = sliding_windows(values, length, stride)
    starts = range(0, steps - length + 1, stride)
    assert windows.shape == (len(starts), length, features)
    assert windows.shape[0] == (steps - length) // stride + 1
    for window, start in zip(windows, starts, strict=True):
        np.testing.assert_array_equal(window, values[start : start + length])


def test_windows_are_a_read_only_view() -> None:
    values = np.zeros((5, 2), np.float32)
    windows = sliding_windows(values, 3)
    assert np.shares_memory(windows, values)
    assert not windows.flags.writeable
    values[4] = 7
    assert windows[-1, -1].tolist() == [7, 7]


@pytest.mark.parametrize(
    ("length", "stride", "message"), [(0, 1, "length: is 0"), (-1, 1, "length: is -1"), (2, 0, "stride: is 0")]
)
def test_impossible_windows(length: int, stride: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sliding_windows(np.zeros((5, 2)), length, stride)
    with pytest.raises(UsageError, match="shape"):
        sliding_windows(np.zeros(5), 2)


TABLE = "sample,step,feature_1\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "1", "is of an unknown kind (.txt)"),
        ("a", "1", "is of an unknown kind (no suffix)"),
        ("a.npy", np.zeros((4, 3)), "has shape (4, 3)"),
        ("a.npy", np.zeros((0, 4, 3)), "has shape (0, 4, 3)"),
        ("a.npy", np.array([[[0.0]], [[np.inf]], [[np.nan]]]), "has NaN or infinite values in 2 of 3 series"),
        ("a.npz", {"x": np.zeros((2, 4, 3)), "y": np.zeros(3)}, "has 2 arrays, none of them named series"),
        ("a.npz", {"series": np.zeros((2, 4, 2)), "features": np.array(["x", "x"])}, "features: 2 features have"),
        ("a.csv", "step,x,y\n0,1,2\n", "has no first column named sample"),
        ("a.csv", f"{TABLE}0,0,1\n0,1,1\n1,0,1\n", "has samples of different lengths"),
        ("a.csv", f"{TABLE}0,0,1\n0,1,1\n1,0,1\n0,1,1\n", "has samples of different lengths"),
    ],
)
def test_a_file_that_holds_no_series(name: str, content: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if isinstance(content, dict):
        np.savez(path, **content)
    elif isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        path.write_text(str(content))
    with pytest.raises(InputError) as refused:
        read_samples(path)
    assert said in str(refused.value)


def test_files_that_hold_series(tmp_path: Path) -> None:
    series = np.arange(8.0).reshape(2, 4, 1)
    rows = "".join(f"{n},{at},{series[n, at, 0]}\n" for n in range(2) for at in range(4))
    (tmp_path / "a.csv").write_text(TABLE + rows)
    np.save(tmp_path / "a.npy", series)
    np.savez(tmp_path / "a.npz", only=series)
    np.savez(tmp_path / "b.npz", series=series, coefficients=np.zeros(3))
    for name in ("a.csv", "a.npy", "a.npz", "b.npz"):
        assert np.array_equal(read_samples(tmp_path / name).values, series)
