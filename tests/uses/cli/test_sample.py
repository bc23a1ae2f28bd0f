"""`wdport sample` as a user sees it: the file, going on after an interruption, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from tests.command import Cli
from tests.make import SETTINGS, TINY, make_state, save
from wdport.cli.main import main
from wdport.cli.signals import Terminated
from wdport.uses.sampling import devices as memory
from wdport.uses.sampling.parts import Parts

FAST = ["--sampler", "ddim", "--steps", "4", "--eta", "0.5", "--seed", "3"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that knows the units of its data."""
    path = save(tmp_path_factory.mktemp("cli") / "small.ckpt", make_state(TINY))
    np.savez(path.with_suffix(".npz"), norm_mean=[1.0, -2.0, 30.0], norm_std=[0.5, 2.0, 10.0])
    return wdport.convert(path, values=SETTINGS, norm_stats=path.with_suffix(".npz")).output


def run(model: Path, *arguments: object) -> int:
    return main(["sample", str(model), *FAST, *map(str, arguments)])


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a run that is left alone."""
    path = tmp_path_factory.mktemp("whole") / "a.npz"
    assert run(model, "-n", 5, "--chunk", 2, "-o", path, "-q", "--json", path.with_suffix(".json")) == 0
    assert json.loads(path.with_suffix(".json").read_text())["kind"] == "samples"
    return path.read_bytes()


def test_the_file_holds_what_python_gives(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, "-n", 5, "--chunk", 2, "-o", tmp_path / "a.npz") == 0
    shown = capsys.readouterr()
    assert "small.keras: 5 samples" in shown.out
    assert "(5, 24, 3), in the units of the data" in shown.out
    assert shown.err == ""
    expected = wdport.sample(wdport.load_model(model), 5, sampler="ddim", steps=4, eta=0.5, seed=3)
    with np.load(tmp_path / "a.npz") as file:
        for name in ("coefficients", "series"):
            assert np.array_equal(file[name], getattr(expected, name))
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("dtype", [pytest.param("mixed_bfloat16", marks=pytest.mark.full), "float64"])
def test_the_network_computes_in_what_is_asked_for(
    model: Path, tmp_path: Path, dtype: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything around it stays float32, or float64 with float64."""
    assert run(model, "-n", 5, "--dtype", dtype, "-o", tmp_path / "a.npz") == 0
    assert f"computes in   {dtype}" in capsys.readouterr().out
    given: dict[str, Any] = {"sampler": "ddim", "steps": 4, "eta": 0.5, "seed": 3}
    single = wdport.sample(wdport.load_model(model), 5, **given).coefficients
    with jax.enable_x64(dtype == "float64"):
        same = wdport.sample(wdport.load_model(model, dtype), 5, **given).coefficients
    with np.load(tmp_path / "a.npz") as file:
        drawn = file["coefficients"]
    assert np.array_equal(drawn, same)
    assert drawn.dtype == (np.float64 if dtype == "float64" else np.float32)
    off = np.linalg.norm(drawn - single) / np.linalg.norm(single)
    assert (0.0 < off < 1e-5) if dtype == "float64" else (1e-5 < off < 0.1)


@pytest.mark.parametrize(
    ("when", "error", "code"), [("before saving", Terminated, 143), ("while saving", KeyboardInterrupt, 130)]
)
def test_an_interrupted_run_goes_on(
    model: Path, whole: bytes, tmp_path: Path, when: str, error: type[KeyboardInterrupt], code: int,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The file is, bit for bit, that of a run that was left alone."""
    keep, saved = Parts.save, []

    def interrupted(parts: Parts, start: int, block: Any) -> None:
        if saved:
            if when == "while saving":
                unfinished = f".000000002-000000004-{'0' * 64}.npz.{'f' * 16}.wdport-tmp.npz"
                (parts.folder / unfinished).write_bytes(b"half")
            raise error
        saved.append(start)
        keep(parts, start, block)

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "save", interrupted)
        assert run(model, "-n", 5, "--chunk", 2, "-o", tmp_path / "a.npz") == code
    assert "2 of 5 samples are kept; run the same command to resume" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz.parts"]
    monkeypatch.setattr(memory, "CPU_BATCH", 3)  # free memory may differ: the batch is the first run's
    assert run(model, "-n", 5, "--chunk", 3, "-o", tmp_path / "a.npz") == 0
    assert "2 were there already" in capsys.readouterr().out
    assert (tmp_path / "a.npz").read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_an_interrupt_while_steps_run(model: Path, tmp_path: Path) -> None:
    """They are left to end before the process does: memory that they use is not taken from them."""
    code = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in what a shell starts in the background
from wdport.uses.sampling.sampler import Programs
make = Programs.__init__
def interrupting(self, network):
    make(self, network)
    drawn = self.drawn
    def steps(*arguments):
        carry = drawn(*arguments)
        signal.raise_signal(signal.SIGINT)
        return carry
    steps.lower = drawn.lower
    self.drawn = steps
Programs.__init__ = interrupting
from wdport.cli.main import run
run()
"""
    arguments = ["sample", str(model), "-n", "500", "--batch-size", "500", "--sampler", "ddim", "--steps", "50"]
    output = ["-o", str(tmp_path / "a.npz")]
    done = subprocess.run([sys.executable, "-c", code, *arguments, *output], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (130, "error: interrupted; nothing was changed")
    assert not list(tmp_path.iterdir())


def test_known_init_and_plot(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = np.full((24, 3), np.nan)
    known[:12] = np.random.default_rng(0).standard_normal((12, 3))
    np.savetxt(tmp_path / "known.csv", known, delimiter=",")
    np.save(tmp_path / "init.npy", np.random.default_rng(1).standard_normal((2, 26, 3)))
    options = ["--known", tmp_path / "known.csv", "--resample", 2, "--init", tmp_path / "init.npy"]
    assert run(model, *options, "-o", tmp_path / "a.npy", "--plot", tmp_path / "a.png") == 0
    assert "36 of 72 values" in capsys.readouterr().out
    series = np.load(tmp_path / "a.npy")
    assert series.shape == (2, 24, 3)
    assert np.array_equal(series[:, :12], np.broadcast_to(known[:12].astype(np.float32), (2, 12, 3)))
    assert not np.allclose(series[0, 12:], series[1, 12:])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_default_sampler_names_a_cheaper_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """By the network's target; the samples are those of the checkpoint's own code all the same."""
    monkeypatch.chdir(tmp_path)
    series = np.random.default_rng(0).normal(size=(80, 2))
    config: dict[str, Any] = {
        "model": {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "time_embed_dim": 8},
        "dataset": {"seq_len": 16}, "wavelet": {"type": "db2", "levels": "auto"},
    }  # fmt: skip
    for target, told in (("noise", "dpm++2m-sde --steps 20: 20 calls"),
                         ("coefficient", "dpm++2m --steps 10: 11 calls")):  # fmt: skip
        model = wdport.new_model({**config, "model": {**config["model"], "prediction_target": target}}, series)
        model.save("m.keras")
        out = cli("sample", "m.keras", "--force").out
        assert f"cheaper       --sampler {told}; wdport evaluate --sweep" in out
        assert "ddpm, 1000 network calls" in out
    with np.load("m.samples.npz") as saved:
        np.testing.assert_array_equal(saved["series"], wdport.sample(model).series)
    assert "cheaper" not in cli("sample", "m.keras", "--force", "--sampler", "ddpm").out
