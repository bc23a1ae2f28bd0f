"""Files of samples: what is in them, that they come whole or not at all, and figures."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from wdport.base.errors import InternalError, UsageError
from wdport.files.figure import draw_samples, figure_target
from wdport.files.samples_writer import samples_target, write_samples

RNG = np.random.default_rng(0)
COEFFICIENTS = RNG.standard_normal((5, 6, 2)).astype(np.float32)
SERIES = RNG.standard_normal((5, 4, 2)).astype(np.float32) * np.float32(1e-3)
STEPS = {"coefficients": "coefficient"}
PIECES = (slice(0, 2), slice(2, 4), slice(4, 5))


def blocks() -> Iterator[dict[str, np.ndarray]]:
    for piece in PIECES:
        yield {"coefficients": COEFFICIENTS[piece], "series": SERIES[piece]}


def bare() -> Iterator[dict[str, np.ndarray]]:
    for piece in PIECES:
        yield {"coefficients": COEFFICIENTS[piece]}


def write(path: Path, made: Any = blocks, count: int = 5) -> Path:
    size = write_samples(samples_target(path, {"model": path.with_name("model.keras")}, False), count, made, STEPS)
    assert size == path.stat().st_size
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    return path


def test_npz_holds_both(tmp_path: Path) -> None:
    with np.load(write(tmp_path / "a.npz"), allow_pickle=False) as file:
        assert file.files == ["coefficients", "series"]
        assert np.array_equal(file["coefficients"], COEFFICIENTS)
        assert np.array_equal(file["series"], SERIES)
        assert file["series"].dtype == np.float32


@pytest.mark.parametrize(("made", "expected"), [(blocks, SERIES), (bare, COEFFICIENTS)])
def test_npy_holds_series_or_else_coefficients(tmp_path: Path, made: Any, expected: np.ndarray) -> None:
    assert np.array_equal(np.load(write(tmp_path / "a.npy", made)), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_csv_has_a_row_per_step_and_loses_no_bit(tmp_path: Path, dtype: str) -> None:
    series = SERIES.astype(dtype) / 3
    write(tmp_path / "a.csv", lambda: ({"coefficients": COEFFICIENTS[p], "series": series[p]} for p in PIECES))
    with (tmp_path / "a.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["sample", "step", "feature_1", "feature_2"]
    assert [row[:2] for row in rows] == [[str(s), str(t)] for s in range(5) for t in range(4)]
    read = np.array([[np.dtype(dtype).type(cell) for cell in row[2:]] for row in rows])
    assert np.array_equal(read.reshape(5, 4, 2), series)


def test_csv_of_coefficients_says_so(tmp_path: Path) -> None:
    assert write(tmp_path / "a.csv", bare).read_text().startswith("sample,coefficient,feature_1,feature_2\n0,0,")


def test_parquet(tmp_path: Path) -> None:
    table = parquet.read_table(write(tmp_path / "a.parquet"))
    assert table.column_names == ["sample", "step", "feature_1", "feature_2"]
    assert table.column("sample").to_pylist() == [s for s in range(5) for _ in range(4)]
    assert np.array_equal(table.column("feature_2").to_numpy().reshape(5, 4), SERIES[:, :, 1])


NAMES = {
    ("temperature (°C)", "humidity (%)"): "sample,step,temperature (°C),humidity (%)",
    ("sample", "feature_sample"): "sample,step,feature_sample,feature_feature_sample",
    ('a "b", c', "x;=1+1"): 'sample,step,"a ""b"", c","x;=1+1"',
    ("=cmd|'/c calc'!A0", "@SUM(1)"): """sample,step,"'=cmd|'/c calc'!A0","'@SUM(1)\"""",
    ("+ΔT", "\N{FULLWIDTH HYPHEN-MINUS}1"): """sample,step,"'+ΔT","'\N{FULLWIDTH HYPHEN-MINUS}1\"""",
    ("only one",): "sample,step,feature_1,feature_2",
}
"""Names of features, and the header of the CSV file."""


@pytest.mark.parametrize("features", NAMES, ids=" ".join)
def test_names_of_features(tmp_path: Path, features: tuple[str, ...]) -> None:
    for name in ("a.csv", "a.parquet"):
        write_samples(samples_target(tmp_path / name, {}, False), 5, blocks, STEPS, features)
    header = (tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header == NAMES[features]
    read = parquet.read_table(tmp_path / "a.parquet").column_names
    assert len(read) == 4
    assert [name.removeprefix("'") for name in arrow_csv.read_csv(tmp_path / "a.csv").column_names] == read
    if not {"sample", "only one"} & set(features):
        assert read[2:] == list(features)


def test_too_few_samples_leave_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"old")
    target = samples_target(tmp_path / "a.npz", {"model": tmp_path / "model.keras"}, True)
    with pytest.raises(InternalError, match="5 of 6 were written"):
        write_samples(target, 6, blocks)
    assert (tmp_path / "a.npz").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_figure(tmp_path: Path) -> None:
    known = np.where(np.arange(4)[:, None] < 2, SERIES[0], np.nan)
    draw_samples(figure_target(tmp_path / "a.svg"), SERIES, known)
    text = (tmp_path / "a.svg").read_text()
    assert text.count("<!-- feature 1 -->") == text.count("<!-- feature 2 -->") == 1
    assert "time step" in text
    assert [p.name for p in tmp_path.iterdir()] == ["a.svg"]
    with pytest.raises(UsageError, match=r"end the name in .png, .svg, .pdf"):
        figure_target(tmp_path / "a.jpg")
