"""Names of features, from the header of the data to the columns of samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from pyarrow import parquet

import wdport
from tests.command import Cli
from tests.make import TWO_LEVELS, TWO_LEVELS_SET, make_state, save
from wdport.cli.main import main

NAMES = ["temperature (°C)", "humidity, %", "=pressure"]


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).standard_normal((48, 3)).tolist()
    rows = [f"2013-01-{at // 24 + 1:02} {at % 24:02}:00,{row[0]},{row[1]},{row[2]}" for at, row in enumerate(values)]
    header = f'time,{NAMES[0]},"{NAMES[1]}",{NAMES[2]}'
    Path("data.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return save(tmp_path / "a.ckpt", make_state(TWO_LEVELS))


@pytest.mark.parametrize(("suffix", "output"), [(".keras", "s.csv"), (".safetensors", "s.parquet")])
def test_names_survive(checkpoint: Path, suffix: str, output: str, cli: Cli) -> None:
    shown = cli("convert", "a.ckpt", "-o", f"a{suffix}", *TWO_LEVELS_SET, "--data", "data.csv")
    assert f"features  {', '.join(NAMES)}" in shown.out
    manifest = json.loads(Path(f"a{suffix}.wdport.json").read_text(encoding="utf-8"))
    assert manifest["config"]["feature_names"] == {"value": NAMES, "origin": "data"}
    assert f"feature_names          {NAMES}  (data)" in cli("inspect", f"a{suffix}").out
    fast = ["--sampler", "ddim", "--steps", "2", "--plot", "s.svg"]
    cli("sample", f"a{suffix}", *fast, "-o", output)
    columns = ["sample", "step", *NAMES]
    if output == "s.parquet":
        assert parquet.read_table(output).column_names == columns
    else:
        assert pyarrow.csv.read_csv(output).column_names == [*columns[:-1], f"'{columns[-1]}"]
    samples = wdport.sample(wdport.load_model(f"a{suffix}"), sampler="ddim", steps=2)
    assert samples.features == samples.part(0, 1).features == tuple(NAMES)


def test_names_that_cannot_be_kept(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("data.csv").read_text(encoding="utf-8")
    Path("data.csv").write_text(text.replace(NAMES[0], "t" * 101, 1), encoding="utf-8")
    assert main(["convert", "a.ckpt", *TWO_LEVELS_SET, "--data", "data.csv"]) == 3
    told = "error: data.csv: the name of feature 1 has 101 characters, at most 100 are kept; give each feature a short"
    assert told in capsys.readouterr().err
    assert not Path("a.keras").exists()
