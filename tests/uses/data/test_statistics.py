"""z-score statistics: numpy's, an exact JSON, and nothing that cannot be divided by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wdport.base.errors import InputError, UsageError
from wdport.base.limits import MAX_FEATURE_NAMES_CHARS, MAX_FEATURES
from wdport.uses.data import Statistics, read_statistics

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
moderate = st.floats(-1e6, 1e6)
tables = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=moderate)
STATISTICS = Statistics((1.0, -2.0), (0.5, 4.0))


@given(tables)
def test_mean_and_std_are_numpys(values: np.ndarray) -> None:
    statistics = Statistics.of(values)
    for feature, column in enumerate(values.T):
        if np.ptp(column) == 0:
            assert (statistics.mean[feature], statistics.std[feature]) == (column[0], 1)
        else:
            assert statistics.mean[feature] == values.mean(axis=0)[feature]
            assert statistics.std[feature] == (values.std(axis=0)[feature] or 1)


@pytest.mark.parametrize("steps", [1, 3, 10, 1000])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e300, 5e-324])
def test_a_constant_feature_becomes_zero(value: float, steps: int) -> None:
    """The mean of many 0.1 is not 0.1, and dividing the rest by its own size would give 1."""
    values = np.full((steps, 1), value)
    statistics = Statistics.of(values)
    assert not statistics.normalize(values).any()
    assert statistics.denormalize(np.zeros((2, 1))).tolist() == [[value], [value]]


@given(tables)
def test_normalize_and_back(values: np.ndarray) -> None:
    statistics = Statistics.of(values)
    scale = np.abs(values).max() + 1
    np.testing.assert_allclose(statistics.denormalize(statistics.normalize(values)), values, rtol=0, atol=1e-14 * scale)


def test_leading_axes_and_dtypes() -> None:
    x = np.array([[[1, 2]], [[3, -2]]], np.float32)
    assert STATISTICS.normalize(x).tolist() == [[[0, 1]], [[4, 0]]]
    assert STATISTICS.denormalize(x).tolist() == [[[1.5, 6]], [[2.5, -10]]]
    assert STATISTICS.normalize(x).dtype == np.float64
    assert STATISTICS.normalize([1, 2]).tolist() == [0, 1]


@pytest.mark.parametrize("x", [np.zeros((4, 3)), np.zeros((2, 1)), np.zeros((0, 0)), np.float64(1)])
@pytest.mark.parametrize("way", ["normalize", "denormalize"])
def test_another_number_of_features(x: Any, way: str) -> None:
    with pytest.raises(UsageError, match=r"has (3|1|0|no) features along its last axis, the statistics have 2"):
        getattr(STATISTICS, way)(x)


numbers = st.floats(allow_nan=False, allow_infinity=False)


@relaxed
@given(st.lists(st.tuples(numbers, numbers.map(abs).filter(bool)), min_size=1, max_size=5))
def test_json_keeps_every_bit(tmp_path: Path, pairs: list[tuple[float, float]]) -> None:
    statistics = Statistics(*zip(*pairs, strict=True))
    text = json.dumps(statistics.to_dict())
    assert Statistics.from_dict(json.loads(text)) == statistics
    (tmp_path / "s.json").write_text(text)
    read = read_statistics(tmp_path / "s.json")
    assert read == statistics
    assert hash(read) == hash(statistics)


def test_names_are_kept(tmp_path: Path) -> None:
    named = Statistics((1.0, -2.0), (0.5, 4.0), ("temperature (°C)", "=1+1"))
    assert named != STATISTICS
    assert Statistics.from_dict(json.loads(json.dumps(named.to_dict()))) == named
    (tmp_path / "s.json").write_text(json.dumps(named.to_dict()))
    assert read_statistics(tmp_path / "s.json") == named
    assert Statistics.of(np.eye(2), ["a", "b"]).names == ("a", "b")


BAD_NAMES = {
    "too few": (["a"], "1 names for 2 features"),
    "text": ("ab", "names is not a list of texts"),
    "a number": (["a", 1], "the name of feature 2 is not text"),
    "empty": (["", "b"], "the name of feature 1 is empty"),
    "twice": (["a", "a"], "2 features have the name 'a'"),
    "long": (["a", "b" * 101], "the name of feature 2 has 101 characters, at most 100 are kept"),
    "a line break": (["a", "b\nc"], r"feature 2, 'b\\nc', has a character that cannot be printed"),
    "written backwards": (["a", "b\N{RIGHT-TO-LEFT OVERRIDE}c"], "has a character that cannot be printed"),
    "half a character": (["a", "\ud800"], "has a character that cannot be printed"),
    "a blank": (["a", " =1"], "feature 2, ' =1', has leading or trailing white space"),
}


@pytest.mark.parametrize("what", BAD_NAMES)
def test_names_that_are_refused(tmp_path: Path, what: str) -> None:
    names, message = BAD_NAMES[what]
    with pytest.raises(UsageError, match=message):
        Statistics((1.0, -2.0), (0.5, 4.0), names)  # type: ignore[arg-type]
    (tmp_path / "s.json").write_text(json.dumps({"mean": [1, 2], "std": [1, 2], "names": names}))
    with pytest.raises(InputError, match=message):
        read_statistics(tmp_path / "s.json")


def test_names_in_all_are_bounded() -> None:
    count = MAX_FEATURE_NAMES_CHARS // 100 + 1
    names = tuple(f"{number:0100}" for number in range(count))
    with pytest.raises(UsageError, match=f"more than {MAX_FEATURE_NAMES_CHARS} characters in total"):
        Statistics((0.0,) * count, (1.0,) * count, names)


@pytest.mark.parametrize("names", [("norm_mean", "norm_std"), ("mean", "std")])
@pytest.mark.parametrize("shape", [(2,), (1, 2), (1, 1, 2)])
def test_npz(tmp_path: Path, names: tuple[str, str], shape: tuple[int, ...]) -> None:
    mean, std = np.array([1, -2], np.float32), np.array([0.5, 4])
    np.savez(tmp_path / "s.npz", **dict(zip(names, (mean.reshape(shape), std.reshape(shape)), strict=True)), other=3)
    assert read_statistics(str(tmp_path / "s.npz")) == STATISTICS


def test_npz_of_one_feature_and_of_both_pairs(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", mean=2, std=3.0)
    assert read_statistics(tmp_path / "s.npz") == Statistics((2.0,), (3.0,))
    np.savez(tmp_path / "s.npz", mean=[7, 7], std=[7, 7], norm_mean=[1, -2], norm_std=[0.5, 4])
    assert read_statistics(tmp_path / "s.npz") == STATISTICS


BAD = [
    ([1], [1, 2], "1 means but 2 standard deviations"),
    ([1, 2], [1, 0], "std of feature 2 is 0, which is not positive"),
    ([1, 2], [-3, 1], "std of feature 1 is -3, which is not positive"),
    ([1, 2], [1, float("inf")], "std of feature 2 is inf"),
    ([1, 2], [float("nan"), 1], "std of feature 1 is nan"),
    ([float("nan"), 2], [1, 1], "mean of feature 1 is nan"),
    ([], [], "mean is not a list of numbers"),
    ([1], ["1"], "std is not a list of numbers"),
    ([1], [True], "std is not a list of numbers"),
    ([[1], [2]], [1, 2], "mean is not a list of numbers"),
    ([[1], [2, 3]], [1, 2], "mean is not a list of numbers"),
]


@pytest.mark.parametrize(("mean", "std", "message"), BAD)
def test_impossible_statistics(tmp_path: Path, mean: Any, std: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Statistics(mean, std)
    with pytest.raises(UsageError, match=message):
        Statistics.from_dict({"mean": mean, "std": std})
    (tmp_path / "s.json").write_text(json.dumps({"mean": mean, "std": std}))
    with pytest.raises(InputError, match=message):
        read_statistics(tmp_path / "s.json")


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "3", '{"mean": [1]}', '{"norm_mean": [1], "norm_std": [1]}', "[" * 9999]
)
def test_json_of_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(
        InputError, match=r"is not (valid JSON|a JSON object); write|holds no mean and std; give mean and std"
    ):
        read_statistics(tmp_path / "s.json")


def test_files_that_hold_too_much_or_something_else(tmp_path: Path) -> None:
    (tmp_path / "long.json").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(InputError, match="has 1048577 bytes"):
        read_statistics(tmp_path / "long.json")
    np.savez(tmp_path / "else.npz", mean=1)
    with pytest.raises(InputError, match="holds no mean and std; give norm_mean and norm_std or mean and std"):
        read_statistics(tmp_path / "else.npz")


@pytest.mark.parametrize(
    "values", [np.zeros(3), np.zeros((0, 2)), np.zeros((2, 0)), [[1], [np.nan]], [[1e200], [-1e200]]]
)
def test_statistics_of_what_has_none(values: Any) -> None:
    with pytest.raises(UsageError):
        Statistics.of(values)


def test_a_std_that_underflows_becomes_1() -> None:
    assert Statistics.of([[0.0], [1e-200]]).std == (1,)


def test_entries_that_are_no_statistics() -> None:
    with pytest.raises(UsageError, match=r"^statistics: std is not a list of numbers"):
        Statistics.from_dict({"mean": [1.0], "std": "2"})
    with pytest.raises(UsageError, match=r"^statistics: holds no mean and std; give mean and std"):
        Statistics.from_dict({"mean": [1.0]})
    with pytest.raises(UsageError, match=f"^statistics: mean has {MAX_FEATURES + 1} values, more than {MAX_FEATURES}"):
        Statistics.from_dict({"mean": [0.0] * (MAX_FEATURES + 1), "std": [1.0] * (MAX_FEATURES + 1)})
