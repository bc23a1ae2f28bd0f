"""What diffusers reads of a ``scheduler_config.json``, against what we read of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from wdport.diffusion.scheduler import OWN_STEPS, Scheduler
from wdport.families.unet2d.config import SCHEDULER, Config
from wdport.libraries import released_class
from wdport.model import Stated

COUNT = 5
"""Number of steps that are compared."""

ROUNDING = 1e-5
"""Relative tolerance for the library's tables, which are products in float32."""


def misread_scheduler(config: Config, stated: Stated) -> list[str]:
    """The differences in words; none where the file does not exist, or is not what samples are drawn with."""
    document, ours = stated.beside(SCHEDULER), config.scheduler
    if not document or ours is None or "scheduler" in stated.values:
        return []
    kind = str(document["_class_name"])
    theirs: Any = released_class("diffusers", kind).from_config(dict(document))
    agreement = {
        "noise schedule": np.allclose(theirs.alphas_cumprod.numpy(), ours.schedule().alpha_bar[1:], ROUNDING, 0.0),
        "prediction_type": theirs.config.prediction_type == ours.prediction_type,
        **({"clipping": _clip(theirs) == ours.clip, **_steps(theirs, ours)} if kind in OWN_STEPS else {}),
    }
    return [f"the {name} of the samplers is not that of {kind} as diffusers reads {SCHEDULER}"
            for name, same in agreement.items() if not same]  # fmt: skip


def _clip(theirs: Any) -> float | None:
    return float(theirs.config.clip_sample_range) if theirs.config.clip_sample else None


def _steps(theirs: Any, ours: Scheduler) -> dict[str, bool]:
    count = min(COUNT, ours.num_train_timesteps)
    # The library numbers steps from 0, a plan from 1: step 0 is the clean sample.
    theirs.set_timesteps(count)
    return {"spacing of steps": np.array_equal(theirs.timesteps.numpy() + 1, ours.steps(count))}
