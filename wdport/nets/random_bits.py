"""Random bits of JAX's default generator, Threefry, in a form that XLA for CPU compiles and runs faster.

JAX draws them on a CPU in a loop of five groups of rounds, and every round of the loop reads and writes whole arrays.
Here, all rounds are one expression, which XLA computes in one pass; the bits are the same. Source of the generator:
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from jax.extend.random import define_prng_impl

THREEFRY: Final = "threefry2x32"

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = np.uint32(0x1BD11BDA)
_COUNTABLE: Final = 1 << 32
"""Values that a counter of 32 bits can number."""


def one_loop(key: Tensor) -> Tensor:
    """Return a key with which :mod:`jax.random` draws the values of ``key``; ``key`` itself for other generators than
    JAX's default one, and if the program is not for a CPU."""
    default = jax.random.key_impl(key) == THREEFRY and getattr(jax.config, "jax_threefry_partitionable")
    if not default or jax.default_backend() != "cpu":
        return key
    fast_key: Tensor = jax.random.wrap_key_data(jax.random.key_data(key), impl=_generator())
    return fast_key


@cache
def _generator() -> Any:
    def split(words: Tensor, shape: tuple[int, ...]) -> Tensor:
        return jax.random.key_data(jax.random.split(_key(words), shape))

    def fold_in(words: Tensor, data: Any) -> Tensor:
        return jax.random.key_data(jax.random.fold_in(_key(words), data))

    def seed(number: Any) -> Tensor:
        return jax.random.key_data(jax.random.key(number, impl=THREEFRY))

    return define_prng_impl(key_shape=(2,), seed=seed, split=split, random_bits=_bits, fold_in=fold_in,
                            name="threefry2x32_one_loop", tag="fry1")  # fmt: skip


def _key(words: Tensor) -> Tensor:
    key: Tensor = jax.random.wrap_key_data(words, impl=THREEFRY)
    return key


def _bits(words: Tensor, width: int, shape: tuple[int, ...]) -> Tensor:
    """Random unsigned integers of ``width`` bits."""
    if prod(shape) >= _COUNTABLE:
        bits: Tensor = jax.random.bits(_key(words), shape, f"uint{width}")
        return bits
    # Numbered in two axes: the numbers of more are a part of every loop that takes long to compile. The first axis is
    # the batch's, which may be divided among devices.
    rows, columns = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
    row, column = (jax.lax.broadcasted_iota(jnp.uint32, (rows, columns), axis) for axis in (0, 1))
    high, low = _threefry(words[0], words[1], row * np.uint32(columns) + column)
    if width == 64:
        bits = high.astype(jnp.uint64) << np.uint64(32) | low.astype(jnp.uint64)
    else:
        bits = (high ^ low).astype(f"uint{width}")
    # XLA would otherwise compute them in the forward pass, and again in the backward pass.
    once: Tensor = jax.lax.optimization_barrier(bits)
    return once.reshape(shape)


def _threefry(first: Tensor, second: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """The two words that a key of two words makes of a number below 2**32."""
    keys = (first, second, first ^ second ^ _PARITY)
    high, low = jnp.broadcast_to(first, low.shape), low + second
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            high = high + low
            low = high ^ (low << np.uint32(rotation) | low >> np.uint32(32 - rotation))
        high = high + keys[(group + 1) % 3]
        low = low + keys[(group + 2) % 3] + np.uint32(group + 1)
    return high, low
