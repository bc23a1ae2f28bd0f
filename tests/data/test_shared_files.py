"""Five public data sets of five kinds, where they are at hand: shapes, names and numbers as other readers give them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from wdport.data import read_series

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"
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
