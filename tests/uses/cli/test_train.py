"""`wdport train`: from a converted model to a trained one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.command import Cli
from tests.make import SET, SETTINGS, save_run
from tests.uses.training.points import points

__all__ = ["points"]


def write_series() -> None:
    series = np.random.default_rng(0).normal([5.0, 0.0, -2.0], size=(40, 3)).cumsum(0)
    np.savetxt("data.csv", series, delimiter=",", header="a,b,c", comments="")


@pytest.mark.full
def test_a_run_of_waveletdiff_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    save_run(Path("run.ckpt"))
    wdport.convert("run.ckpt", "run.keras", values=SETTINGS, with_optimizer=True)
    write_series()
    words = ["train", "data.csv", "--resume", "run.keras", "-o", "out", "--batch-size", "8", "--ema", "0.9"]
    told = json.loads(cli(*words, "--json").out)
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
    cli("sample", "out/model.keras", "-n", "2", "--sampler", "ddim", "--steps", "2", "-o", "a.npz")
    cli("export", "out/model.keras", "--to", "torch", "--like", "run.ckpt", "-o", "back.pt",
        "--optimizer-file", "out/model.optimizer.safetensors")  # fmt: skip
    import torch

    back = torch.load("back.pt", weights_only=True)
    assert int(back["optimizer_states"][0]["state"][0]["step"]) == 6
    assert back["lr_schedulers"][0]["last_epoch"] == 6
    assert back["global_step"] == 6


def test_a_users_own_model_with_a_new_optimizer(points: Any, cli: Cli) -> None:
    np.save("states.npy", np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(256, 2)).astype(np.float32))
    words = ["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "out", "--batch-size", "64"]
    said = cli(*words, "--epochs", "5", "--lr", "0.01", "--schedule", "onecycle", "--clip", "1").out
    rows = (Path("out") / "metrics.csv").read_text().splitlines()
    rates = [float(row.split(",")[-2]) for row in rows[1:]]
    assert rates[0] < 0.01
    assert rates[1] > rates[0] > rates[-1]
    Path("out/.state.npz.0123456789abcdef.wdport-tmp.npz").write_bytes(b"of a killed process")
    assert "a.keras: trained\n  trained    20 steps in 5 epochs\n  optimizer  new, AdamW" in said
    shown = cli(*words, "--epochs", "4", "--lr", "0.01", "--schedule", "onecycle", "--clip", "1", code=2)
    assert "another run, which differs in optimizer" in shown.err


CONFIG = """
model: {embed_dim: 16, num_heads: 2, num_layers: 1, time_embed_dim: 8}
dataset: {seq_len: 24}
optimizer: {lr: 0.001, scheduler_type: SCHEDULE}
training: {epochs: 2, batch_size: 8}
"""


@pytest.mark.full
def test_a_checkpoint_gives_what_its_conversion_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    save_run(Path("run.ckpt"))
    write_series()
    wdport.convert("run.ckpt", "run.keras", values=SETTINGS, with_optimizer=True)
    words = ["train", "data.csv", "--batch-size", "8", "--clip", "1"]
    cli(*words, "--resume", "run.keras", "-o", "one")
    assert "optimizer  resumed from run.ckpt" in cli(*words, "--resume", "run.ckpt", *SET, "-o", "other").out
    rows = [[line.split(",")[:-1] for line in (Path(name) / "metrics.csv").read_text().splitlines()]
            for name in ("one", "other")]  # fmt: skip
    assert rows[0] == rows[1]
    with np.load("one/state.npz") as one, np.load("other/state.npz") as other:
        assert all(np.array_equal(one[name], other[name]) for name in one.files if name not in ("facts", "rows/0"))
    assert wdport.load_model("other/model.keras").config.norm_mean is not None  # of the data


@pytest.mark.full
def test_a_new_model_in_bfloat16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    write_series()
    Path("new.yaml").write_text(CONFIG.replace("SCHEDULE", "cosine"))
    words = ["train", "data.csv", "--config", "new.yaml", "-o", "out", "--dtype", "mixed_bfloat16", "--ema", "0.9"]
    told = json.loads(cli(*words, "--json").out)
    assert (told["model"], told["steps"], len(told["epochs"])) == ("new.yaml", 6, 2)
    assert told["epochs"][-1]["learning_rate"] < told["epochs"][0]["learning_rate"] < 1e-3
    made = wdport.load_model("out/model.keras")
    assert made.compute_dtype == "float32"
    with np.load("out/state.npz") as state:
        held = [state[f"trained/{at}"] for at in range(len(made.trainable_variables))]
    assert all(np.array_equal(one, np.asarray(each.value)) for one, each in
               zip(held, made.trainable_variables, strict=True))  # fmt: skip
    cli("sample", "out/model.ema.keras", "-n", "2", "--sampler", "ddim", "--steps", "2", "-o", "a.npz")
    with np.load("a.npz") as drawn:
        assert drawn["series"].shape == (2, 24, 3)


def test_what_is_refused_of_a_new_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    write_series()
    Path("new.yaml").write_text(CONFIG.replace("SCHEDULE", "reduce_on_plateau"))
    Path("bad.yaml").write_text("model: {embed_dmi: 16}\n")
    Path("cycle.yaml").write_text(CONFIG.replace("SCHEDULE", "onecycle"))
    Path("negative.yaml").write_text(CONFIG.replace("0.001", "-0.1"))
    Path("half.yaml").write_text(CONFIG.replace("batch_size: 8", "batch_size: 6.5"))
    words = ["train", "data.csv", "-o", "out"]
    for more, code, said in (
        ([], 2, "--resume: is missing; give a converted model, a checkpoint, or --config for a new model"),
        (["--config", "new.yaml"], 2, "new.yaml: has the schedule reduce_on_plateau, which needs values measured in"),
        (["--config", "bad.yaml"], 4, "bad.yaml: model.embed_dmi: no such setting; did you mean model.embed_dim?"),
        (["--config", "new.yaml", "--schedule", "onecycle", "--warmup", "3"], 2, "--warmup: is for the cosine"),
        (["--config", "new.yaml", "--mapping", "flow.yaml"], 2, "--mapping: is for a converted model"),
        (["--resume", "a.keras", "--set", "num_heads=2"], 2, "--set: is for a checkpoint or a new model"),
        (["--config", "new.yaml", "--schedule", "cosine", "--warmup", "9"], 2, "--warmup: is 9 of 6 steps; give fewer"),
        (["--config", "cycle.yaml", "--warmup", "3"], 2, "--warmup: is for the cosine schedule, not onecycle; add"),
        (["--config", "negative.yaml"], 4, "negative.yaml: optimizer.lr: is -0.1; give a number from 0"),
        (["--config", "half.yaml"], 4, "half.yaml: training.batch_size: is 6.5; give a whole number from 1"),
        (["--config", "new.yaml", "--weight-decay", "-1"], 2, "--weight-decay: invalid value '-1'; give a number"),
        (["--config", "new.yaml", "--energy", "nan"], 2, "--energy: invalid value 'nan'; give a number from 0"),
        (["--config", "new.yaml", "--distributed", "127.0.0.1:99999,0/2"], 2, "--distributed: invalid process"),
        (["--config", "new.yaml", "--shard-weights"], 2, "--shard-weights: needs several devices; add --devices all"),
    ):
        error = cli(*words, *more, code=code).err
        assert said in error
        assert error.count("\n") == 1


WRONG: list[tuple[list[str], str]] = [
    (["--recipe", "public"], "--recipe: this model has no public training script"),
    (["--lr", "0"], "--lr: invalid value '0'; give a number above 0"),
    (["--ema", "1"], "--ema: invalid value '1'; give a number above 0 and below 1"),
    (["--lr", "nan"], "--lr: invalid value 'nan'; give a number above 0"),
    (["-o", "."], "which is not of a run; move it elsewhere, or give another folder"),
    (["-o", "new"], ".npy: has shape (4, 3); give an array of"),
]

SHORT: list[tuple[list[str], str]] = [
    (["--gradient-accumulation-steps", "9"], "--gradient-accumulation-steps: is 9, and the run has 1 batches, so"),
    (["--schedule", "onecycle"], "--schedule: onecycle is for more than the 1 steps of this run; choose another, or"),
]


def test_what_is_refused(points: Any, cli: Cli) -> None:
    np.save("states.npy", np.zeros((4, 3), np.float32))
    np.save("short.npy", np.zeros((4, 2), np.float32))
    for words, said in [*WRONG, *SHORT]:
        data = "short.npy" if (words, said) in SHORT else "states.npy"
        given = ["train", data, "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "out", *words]
        error = cli(*given, code=2).err
        assert said in error
        assert error.count("\n") == 1
