"""Plans through the scan, in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from wdport.uses.diffusion.noise import lay_out
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.run_plan import plan_rows, run_plan


@partial(jax.jit, static_argnums=(0, 4))
def _scanned(network: Any, rows: Any, init: Any, tape: Any, change: Any) -> Any:
    return run_plan(network, rows, init, tape, record=True, change=change)


def states(plan: SamplingPlan, network: Any, init: np.ndarray, tape: Any = None, change: Any = None) -> np.ndarray:
    """The state after every row; ``tape`` has the noise of the noisy rows. One program serves all plans of as many rows
    with the same network and the same change of the clean state."""
    tape = np.zeros((plan.slots, *init.shape)) if tape is None else tape
    with jax.enable_x64(True):
        return np.asarray(_scanned(network, plan_rows(plan, "float64"), init, lay_out(tape, plan.noisy), change))
