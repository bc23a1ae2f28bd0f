"""A folder's name goes in; out comes a small WaveletDiff, trained in PyTorch on a real series.

The series is the electrocardiogram that ships inside PyWavelets (`pywt.data.ecg()`, 1024 samples); its
two features are the signal and its first difference. Written: ``ecg-seq24-db2.ckpt``, laid out as
Lightning does; ``.config.yaml``, in the public script's form; ``.norm.json``, mean and deviation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pywt.data
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.reference import WaveletDiff
from wdport.wavelets.lengths import group_lengths

NAME, FEATURES, SEQ_LEN, WAVELET, LEVEL = "ecg-seq24-db2", ("ecg", "difference"), 24, "db2", 3
BATCH, STEPS, MAX_LR, SEED = 25, 400, 1e-3, 0  # 1000 windows: 40 batches an epoch, 10 epochs

# Four heads on purpose: nothing in the weights tells the number, and the released models have eight. It predicts the
# coefficients: what predicts the noise is divided by sqrt(alpha_bar) = 0.003 in the first step of sampling, and after
# so short a training some of its series were hundreds of standard deviations away.
CONFIG = Config(
    group_lengths(SEQ_LEN, WAVELET, LEVEL), len(FEATURES), embed_dim=32, num_heads=4, num_layers=2, time_embed_dim=32,
    prediction_target="coefficient",
)  # fmt: skip


def load_series() -> NDArray[np.float64]:
    """The electrocardiogram (1023, 2): the signal, and its rise since the sample before."""
    signal = pywt.data.ecg().astype(np.float64)
    return np.stack([signal[1:], np.diff(signal)], axis=1)


def to_coefficients(series: NDArray[np.float64]) -> Tensor:
    """Stride-1 windows of a series (N, F) as coefficients (N - 23, 31, F): cA3, cD3, cD2, cD1."""
    windows = np.lib.stride_tricks.sliding_window_view(series, SEQ_LEN, axis=0).swapaxes(1, 2)
    groups = pywt.wavedec(windows, WAVELET, mode="symmetric", level=LEVEL, axis=1)
    return torch.tensor(np.concatenate(groups, axis=1), dtype=torch.float32)


def batches(coefficients: Tensor) -> Iterator[Tensor]:
    """Shuffled batches, epoch after epoch, without end."""
    while True:
        yield from torch.split(coefficients[torch.randperm(len(coefficients))], BATCH)


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
    """The checkpoint after ``steps`` steps, or after fewer when ``seconds`` are over."""
    torch.manual_seed(SEED)
    model = WaveletDiff(CONFIG).train()
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
        losses.append(loss.item())
        report(losses, every=max(1, steps // 8))
    return {
        "epoch": len(losses) * BATCH // len(coefficients),
        "global_step": len(losses),
        "pytorch-lightning_version": "2.6.6",
        "state_dict": model.state_dict(),
        "loops": {},
        "callbacks": {},
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [scheduler.state_dict()],
    }


def report(losses: list[float], every: int) -> None:
    """A line now and then, with the mean of the last losses: a single batch's is mostly noise."""
    if len(losses) == 1 or len(losses) % every == 0:
        sys.stdout.write(f"step {len(losses):4d}  loss {np.mean(losses[-every:]):.3f}\n")
        sys.stdout.flush()


def public_config(epochs: int) -> dict[str, Any]:
    """The training configuration as the public script's YAML has it."""
    model = ("dropout", "embed_dim", "num_heads", "num_layers", "prediction_target", "time_embed_dim")
    return {
        "attention": {"use_cross_level_attention": CONFIG.cross_level_attention},
        "data": {"data_dir": "pywt.data", "normalize_data": True},
        "dataset": {"name": "ecg", "seq_len": SEQ_LEN},
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
    parser = argparse.ArgumentParser(description="Train a small WaveletDiff in PyTorch on PyWavelets' ECG.")
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="folder for the three files; made if missing")
    parser.add_argument("--seconds", type=float, default=40.0, help="stop training after this time (%(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="stop training after these steps (%(default)s)")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps is at least 1")
    series = load_series()
    mean, std = series.mean(axis=0), series.std(axis=0)
    checkpoint = train(to_coefficients((series - mean) / std), options.steps, options.seconds)
    options.out_dir.mkdir(parents=True, exist_ok=True)
    stem = options.out_dir / NAME
    torch.save(checkpoint, f"{stem}.ckpt")
    Path(f"{stem}.config.yaml").write_text(yaml.safe_dump(public_config(checkpoint["epoch"])), encoding="utf-8")
    norm = json.dumps({"features": FEATURES, "mean": mean.tolist(), "std": std.tolist()})
    Path(f"{stem}.norm.json").write_text(norm + "\n", encoding="utf-8")
    sys.stdout.write(f"{stem}.ckpt: {checkpoint['global_step']} steps; .config.yaml and .norm.json are beside it\n")


if __name__ == "__main__":
    # As fast as two threads for so small a model, and 16 to 43 times as fast (measured) while another
    # process holds one of the cores, for then the two wait for each other at every operation.
    torch.set_num_threads(1)
    main()
