"""Train a small WaveletDiff in PyTorch on a year of hourly weather, and write it to a folder.

A window is three days of temperature, humidity and pressure. Writes ``weather.ckpt``, in Lightning's layout, and
``weather.config.yaml``, in the form of the public script.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pywt
import torch
import yaml
from numpy.typing import NDArray
from three_days import DATA, DAYS, SEQ_LEN, windows
from torch import Tensor

from wdport.uses.data import Statistics, read_series
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.reference import WaveletDiff
from wdport.uses.wavelets.lengths import group_lengths

NAME, WAVELET, LEVEL = "weather", "db4", 3
BATCH, STEPS, MAX_LR, AVERAGED, SEED = 32, 800, 3e-3, 0.99, 0

# Four heads on purpose: nothing in the weights tells the number, and the released models have eight. It predicts the
# coefficients: what predicts the noise is divided by sqrt(alpha_bar) = 0.003 in the first step of sampling, which a
# model that was trained for a minute does not bear.
CONFIG = Config(
    group_lengths(SEQ_LEN, WAVELET, LEVEL), 3, embed_dim=32, num_heads=4, num_layers=2, time_embed_dim=32,
    prediction_target="coefficient", dropout=0.0,
)  # fmt: skip


def to_coefficients(series: NDArray[np.float64]) -> Tensor:
    """Z-scored windows (n, 72, F) as coefficients (n, C, F): cA3, cD3, cD2, cD1."""
    groups = pywt.wavedec(series, WAVELET, mode="symmetric", level=LEVEL, axis=1)
    return torch.tensor(np.concatenate(groups, axis=1), dtype=torch.float32)


def batches(coefficients: Tensor) -> Iterator[Tensor]:
    """Infinite random batches."""
    while True:
        yield coefficients[torch.randint(len(coefficients), (BATCH,))]


def coefficient_loss(model: WaveletDiff, x0: Tensor) -> Tensor:
    """WaveletDiff's objective (arXiv 2510.11839): the groups' errors, weighted a_i / length, a_0 = 2."""
    # 0..999, not 1..1000: the public code trains on these, although it samples from 1000 down to 1.
    steps = torch.randint(0, 1000, (len(x0),))
    alpha_bar = model.get_buffer("alpha_bar_all")[steps, None, None]
    noise = torch.randn_like(x0)
    prediction = model(alpha_bar.sqrt() * x0 + (1 - alpha_bar).sqrt() * noise, steps / 1000)
    errors = torch.stack([(prediction - x0)[:, s].square().mean() for s in CONFIG.level_slices])
    weights = torch.tensor([(2.0 if i == 0 else 1.0) / d for i, d in enumerate(CONFIG.level_lengths)])
    return (weights / weights.sum()) @ errors


def train(coefficients: Tensor, steps: int, seconds: float) -> dict[str, Any]:
    """Return the checkpoint after ``steps`` steps, or fewer if ``seconds`` are over; its weights are averages over the
    last steps."""
    torch.manual_seed(SEED)
    model = WaveletDiff(CONFIG).train()
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(AVERAGED)
    )
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-5)
    # Spans the planned steps whatever the clock says: the time bound cuts training short, and changes no step.
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=MAX_LR, total_steps=steps)
    losses: list[float] = []
    source, end = batches(coefficients), time.monotonic() + seconds
    while len(losses) < steps and time.monotonic() < end:
        loss = coefficient_loss(model, next(source))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        average.update_parameters(model)
        losses.append(loss.item())
        report(losses, every=max(1, steps // 6))
    return {
        "epoch": len(losses) * BATCH // len(coefficients),
        "global_step": len(losses),
        "pytorch-lightning_version": "2.6.6",
        "state_dict": average.module.state_dict(),
        "loops": {},
        "callbacks": {},
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [scheduler.state_dict()],
    }


def report(losses: list[float], every: int) -> None:
    """Print a line regularly, with the mean of the last losses, since that of a single batch is mostly noise."""
    if len(losses) == 1 or len(losses) % every == 0:
        sys.stdout.write(f"step {len(losses):4d}  loss {np.mean(losses[-every:]):.3f}\n")
        sys.stdout.flush()


def public_config(epochs: int) -> dict[str, Any]:
    """The training configuration in the public script's YAML form."""
    model = ("dropout", "embed_dim", "num_heads", "num_layers", "prediction_target", "time_embed_dim")
    return {
        "attention": {"use_cross_level_attention": CONFIG.cross_level_attention},
        "data": {"data_dir": "examples/weather", "normalize_data": True},
        "dataset": {"name": NAME, "seq_len": SEQ_LEN},
        "energy": {"weight": 0.0},
        "evaluation": {"num_samples": 1000},
        "model": {key: getattr(CONFIG, key) for key in model},
        "noise": {"schedule": CONFIG.noise_schedule},
        "optimizer": {"lr": MAX_LR, "scheduler_type": "onecycle", "warmup_epochs": 0},
        "paths": {"output_dir": "."},
        "sampling": {"ddim_eta": 0.0, "ddim_steps": None, "method": "ddpm"},
        "training": {"batch_size": BATCH, "epochs": epochs, "save_model": True},
        "wavelet": {"levels": "auto", "type": WAVELET},
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train a small WaveletDiff in PyTorch on a year of hourly weather.")
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="folder for the two files; created if missing")
    parser.add_argument("--seconds", type=float, default=90.0, help="stop training after this time (%(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="stop training after these steps (%(default)s)")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps is at least 1")
    scale, series = Statistics.of(read_series(DATA).values), windows(held_out=False)
    sys.stdout.write(f"{DATA.name}: {len(series)} windows of {DAYS} days; every fourth week is held out\n")
    checkpoint = train(to_coefficients(scale.normalize(series)), options.steps, options.seconds)
    options.out_dir.mkdir(parents=True, exist_ok=True)
    stem = options.out_dir / NAME
    torch.save(checkpoint, f"{stem}.ckpt")
    Path(f"{stem}.config.yaml").write_text(yaml.safe_dump(public_config(checkpoint["epoch"])), encoding="utf-8")
    done = checkpoint["global_step"]
    sys.stdout.write(f"wrote {stem}.ckpt ({done} steps) and {stem}.config.yaml\n")
    if done < options.steps:
        short = f"{done} of {options.steps} steps fitted into {options.seconds:g} s"
        sys.stdout.write(f"{short}; for better samples, give more --seconds\n")


if __name__ == "__main__":
    # As fast as two threads for so small a model, and 16 to 43 times as fast (measured) while another
    # process holds one of the cores, for then the two wait for each other at every operation.
    torch.set_num_threads(1)
    main()
