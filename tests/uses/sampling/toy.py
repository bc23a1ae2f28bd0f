"""A denoiser of a few operations, which compiles in no time, for everything around the network."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from wdport.models.interface import ArrayNames, Diffused, NotDecoded
from wdport.uses.diffusion.diffusion import Diffusion
from wdport.uses.diffusion.schedules import noise_schedule, per_mille, step_list
from wdport.uses.sampling.network import Network
from wdport.uses.sampling.sampler import Programs

SHAPE = (5, 3)
ABOUT = Diffused(
    SHAPE, ArrayNames("coefficients", "coefficient", "coefficient"), ArrayNames("series", "step", "time step"),
    NotDecoded("a toy", "the toy has no units", "take a model"), 30,
)  # fmt: skip


def toy_network(dtype: str = "float32") -> Network:
    """(B, 5, 3); the series are twice the coefficients."""
    gain = np.asarray(1.3, dtype)

    def apply(weights: Any, state: Any, time: Any, labels: Any = None) -> Any:
        return jnp.sin(weights * state + 7.0 * time[:, None, None]) + 0.3 * jnp.mean(state, axis=1, keepdims=True)

    def finish(weights: Any, state: Any) -> Any:
        return state, 2.0 * state

    process = Diffusion(noise_schedule("exponential"), "noise", per_mille(1000), step_list)
    return Network(apply, finish, lambda: gain, lambda: process, dtype, ABOUT)


@cache
def toy_programs(dtype: str = "float32") -> Programs:
    return Programs(toy_network(dtype))
