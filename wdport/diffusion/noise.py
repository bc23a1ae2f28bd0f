"""Draw noise from a seed and sample indices, or lay out a recorded tape for the scan.

Every sample has its own key, made from the seed and the sample's index, and every step folds its number into that. So a
sample does not depend on its batch, chunk or device, and no key is used twice.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.errors import UsageError
from wdport.model import Array
from wdport.options import require_number

FIRST = 0
"""Folded in for x_T; steps fold in their number, from 1 on."""

MAX_SEED = 2**32 - 1


def check_seed(seed: int) -> int:
    """``seed`` as an int; raises :class:`UsageError` outside 32 bits."""
    require_number((0, MAX_SEED), seed=seed)
    return int(seed)


def sample_keys(seed: Tensor, indices: Tensor) -> Tensor:
    """(B,) keys of the samples with these indices (uint32), independent of the generator and offset that jax is set
    to."""
    # The two words that jax.random.key makes of a 32-bit seed; the upper one is zero.
    words = jnp.stack([jnp.zeros((), jnp.uint32), jnp.asarray(seed, jnp.uint32)])
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    return jax.vmap(lambda index: jax.random.fold_in(key, index))(indices)


def step_noise(keys: Tensor, step: Tensor | int, shape: tuple[int, ...], dtype: str) -> Tensor:
    """(B, *shape) standard normal noise of one step (or row, see ``Plan.draws``); ``FIRST`` gives x_T.

    Drawn in float32 for every ``dtype``, so that float64 and float32 models get the same noise.
    """

    def one(key: Tensor) -> Tensor:
        # fold_in and not split: the noise of a step does not depend on how many steps the plan has.
        return jax.random.normal(jax.random.fold_in(key, step), shape, jnp.float32)

    # The bits depend on this setting, which is JAX's default but can be changed by the user.
    with jax.threefry_partitionable(True):
        return jax.vmap(one)(keys).astype(dtype)


def lay_out(tape: Array, noisy: Array) -> Array:
    """A tape with one slot per noisy row, (slots, B, C, F), as one with a slot for every row, (S, B, C, F).

    Slots beyond those needed are left out. Raises :class:`UsageError` if there are too few.
    """
    needed = int(np.sum(noisy))
    if len(tape) < needed:
        raise UsageError("noise", f"has {len(tape)} slots, the sampler takes {needed}", "record one per noisy step")
    laid = np.zeros((len(noisy), *tape.shape[1:]), tape.dtype)
    laid[noisy] = tape[:needed]
    return laid
