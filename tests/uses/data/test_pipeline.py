"""File to coefficients: the same numbers as doing every step by hand with PyWavelets, in memory or in a file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wdport.base.errors import InputError, MachineError, UsageError
from wdport.uses.data import Series, Statistics, transform_dataset

from .standin import Exact, truth

VALUES = np.random.default_rng(1).normal(size=(100, 3)).cumsum(axis=0) * [1, 1e3, 1e-3]
LENGTH = 24
N, C = LENGTH, Exact(LENGTH).coefficients


def by_hand(values: Any, stride: int = 1, dtype: str = "float32") -> Any:
    normalized = ((values - values.mean(axis=0)) / values.std(axis=0)).astype(dtype)
    starts = range(0, len(values) - LENGTH + 1, stride)
    return truth(np.stack([normalized[start : start + LENGTH] for start in starts]))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stride", [1, 7, 100])
def test_as_by_hand(dtype: str, stride: int) -> None:
    dataset = transform_dataset(VALUES, Exact(LENGTH), stride=stride, dtype=dtype)
    np.testing.assert_array_equal(dataset.coefficients, by_hand(VALUES, stride, dtype))
    assert dataset.coefficients.shape == ((100 - LENGTH) // stride + 1, C, 3)
    assert dataset.coefficients.dtype == dtype
    assert not dataset.coefficients.flags.writeable
    assert dataset.statistics == Statistics.of(VALUES)
    assert dataset.names == ("column_1", "column_2", "column_3")


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = [f"2016-01-01,{','.join(map(repr, row))}" for row in VALUES.tolist()]
    path.write_text("\n".join(["date,a,b,c", *rows]))
    dataset = transform_dataset(path, Exact(LENGTH), columns=["c", "a"])
    assert (dataset.names, dataset.dropped) == (("c", "a"), ("date",))
    np.testing.assert_array_equal(dataset.coefficients, by_hand(VALUES[:, [2, 0]]))
    np.savez(tmp_path / "x.npz", a=VALUES, b=VALUES[:50])
    dataset = transform_dataset(str(tmp_path / "x.npz"), Exact(LENGTH), key="b")
    np.testing.assert_array_equal(dataset.coefficients, by_hand(VALUES[:50]))


def test_from_a_series() -> None:
    series = Series(VALUES, ("a", "b", "c"), ("date",))
    dataset = transform_dataset(series, Exact(LENGTH), columns=["b"])
    assert (dataset.names, dataset.dropped) == (("b",), ("date",))
    np.testing.assert_array_equal(dataset.coefficients, by_hand(VALUES[:, [1]]))


def test_given_statistics_and_none() -> None:
    statistics = Statistics((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    dataset = transform_dataset(VALUES, Exact(LENGTH), normalize=statistics, dtype="float64", stride=50)
    windows = np.stack([VALUES[:LENGTH], VALUES[50 : 50 + LENGTH]])
    np.testing.assert_array_equal(dataset.coefficients, truth((windows - [1, 2, 3]) / [4, 5, 6]))
    assert dataset.statistics is statistics
    plain = transform_dataset(VALUES, Exact(LENGTH), normalize=False, dtype="float64", stride=50)
    np.testing.assert_array_equal(plain.coefficients, truth(windows))
    assert plain.statistics is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 80), st.integers(1, 40), st.sampled_from(["float32", "float64"]))
def test_chunks_change_no_bit(tmp_path: Path, stride: int, per_chunk: int, dtype: str) -> None:
    one = (N + C) * 3 * np.dtype(dtype).itemsize
    memory = one * per_chunk
    whole = transform_dataset(VALUES, Exact(LENGTH), stride=stride, dtype=dtype).coefficients
    transform = Exact(LENGTH)
    path = tmp_path / "out.npy"
    chunked = transform_dataset(VALUES, transform, stride=stride, dtype=dtype, memory=memory, output=path).coefficients
    assert isinstance(chunked, np.memmap)
    assert not chunked.flags.writeable
    assert chunked.dtype == whole.dtype
    assert chunked.tobytes() == whole.tobytes() == np.load(path).tobytes()
    assert len(set(transform.calls)) == 1, "a jitted transform would be compiled again"
    batch = transform.calls[0][0]
    if whole.nbytes > memory:
        assert batch == min(per_chunk, len(whole))
        assert len(transform.calls) == -(-len(whole) // batch)
    else:
        assert transform.calls == [(len(whole), N, 3)]
    assert names(tmp_path) == {"out.npy"}


def test_a_limit_that_is_kept_needs_no_output() -> None:
    needed = 77 * C * 3 * 4
    assert transform_dataset(VALUES, Exact(LENGTH), memory=needed).coefficients.nbytes == needed
    with pytest.raises(UsageError, match=rf"memory: of {needed - 1} bytes is less .*\({needed}\); name an .npy file"):
        transform_dataset(VALUES, Exact(LENGTH), memory=needed - 1)


def test_a_limit_below_one_window(tmp_path: Path) -> None:
    one = (N + C) * 3 * 4
    with pytest.raises(UsageError, match=f"cannot hold one window; give at least {one}"):
        transform_dataset(VALUES, Exact(LENGTH), memory=one - 1, output=tmp_path / "x.npy")
    assert names(tmp_path) == set()
    transform_dataset(VALUES, Exact(LENGTH), memory=one, output=tmp_path / "x.npy")


class Failing(Exact):
    """Raises at the second call, once something has been written."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(LENGTH)
        self.error = error

    def decompose(self, x: Any) -> Any:
        if self.calls:
            raise self.error
        return super().decompose(x)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("out of memory"), MemoryError()])
