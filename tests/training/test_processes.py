"""The command in two processes: what they write, what they refuse, and how they end when one dies."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sampling.test_devices import RUN, ended, free_address, start
from wdport.cli.main import main
from wdport.training import run

WORDS = ["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "--lr", "0.001", "--ema", "0.9"]
SHORT = [*WORDS, "-o", "out", "--epochs", "3", "--batch-size", "16"]
LONG = [*WORDS, "-o", "out", "--epochs", "40", "--batch-size", "16", "--save-every", "50"]


def save_states(count: int) -> None:
    np.save("states.npy", np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(count, 2)).astype(np.float32))


def begin(address: str, process: int, words: list[str]) -> Any:
    """The command as it is given on two machines, in the working directory."""
    text = f"import os; os.chdir({str(Path.cwd())!r}); import sys; sys.path.insert(0, ''); {RUN}"
    return start(1, "-c", text, *words, "--distributed", f"{address},{process}/2")


def losses(folder: str = "out") -> list[float]:
    return [float(line.split(",")[2]) for line in (Path(folder) / "metrics.csv").read_text().splitlines()[1:]]


def test_two_processes_write_one_run(
    points: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_states(70)
    address = free_address()
    said = ended(*(begin(address, at, SHORT) for at in (0, 1)))
    assert [code for code, _, _ in said] == [0, 0], said
    assert "trained    15 steps in 3 epochs" in said[0][1]
    assert "trained" not in said[1][1]
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "metrics.csv", "model.ema.keras", "model.keras", "run.json", "state.npz"]  # fmt: skip
    words = [*WORDS, "-o", "alone", "--epochs", "3", "--batch-size", "16", "--json"]
    compared: list[dict[str, Any]] = []
    monkeypatch.setattr(run, "require_alike", compared.append)
    assert main(words) == 0
    assert {"seed": 0, "batch_size": 16, "epochs": 3}.items() <= compared[0].items()
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(losses(), [each["loss"] for each in told["epochs"]], rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies_ends_the_other_and_the_run_goes_on(points: Any, victim: int) -> None:
    save_states(2000)
    address = free_address()
    both = [begin(address, at, LONG) for at in (0, 1)]
    while both[1 - victim].poll() is None and not Path("out/state.npz").exists():
        time.sleep(0.05)
    both[victim].kill()
    killed = time.monotonic()
    said = ended(*both)
    assert time.monotonic() - killed < 60
    assert (said[victim][0], said[1 - victim][0]) == (-9, 5), said
    assert "error: --distributed: another process has ended (" in said[1 - victim][2]
    assert "start all processes again: the run resumes from its last saved state" in said[1 - victim][2]
    assert len(losses() if Path("out/metrics.csv").exists() else []) < 40
    address = free_address()
    again = ended(*(begin(address, at, LONG) for at in (0, 1)))
    assert [code for code, _, _ in again] == [0, 0], again
    interrupted = losses()
    Path("out").rename("parted")
    address = free_address()
    whole = ended(*(begin(address, at, LONG) for at in (0, 1)))
    assert [code for code, _, _ in whole] == [0, 0], whole
    assert losses() == interrupted
