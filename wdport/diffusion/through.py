"""A network in, the same network with its idea of the clean state changed out.

Every sampler goes by that idea alone, so a change of it works with all of them and with either target.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.diffusion.scan import Network
from wdport.diffusion.schedules import STEPS, NoiseSchedule


def through_denoised(
    network: Network, schedule: NoiseSchedule, target: str, change: Callable[[Tensor], Tensor]
) -> Network:
    """``network`` whose prediction is what it would be had it seen ``change(denoised)``, (B, *shape) to the same."""
    alpha_bar = np.asarray(schedule.alpha_bar, np.float64)
    tables = np.sqrt(alpha_bar), np.sqrt(1.0 - alpha_bar)

    def changed(x: Tensor, time: Tensor) -> Tensor:
        output = network(x, time).astype(x.dtype)
        if target == "sample":
            return change(output)
        step = jnp.rint(time * STEPS).astype("int32")
        each = (-1, *[1] * (x.ndim - 1))
        signal, noise = (jnp.asarray(table.astype(x.dtype))[step].reshape(each) for table in tables)
        return (x - signal * change((x - noise * output) / signal)) / noise

    return changed
