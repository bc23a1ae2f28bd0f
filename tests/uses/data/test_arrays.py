"""NumPy and MATLAB files: read exactly, refused when damaged or ambiguous; public data sets as other readers do."""

from __future__ import annotations

import csv
import zlib
from pathlib import Path
from struct import pack
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wdport.base.errors import InputError, UsageError
from wdport.uses.data import read_series

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
GRID = np.arange(6.0).reshape(3, 2)
real_arrays = hnp.arrays(
    st.one_of(hnp.integer_dtypes(endianness="?"), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(endianness="?")),
    hnp.array_shapes(max_dims=2, max_side=5),
    elements=st.integers(0, 100),
)


def write(folder: Path, kind: str, **arrays: Any) -> Path:
    path = folder / f"x{kind}"
    if kind == ".npy":
        np.save(path, *arrays.values())
    elif kind == ".npz":
        np.savez(path, **arrays)
    else:
        scipy.io.savemat(path, arrays)
    return path


@relaxed
@given(real_arrays, st.sampled_from([".npy", ".npz"]), st.booleans())
def test_every_real_dtype(tmp_path: Path, array: np.ndarray, kind: str, fortran: bool) -> None:
    series = read_series(write(tmp_path, kind, x=np.asfortranarray(array) if fortran else array))
    expected = array.astype(np.float64).reshape(len(array), -1)
    np.testing.assert_array_equal(series.values, expected)
    assert series.values.dtype == np.float64
    assert series.values.flags.c_contiguous
    assert series.names == tuple(f"column_{number}" for number in range(1, expected.shape[1] + 1))


@pytest.mark.parametrize("kind", [".npz", ".mat"])
def test_a_key_chooses(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind, train=GRID, test=GRID + 10)
    assert read_series(path, key="test").values.tolist() == (GRID + 10).tolist()
    with pytest.raises(InputError, match="has 2 arrays: train, test; choose one with key"):
        read_series(path)
    with pytest.raises(UsageError, match="valid: is not an array of the file; choose from train, test"):
        read_series(path, key="valid")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.uint8])
