"""`wdport sample --plot --data`: real windows beside the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.command import Cli
from tests.make import SETTINGS, TINY, make_state, save
from wdport.cli.main import main
from wdport.uses.cli import sample

NAMES = ["temperature", "$humidity$", "气压"]
FAST = ["--sampler", "ddim", "--steps", "2"]
VALUES = np.random.default_rng(0).standard_normal((24 * 25 + 5, 3)) + np.array([10.0, 50.0, 1000.0])


def write(path: str, names: list[str], values: np.ndarray) -> str:
    np.savetxt(path, values, delimiter=",", header=",".join(names), comments="", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    checkpoint = save(folder / "a.ckpt", make_state(TINY))
    data = write(str(folder / "data.csv"), NAMES, VALUES)
    wdport.convert(checkpoint, values=SETTINGS, data=data)
    wdport.convert(checkpoint, folder / "z.keras", values=SETTINGS)
    np.save(folder / "data.npy", VALUES)
    return folder


@pytest.fixture(autouse=True)
def folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)


def test_windows_follow_one_another_and_columns_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(sample, "draw_samples", lambda *given: drawn.append(given))
    write("turned.csv", ["extra", *NAMES[::-1]], np.column_stack([VALUES[:, 0], VALUES[:, ::-1]]))
    for data in ("data.csv", "turned.csv", "data.npy"):
        assert main(["sample", "a.keras", *FAST, "-n", "2", "--force", "--plot", "a.svg", "--data", data]) == 0
        _, values, _, axis, features, beside = drawn.pop()
        assert (values.shape, axis, features, beside.name) == ((2, 24, 3), "time step", tuple(NAMES), data)
        assert np.array_equal(beside.windows, VALUES[: 24 * 25].reshape(25, 24, 3))


def test_the_figure_names_what_it_shows() -> None:
    assert main(["sample", "a.keras", *FAST, "-n", "20", "-o", "b.npy", "--plot", "b.svg", "--data", "data.csv"]) == 0
    text = Path("b.svg").read_text(encoding="utf-8")
    for word in (*NAMES, "data: 12 of 25 windows of data.csv", "samples: the first 12", "time step",
                 "quantiles of 25 windows and 20 samples"):  # fmt: skip
        assert f"<!-- {word} -->" in text


REFUSALS = {
    "no figure": (["a.keras", "--data", "data.csv"], 2, "has no effect without a figure; add --plot FILE"),
    "units": (["z.keras", "--data", "data.csv", "--plot", "c.svg"], 2, "in z-score units, not in units of the data"),
    "short": (["a.keras", "--data", "short.csv", "--plot", "c.svg"], 3, "has 5 rows, and a sample has 24; give data"),
    "names": (["a.keras", "--data", "other.csv", "--plot", "c.svg"], 2, "no column of numbers called temperature"),
    "count": (["a.keras", "--data", "wide.npy", "--plot", "c.svg"], 2, "has 4 columns of numbers, and 3 are needed"),
    "none": (["a.keras", "--data", "nope.csv", "--plot", "c.svg"], 3, "no such file"),
    "itself": (["a.keras", "--data", "data.csv", "--plot", "c.svg", "-o", "data.csv", "--force"], 2, "is an input"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str, cli: Cli) -> None:
    arguments, code, message = REFUSALS[name]
    write("short.csv", NAMES, VALUES[:5])
    write("other.csv", ["a", "b", "c"], VALUES)
    np.save("wide.npy", np.ones((48, 4)))
    before = {path: path.stat().st_mtime_ns for path in Path().iterdir()}
    assert message in cli("sample", *arguments, code=code).err
    assert {path: path.stat().st_mtime_ns for path in Path().iterdir()} == before
