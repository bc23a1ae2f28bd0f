"""Small checkpoints and models for the tests: our reference with random weights, saved as users save theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import wdport
from wdport.recording.record_file import record_file
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.reference import WaveletDiff

SMALL = Config((5, 5, 8, 13), 3, 16, 2, 1, 8, wavelet="db2", boundary_mode="symmetric", seq_len=24)
"""24 steps of 3 features in db2: the smallest that still has every part of the model."""

QK_NORM = Config(**{**SMALL.to_dict(), "qk_norm": True})
NO_CROSS = Config(**{**SMALL.to_dict(), "cross_level_attention": False})
TINY = Config(**{**NO_CROSS.to_dict(), "level_lengths": (13, 13)})
"""Two levels that do not attend to one another: a third of the layers, for what does not depend on their number."""

SETTINGS = {"num_heads": "2", "wavelet": "db2", "seq_len": "24"}
"""What the shapes of these checkpoints do not tell (apart from what the assumptions get right)."""

TWO_LEVELS = Config(
    (5, 5), 3, 16, 2, 1, 8, cross_level_attention=False, wavelet="db2", boundary_mode="symmetric", seq_len=8
)
"""8 steps in two levels: a verdict on it takes half as long, where the parts of the model do not matter."""
TWO_LEVELS_SETTINGS = {**SETTINGS, "seq_len": "8"}

SET = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
"""The settings on a command line."""
TWO_LEVELS_SET = [word for name, value in TWO_LEVELS_SETTINGS.items() for word in ("--set", f"{name}={value}")]


def make_module(config: Config = SMALL, seed: int = 0) -> WaveletDiff:
    """The reference with every parameter random, biases and norms included."""
    torch.manual_seed(seed)
    module = WaveletDiff(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.normal_(1.0 if "norm.scale" in str(parameter) else 0.1, 0.3)
    return module


def make_state(config: Config = SMALL, seed: int = 0) -> dict[str, torch.Tensor]:
    """A state_dict whose tables are float32, as the public code's are."""
    return {name: tensor.clone() for name, tensor in make_module(config, seed).state_dict().items()}


def save(path: Path, state: dict[str, Any], lightning: bool = True) -> Path:
    """Save a state_dict bare or as Lightning does."""
    whole = {"epoch": 1, "global_step": 10, "pytorch-lightning_version": "2.6.6", "state_dict": state, "loops": {}}
    torch.save(whole if lightning else state, path)
    return path


def stated(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimizer's state_dict that says whether it is Adam or AdamW, as PyTorch's older releases do not."""
    state: dict[str, Any] = optimizer.state_dict()
    for group in state["param_groups"] if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) else ():
        group.setdefault("decoupled_weight_decay", isinstance(optimizer, torch.optim.AdamW))
    return state


def save_run(path: Path, config: Config = SMALL) -> Path:
    """A WaveletDiff as Lightning saves it during training, after three steps of AdamW with OneCycle."""
    module = make_module(config).train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=20)
    random = torch.Generator().manual_seed(0)
    for _ in range(3):
        x = torch.randn(4, config.coefficients, config.features, generator=random)
        loss = module(x, torch.rand(4, generator=random)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    whole = {"epoch": 0, "global_step": 3, "pytorch-lightning_version": "2.6.6", "state_dict": module.state_dict(),
             "loops": {}, "optimizer_states": [stated(optimizer)], "lr_schedulers": [schedule.state_dict()],
             "callbacks": {}}  # fmt: skip
    torch.save(whole, path)
    return path


def convert_tiny(folder: Path) -> Path:
    """A converted model of :data:`TINY` that knows the units of its data."""
    path = save(folder / "small.ckpt", make_state(TINY))
    np.savez(path.with_suffix(".npz"), norm_mean=[1.0, -2.0, 30.0], norm_std=[0.5, 2.0, 10.0])
    return wdport.convert(path, values=SETTINGS, norm_stats=path.with_suffix(".npz")).output


def inputs(config: Config, seed: int = 0, batch: int = 4) -> tuple[np.ndarray, ...]:
    """Coefficients (B, C, F), time (B,) and, if the network takes one, scale (B,), float64."""
    return FAMILY.signature(config).make(seed, batch, 1.0)


def record_small(
    target: str, checkpoint: Path | str, output: Path, config: Config = SMALL, **kwargs: Any
) -> dict[str, Any]:
    """:func:`wdport.recording.record_file.record_file` with the inputs of this family."""
    return record_file(target, str(checkpoint), str(output), inputs=FAMILY.signature(config).inputs, **kwargs)


def make_walk(folder: Path) -> None:
    """The checkpoint of ``.ci/walk`` and a recording of it, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = save(folder / "small.ckpt", make_state())
    record_small("tests.user_model:small", checkpoint, folder / "run.npz")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.make FOLDER   (write a small checkpoint and a recording of it there)")
    make_walk(Path(sys.argv[1]))


def verified(checkpoint: Path) -> None:
    """Convert a checkpoint, and assert that the conversion passes verify."""
    verdict = wdport.verify(checkpoint, wdport.convert(checkpoint, checkpoint.with_suffix(".keras")).output)
    assert verdict, [str(finding) for gate in verdict.gates for finding in gate.findings]
