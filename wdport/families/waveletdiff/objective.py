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
    import jax.numpy as jnp

    from wdport.diffusion.loss import RandomBatch
    from wdport.families.waveletdiff.loss import diffusion_loss

    trained = diffusion_loss(config, alpha_bar)

    def drawn(batch: Batch) -> tuple[jax.Array, RandomBatch]:
        clean, noise, uniform = (jnp.asarray(batch[name]) for name in ("clean", "noise", "uniform"))
        return clean, RandomBatch(noise, uniform)

    def make_batch(seed: int, size: int) -> Batch:
        rng = np.random.default_rng(seed)
        shape = (size, config.coefficients, config.features)
        # The first and the last of the trained steps are always in a batch.
        uniform = np.concatenate([[0.0, 0.9999], rng.random(max(size - 2, 0))])[:size]
        batch = {"clean": rng.standard_normal(shape), "noise": rng.standard_normal(shape), "uniform": uniform}
        return {**batch, "scale": np.exp(rng.standard_normal(size))} if config.scale_embedding else batch

    def inputs(batch: Batch) -> tuple[Array, ...]:
        scale = [batch["scale"]] if config.scale_embedding else []
        return (*map(np.asarray, trained.noisy(*drawn(batch))), *scale)

    def target(batch: Batch) -> jax.Array:
        return trained.target(*drawn(batch))

    def loss(prediction: jax.Array, batch: Batch) -> jax.Array:
        return trained.total(trained.errors(prediction, *drawn(batch)))

    def reference_loss(network: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        from wdport.families.waveletdiff.reference import training_loss

        return training_loss(network, batch, alpha_bar, config.level_lengths, config.prediction_target)

    return Objective(make_batch, inputs, target, loss, reference_loss)
