"""The training loss: a weighted sum over levels of mean squares.

Source: arXiv 2510.11839. A level's weight is a_i / d_i, normalised to sum 1, where d_i are its coefficients, a_0 = 2
for the approximation and a_i = 1 for details; a level's loss is a mean over batch, coefficients, features. Steps are
drawn from 0 to 999, while sampling takes 1000 to 1.
"""

from __future__ import annotations

import numpy as np

from wdport.diffusion.loss import DiffusionLoss
from wdport.diffusion.noising import step_noising
from wdport.diffusion.schedules import per_mille
from wdport.families.waveletdiff.config import Config
from wdport.model import Array, LossPart

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
