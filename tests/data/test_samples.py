"""Files of series to be scored: what they must hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wdport.data.samples_reader import read_samples
from wdport.errors import InputError

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
