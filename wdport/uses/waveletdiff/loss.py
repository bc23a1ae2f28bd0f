"""The training loss, a weighted sum over levels of mean squares, and the objective for port and reference.

Source: arXiv 2510.11839. A level's weight is a_i / d_i, normalised to sum 1, where d_i are its coefficients, a_0 = 2
for the approximation and a_i = 1 for details; a level's loss is a mean over batch, coefficients, features. Steps are
drawn from 0 to 999, while sampling takes 1000 to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from wdport.models.interface import Array, Batch, LossPart, Objective
from wdport.uses.diffusion.loss import DiffusionLoss, RandomBatch
from wdport.uses.diffusion.noise import step_noising
from wdport.uses.diffusion.schedules import per_mille
from wdport.uses.waveletdiff.config import Config

if TYPE_CHECKING:
    import torch

FIRST = 0
"""The first of the trained steps."""


def diffusion_loss(config: Config, alpha_bar: Array) -> DiffusionLoss:
    """The loss for a checkpoint's own ``alpha_bar`` (1001,)."""
    last = len(alpha_bar) - 1
    target = "noise" if config.prediction_target == "noise" else "sample"
    # Step 0 is drawn, and step 1000 is not: a checkpoint of the public code was trained so.
    noising = step_noising(target, per_mille(last), alpha_bar, range(FIRST, FIRST + last))
    return DiffusionLoss(noising, level_parts(config))


def level_parts(config: Config) -> tuple[LossPart, ...]:
    """Name, length and weight of every level; the approximation comes first."""
    lengths = config.level_lengths
    # Divided by the length although each part is already a mean: the public loss does both.
    weights = np.array([(2.0 if level == 0 else 1.0) / length for level, length in enumerate(lengths)])
    return tuple(map(LossPart, config.level_names, lengths, (weights / weights.sum()).tolist()))


def objective(config: Config, alpha_bar: Array) -> Objective:
    """See :class:`wdport.models.interface.Objective`; ``alpha_bar`` (1001,) is the checkpoint's own."""
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
        from wdport.uses.waveletdiff.reference import training_loss

        return training_loss(network, batch, alpha_bar, config.level_lengths, config.prediction_target)

    return Objective(make_batch, inputs, target, loss, reference_loss)
