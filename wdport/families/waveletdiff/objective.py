"""The training objective of WaveletDiff, for port and reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wdport.families.waveletdiff.config import Config
from wdport.model import Array, Batch, Objective

if TYPE_CHECKING:
    import jax
    import torch


def objective(config: Config, alpha_bar: Array) -> Objective:
    """See :class:`wdport.model.Objective`; ``alpha_bar`` (1001,) is the checkpoint's own."""
    from wdport.families.waveletdiff.loss import add_noise, diffusion_loss, draw_steps

    lengths = config.level_lengths

    def make_batch(seed: int, size: int) -> Batch:
        rng = np.random.default_rng(seed)
        shape = (size, config.coefficients, config.features)
        uniform = np.concatenate([[0.0, 0.9999], rng.random(max(size - 2, 0))])[:size]
        return {"clean": rng.standard_normal(shape), "noise": rng.standard_normal(shape), "uniform": uniform}

    def inputs(batch: Batch) -> tuple[Array, ...]:
        steps = draw_steps(batch["uniform"])
        noisy = add_noise(batch["clean"], batch["noise"], alpha_bar.astype(batch["clean"].dtype)[steps])
        return noisy, steps.astype(batch["clean"].dtype) / 1000

    def target(batch: Batch) -> Array:
        return batch["noise" if config.prediction_target == "noise" else "clean"]

    def loss(prediction: jax.Array, batch: Batch) -> jax.Array:
        return diffusion_loss(prediction, target(batch), lengths)

    def reference_loss(network: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        from wdport.families.waveletdiff.reference_training import training_loss

        return training_loss(network, batch, alpha_bar, lengths, config.prediction_target)

    return Objective(make_batch, inputs, target, loss, reference_loss)
