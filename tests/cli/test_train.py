"""`wdport train`: from a converted model to a trained one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.make import SETTINGS, save_run
from tests.training.points import points
from wdport.cli.main import main

__all__ = ["points"]


@pytest.mark.full
def test_a_run_of_waveletdiff_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_run(Path("run.ckpt"))
    wdport.convert("run.ckpt", "run.keras", values=SETTINGS, with_optimizer=True)
    series = np.random.default_rng(0).normal(size=(40, 3)).cumsum(0)
    np.savetxt("data.csv", series, delimiter=",", header="a,b,c", comments="")
    words = ["train", "data.csv", "--resume", "run.keras", "-o", "out", "--batch-size", "8", "--ema", "0.9"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "training"
    assert told["resumed_optimizer"] == "run.optimizer.safetensors"
    assert told["steps"] == 3
    assert {"loss", "cA3", "cD1", "learning_rate"} <= set(told["epochs"][0])
    assert {each["name"] for each in told["outputs"]} == {
        "state.npz", "metrics.csv", "model.keras", "model.ema.keras", "model.optimizer.safetensors"}  # fmt: skip
    models = [wdport.load_model(name) for name in ("run.keras", "out/model.keras", "out/model.ema.keras")]
    values = [[np.asarray(variable.value) for variable in model.trainable_variables] for model in models]
    assert any(not np.array_equal(one, other) for one, other in zip(*values[:2], strict=True))
    assert any(not np.array_equal(one, other) for one, other in zip(*values[1:], strict=True))
    again = wdport.load_optimizer("out/model.optimizer.safetensors", models[1])
    assert int(again.iterations.value) == 6
    assert main(["sample", "out/model.keras", "-n", "2", "--sampler", "ddim", "--steps", "2", "-o", "a.npz"]) == 0
    assert main(["export", "out/model.keras", "--to", "torch", "--like", "run.ckpt", "--optimizer",
                 "out/model.optimizer.safetensors", "-o", "back.pt"]) == 0  # fmt: skip
    import torch

    back = torch.load("back.pt", weights_only=True)
    assert int(back["optimizer_states"][0]["state"][0]["step"]) == 6
    assert back["lr_schedulers"][0]["last_epoch"] == 6
    assert back["global_step"] == 6


def test_a_users_own_model_with_a_new_optimizer(points: Any, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("states.npy", np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(256, 2)).astype(np.float32))
    words = ["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "out", "--batch-size", "64"]
    assert main([*words, "--epochs", "5", "--lr", "0.01", "--schedule", "onecycle", "--clip", "1"]) == 0
    said = capsys.readouterr().out
    rows = (Path("out") / "metrics.csv").read_text().splitlines()
    rates = [float(row.split(",")[-2]) for row in rows[1:]]
    assert rates[0] < 0.01
    assert rates[1] > rates[0] > rates[-1]
    assert "a.keras: trained\n  trained    20 steps in 5 epochs\n  optimizer  new, AdamW" in said
    assert main([*words, "--epochs", "4", "--lr", "0.01", "--schedule", "onecycle", "--clip", "1"]) == 2
    assert "epochs: are fewer than the run in out has" in capsys.readouterr().err


WRONG: dict[str, tuple[list[str], str]] = {
    "a rate": (["--lr", "0"], "--lr: is 0; give a number above 0"),
    "an average": (["--ema", "1"], "--ema: is 1; give a number above 0 and below 1"),
    "another folder": (["-o", "."], "which is not of a run; give another folder with -o"),
    "other states": (["-o", "new"], "data: have shape (4, 3); give an array of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(points: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("states.npy", np.zeros((4, 3), np.float32))
    words, said = WRONG[name]
    assert main(["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "out", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
