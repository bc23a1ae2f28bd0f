"""Where samples go: nothing that is there is lost, nothing that was drawn is, and chunks leave no trace in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
import wdport.files.figure as figure
import wdport.files.samples_writer as samples
from tests.make import SETTINGS, TINY, make_state, save
from wdport.cli.main import main
from wdport.files.atomic import machine_error
from wdport.uses.cli import sample
from wdport.uses.sampling.parts import Parts

FAST = ["--sampler", "ddim", "--steps", "2", "--batch-size", "2"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = save(tmp_path_factory.mktemp("cli") / "small.ckpt", make_state(TINY))
    return wdport.convert(path, values=SETTINGS).output


def run(model: Path, *arguments: object) -> int:
    return main(["sample", str(model), *FAST, *map(str, arguments)])


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As soon as the first part is saved."""
    keep = Parts.save

    def save(parts: Parts, start: int, block: Any) -> None:
        keep(parts, start, block)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "save", save)
        yield


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_output_that_came_meanwhile_stays(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process finished between the first look and the lock."""
    output, make = tmp_path / "a.npz", Parts.__init__

    def late(parts: Parts, *arguments: Any, **options: Any) -> None:
        make(parts, *arguments, **options)
        output.write_text("another's")

    monkeypatch.setattr(Parts, "__init__", late)
    assert run(model, "-n", 2, "-o", output) == 2
    assert "exists already" in capsys.readouterr().err
    assert output.read_text() == "another's"
    assert names(tmp_path) == {"a.npz"}


def test_an_interrupted_replacement_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And control characters in its name do not reach the terminal."""
    output = tmp_path / "a\n\x1b[31m.npz"
    output.write_text("old")
    with interrupted(monkeypatch):
        assert run(model, "-n", 5, "--chunk", 2, "-o", output, "--force") == 130
    assert "2 of 5 samples are kept; run the same command to resume" in capsys.readouterr().err
    assert output.read_text() == "old"
    assert run(model, "-n", 5, "--chunk", 2, "-o", output, "--force") == 0
    shown = capsys.readouterr().out
    assert "2 were there already" in shown
    assert "a\\n\\x1b[31m.npz" in shown
    assert "\x1b" not in shown
    assert names(tmp_path) == {output.name}


@pytest.mark.parametrize(
    ("stage", "module", "error", "code"),
    [("_npz", samples, KeyboardInterrupt, 130), ("draw_samples", sample, PermissionError(13, "closed"), 5)],
)
def test_what_is_drawn_is_kept_whatever_comes_after(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stage: str,
    module: Any, error: Any, code: int,
) -> None:  # fmt: skip
    def fail(*arguments: Any, **named: Any) -> None:
        raise error if isinstance(error, type) else machine_error(tmp_path / "a.npz", error)

    options = ["-n", 5, "-o", tmp_path / "a.npz", "--plot", tmp_path / "a.svg"]
    with monkeypatch.context() as patch:
        patch.setattr(module, stage, fail)
        assert run(model, *options) == code
    shown = capsys.readouterr().err
    assert "5 of 5 samples are kept" in shown
    assert "run the same command to resume" in shown
    assert not (tmp_path / "a.npz").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "save", fail)  # nothing is drawn again
        assert run(model, *options, "--force") == 0
    assert names(tmp_path) == {"a.npz", "a.svg"}


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_chunks_leave_no_trace(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(samples, "ROWS", 3 * 24)
    drawn: list[np.ndarray] = []
    monkeypatch.setattr(sample, "draw_samples", lambda target, values, *_: drawn.append(values))
    for chunk in (4, 30):
        plot = ["--plot", tmp_path / "a.png"]
        assert run(model, "-n", 30, "--chunk", chunk, "-o", tmp_path / f"{chunk}.{kind}", *plot) == 0
    assert (tmp_path / f"4.{kind}").read_bytes() == (tmp_path / f"30.{kind}").read_bytes()
    assert len(drawn[0]) == figure.LINES
    assert np.array_equal(drawn[0], drawn[1])


def test_a_figure_is_not_replaced_unasked(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").write_text("precious")
    assert run(model, "-o", tmp_path / "a.npz", "--plot", tmp_path / "a.png") == 2
    assert "exists already; give another name with --plot, or --force" in capsys.readouterr().err
    assert (tmp_path / "a.png").read_text() == "precious"


def test_names_that_cannot_be_written(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert run(model, "-o", tmp_path / "pipe.csv", "--force") == 2
    assert "pipe.csv: is not a regular file; give another name with -o" in capsys.readouterr().err
    assert run(model, "-o", tmp_path / f"{'a' * 230}.npz") == 2
    assert "has a name of more than 200 bytes; give a shorter one with -o" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--init", "--known"])
def test_an_endless_input_is_refused(
    model: Path, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "x.npy")
    assert run(model, option, tmp_path / "x.npy", "-o", tmp_path / "a.npz") == 3
    assert "x.npy: is not a regular file; give a data file" in capsys.readouterr().err


def test_parts_of_another_program_are_another_runs(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with interrupted(monkeypatch):
        assert run(model, "-n", 5, "--chunk", 2, "-o", tmp_path / "a.npz") == 130
    assert run(model, "-n", 5, "--dtype", "bfloat16", "-o", tmp_path / "a.npz") == 2
    assert "holds parts of another run, with dtype float32 instead of bfloat16" in capsys.readouterr().err
