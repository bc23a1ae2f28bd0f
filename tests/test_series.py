"""A converted model's way back to series: its transform, its statistics, and what else would have fitted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pywt

import wdport
from tests.make import SETTINGS, SMALL, make_state, save
from wdport.base.errors import MisfitError, UsageError
from wdport.uses.data import Statistics

SERIES = """
import sys, numpy as np, wdport
model = wdport.load_model(sys.argv[1])  # the first thing done: keras is not imported yet
np.save(sys.argv[2], model.to_series(np.load(sys.argv[3])))
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tmp_path / "a.ckpt", make_state())


def convert(path: Path, name: str = "a.keras", **options: Any) -> wdport.Conversion:
    return wdport.convert(path, path.with_name(name), **{"values": SETTINGS, **options})


def test_samples_come_out_in_the_units_of_the_data(checkpoint: Path, tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(5.0, 3.0, (200, SMALL.features))
    np.save(tmp_path / "data.npy", data)
    conversion = convert(checkpoint, data=tmp_path / "data.npy")
    truth = np.random.default_rng(1).standard_normal((2, conversion.config.seq_len, SMALL.features)).astype(np.float32)
    groups = pywt.wavedec(truth, conversion.config.wavelet, level=conversion.config.groups - 1, axis=1)
    np.save(tmp_path / "c.npy", np.concatenate(groups, axis=1))
    arguments = [str(conversion.output), str(tmp_path / "x.npy"), str(tmp_path / "c.npy")]
    subprocess.run([sys.executable, "-c", SERIES, *arguments], check=True)
    expected = truth * data.std(axis=0) + data.mean(axis=0)
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-4)


def test_statistics_from_a_file_or_from_data_are_the_same(checkpoint: Path, tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(5.0, 3.0, (50, SMALL.features))
    np.save(tmp_path / "data.npy", data)
    (tmp_path / "s.json").write_text(json.dumps(Statistics.of(data).to_dict()))
    first = convert(checkpoint, "1.keras", data=tmp_path / "data.npy").config
    second = convert(checkpoint, "2.keras", norm_stats=tmp_path / "s.json").config
    assert first == second
    np.testing.assert_allclose(first.norm_std, data.std(axis=0))
    with pytest.raises(UsageError, match="norm_stats: cannot be combined with data"):
        convert(checkpoint, "3.keras", data=tmp_path / "data.npy", norm_stats=tmp_path / "s.json")


def test_statistics_of_another_data_set_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.random.default_rng(0).normal(size=(50, SMALL.features + 1)))
    with pytest.raises(MisfitError, match="norm_mean has"):
        convert(checkpoint, data=tmp_path / "data.npy")


def test_an_assumed_wavelet_comes_with_what_else_fits(checkpoint: Path) -> None:
    values = {name: value for name, value in SETTINGS.items() if name not in ("wavelet", "seq_len")}
    conversion = convert(checkpoint, values=values)
    assert "wavelet" in conversion.assumed
    assert conversion.manifest["alternatives"]["wavelet"] == "bior3.1, db2, rbio3.1, sym2 at length 24 or 23"
    told = convert(checkpoint, "told.keras", values={**values, "wavelet": "db2", "seq_len": "24"})
    assert told.manifest["alternatives"] == {}