def test_an_interrupted_run_leaves_everything_as_it_was(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "x.npy").write_bytes(b"old")
    transform = Failing(error)
    with pytest.raises(type(error)):
        transform_dataset(VALUES, transform, memory=10_000, output=tmp_path / "x.npy")
    assert len(transform.calls) == 1
    assert names(tmp_path) == {"x.npy"}
    assert (tmp_path / "x.npy").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("code", "fix", "step"), [(errno.ENOSPC, "free some space", "fsync"), (errno.EIO, "check the folder", "replace")]
)
def test_a_full_or_broken_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fix: str, step: str) -> None:
    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / "x.npy").write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(MachineError, match=f"could not be written .*; {fix}"):
        transform_dataset(VALUES, Exact(LENGTH), output=tmp_path / "x.npy")
    assert names(tmp_path) == {"x.npy"}
    assert (tmp_path / "x.npy").read_bytes() == b"old"


def test_a_file_that_cannot_be_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "load", Mock(side_effect=OSError(errno.ENODEV, os.strerror(errno.ENODEV))))
    with pytest.raises(MachineError, match=r"x\.npy: could not be written \(No such device\)"):
        transform_dataset(VALUES, Exact(LENGTH), output=tmp_path / "x.npy")


def test_an_older_mapping_survives_its_files_replacement(tmp_path: Path) -> None:
    first = transform_dataset(VALUES, Exact(LENGTH), output=tmp_path / "x.npy")
    second = transform_dataset(-VALUES, Exact(LENGTH), output=tmp_path / "x.npy")
    np.testing.assert_array_equal(first.coefficients, by_hand(VALUES))
    np.testing.assert_array_equal(second.coefficients, by_hand(-VALUES))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("x.csv", "ends in .npy"),
        ("folder.npy", "is a directory"),
        ("nowhere/x.npy", "folder does not exist"),
        ("link.npy", r"is an input \("),
    ],
)
def test_refused_outputs(tmp_path: Path, output: str, message: str) -> None:
    source = tmp_path / "source.npy"
    np.save(source, VALUES)
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "link.npy").symlink_to(source)
    before = names(tmp_path)
    with pytest.raises(UsageError, match=message):
        transform_dataset(source, Exact(LENGTH), output=tmp_path / output)
    assert names(tmp_path) == before
    np.testing.assert_array_equal(np.load(source), VALUES)


def coarse(x: Any) -> Any:
    return truth(x).astype(np.float32)


@pytest.mark.parametrize(
    ("decompose", "options", "message"),
    [
        (lambda x: truth(x)[:, 1:], {}, rf"returns shape \(77, {C - 1}, 3\), expected \(77, {C}, 3\)"),
        (lambda x: truth(x)[1:], {}, "returns shape"),
        (lambda x: truth(x).astype(int), {}, "computes in int64, expected float32"),
        (coarse, {"dtype": "float64"}, "computes in float32, expected float64; let it"),
    ],
)
def test_a_transform_that_breaks_its_word(
    tmp_path: Path, decompose: Callable[[Any], Any], options: dict[str, Any], message: str
) -> None:
    transform = Exact(LENGTH)
    transform.decompose = decompose  # type: ignore[method-assign]
    for output in (None, tmp_path / "x.npy"):
        with pytest.raises(UsageError, match=message):
            transform_dataset(VALUES, transform, output=output, **options)
    assert names(tmp_path) == set()


def test_a_finer_transform_is_rounded() -> None:
    transform = Exact(LENGTH)
    transform.decompose = lambda x: truth(x.astype(np.float64))  # type: ignore[method-assign]
    dataset = transform_dataset(VALUES, transform)
    assert dataset.coefficients.dtype == np.float32
    np.testing.assert_allclose(dataset.coefficients, by_hand(VALUES), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (VALUES, {"dtype": "float16"}, "dtype: unsupported dtype float16"),
        (VALUES, {"dtype": "nonsense"}, "dtype: unsupported dtype nonsense"),
        (VALUES * 1e40, {"normalize": False}, "float32 cannot hold values of up to"),
        (VALUES[:23], {}, "of 24 steps does not fit into a series of 23"),
        (VALUES, {"stride": 0}, "stride: is 0"),
        (VALUES, {"key": "k"}, "requires a file"),
        (VALUES, {"columns": ["a"]}, "a: is not a column"),
        (
            VALUES,
            {"normalize": Statistics((0.0,), (1.0,))},
            "has 3 features along its last axis, the statistics have 1",
        ),
        (VALUES[None], {}, "have shape"),
        (VALUES * [np.inf, 1, 1], {}, "row 1: column 'column_1' holds an infinite value"),
        ([["a"]], {}, "not real numbers"),
        ([[1], [2, 3]], {}, "series: is not an array"),
    ],
)
def test_impossible_calls(source: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        transform_dataset(source, Exact(LENGTH), **options)


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        transform_dataset(tmp_path / "x.csv", Exact(LENGTH))