def test_the_only_matrix_over_time_of_a_mat_file(tmp_path: Path, dtype: Any) -> None:
    others = {"rate": 2.5, "label": "text", "row": np.ones((1, 9)), "cube": np.ones((2, 2, 2)), "s": {"a": GRID}}
    path = write(tmp_path, ".mat", **others, ts=GRID.astype(dtype), mask=GRID > 1)
    assert read_series(path).values.tolist() == GRID.tolist()
    assert read_series(path, key="row").values.shape == (1, 9)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 2, 2)), "has shape"),
        (np.float64(3), "has shape"),
        (np.ones((0, 3)), "holds no values"),
        (np.ones((3, 0)), "holds no values"),
        (np.array(["a", "b"]), "holds <U1"),
        (np.array([True, False]), "holds bool"),
        (np.ones(3, complex), "holds complex"),
        (np.zeros(3, [("a", float)]), "not real numbers"),
        (np.array([[1, 2], [np.nan, 4]]), "row 2: column 'column_1' holds NaN"),
        (np.array([[1, 2], [3, -np.inf]]), "row 2: column 'column_2' holds an infinite value"),
        (np.array([[np.longdouble("1e4000")]]), "row 1: column 'column_1' holds an infinite value"),
    ],
)
@pytest.mark.parametrize("kind", [".npy", ".npz"])
def test_arrays_that_are_no_series(tmp_path: Path, kind: str, array: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_series(write(tmp_path, kind, x=array))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[1, "a"]], object), "x is cell, not a full array"),
        ("abc", "x is char, not a full array"),
        (np.array([[True], [False]]), "x is logical, not a full array"),
        (scipy.sparse.csc_array(GRID), "x is sparse, not a full array"),
        ({"a": GRID}, "x is struct, not a full array"),
        (np.ones((2, 2, 2)), "has shape"),
        (GRID + 1j, "holds complex"),
        (GRID / np.nan, "row 1: column 'column_1' holds NaN"),
    ],
)
def test_mat_arrays_that_are_no_series(tmp_path: Path, array: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_series(write(tmp_path, ".mat", x=array), key="x")


@pytest.mark.parametrize(("old", "new", "said"), [
    (pack("<I", 14), pack("<I", 99), "its variable 1 is damaged"),
    (pack("<2I", 9, 8 * GRID.size), pack("<2I", 99, 8 * GRID.size), "its variable 1 is damaged"),
    (pack("<4I", 5, 8, *GRID.shape), pack("<4I", 5, 8, 1 << 14, 1 << 14), r"x: declares an array of shape \(16384, 16"),
])  # fmt: skip
@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_variables_of_a_mat_file(tmp_path: Path, old: bytes, new: bytes, said: str, compressed: bool) -> None:
    path = write(tmp_path, ".mat", x=GRID)
    whole = path.read_bytes()
    assert old in whole[128:]
    data = whole[128:].replace(old, new, 1)
    if "declares" in said:  # and has as many numbers, so that it agrees with itself
        data = data.replace(pack("<2I", 9, 8 * GRID.size), pack("<2I", 9, 8 << 28))
    if compressed:
        packed = zlib.compress(data)
        data = pack("<2I", 15, len(packed)) + packed
    path.write_bytes(whole[:128] + data)
    with pytest.raises(InputError, match=said):
        read_series(path, key="x")


def test_a_member_of_an_archive_that_is_not_an_array(tmp_path: Path) -> None:
    path = write(tmp_path, ".npz", x=GRID)
    with ZipFile(path, "a") as archive:
        archive.writestr("notes", "none")
    with pytest.raises(InputError, match=r"notes: its member is not an array"):
        read_series(path, key="notes")


def test_a_mat_file_of_version_7_3(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n" + bytes(600))
    with pytest.raises(InputError, match=r"is a MATLAB 7\.3 file; save it with"):
        read_series(path)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    for kind in (".npy", ".npz"):
        with pytest.raises(InputError, match="Object arrays cannot be loaded"):
            read_series(write(tmp_path, kind, x=np.array([GRID, None], object)))


FOLDER = Path(__file__).parents[3].parent / "shared" / "data"
ETT = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
EEG = ("AF3", "F7", "F3", "FC5", "T7", "P7", "O1", "O2", "P8", "T8", "FC6", "F4", "F8", "AF4")


def shared(name: str) -> Path:
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"../shared/data/{name} is not here: the public data sets")
    return path


@pytest.mark.parametrize(
    ("name", "steps", "names", "dropped"),
    [
        ("ETT-small/ETTh1.csv", 17420, ETT, ("date",)),
        ("exchange_rate/exchange_rate.txt", 7588, tuple(f"column_{number}" for number in range(1, 9)), ()),
        ("stocks/stock_data.csv", 3685, ("Open", "High", "Low", "Close", "Adj_Close", "Volume"), ()),
    ],
)
def test_text(name: str, steps: int, names: tuple[str, ...], dropped: tuple[str, ...]) -> None:
    path = shared(name)
    series = read_series(path)
    assert (series.values.shape, series.names, series.dropped) == ((steps, len(names)), names, dropped)
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[-steps:]
    truth = np.array([[float(cell) for cell in row[-len(names) :]] for row in rows])
    np.testing.assert_array_equal(series.values, truth)


def test_arff() -> None:
    path = shared("EEG/EEG_Eye_State.arff")
    series = read_series(path)
    truth, _ = scipy.io.arff.loadarff(path)
    assert (series.values.shape, series.names, series.dropped) == ((14980, 14), EEG, ("eyeDetection",))
    np.testing.assert_array_equal(series.values, np.stack([truth[name] for name in EEG], axis=1))


def test_mat() -> None:
    path = shared("fMRI/sim4.mat")
    series = read_series(path)
    np.testing.assert_array_equal(series.values, scipy.io.loadmat(path)["ts"])
    assert series.values.shape == (10000, 50)
