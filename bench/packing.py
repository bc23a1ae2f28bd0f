"""Whether attention over short sequences pays to be packed: several samples' tokens in one call, masked by blocks.

`python bench/packing.py [--batch 64]`: milliseconds of the attention alone (without its projections) at the released
model's lengths and widths, for packs of 1, 2, 4 and 8 samples, in turn, in one process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LEVELS = ((5, 512), (5, 256), (8, 256), (13, 256))
HEADS, PACKS, CALLS = 8, (1, 2, 4, 8), 6


def packed(x: Any, pack: int) -> Any:
    """Query, key and value (B, L, 3D) to (B, L, D), ``pack`` samples in one attention."""
    batch, length, width = x.shape
    joined = x.reshape(batch // pack, pack * length, 3, HEADS, width // (3 * HEADS))
    query, key, value = jnp.moveaxis(joined, (2, 3), (0, 2))
    both = ((0, 1), (0, 1))
    logits = jax.lax.dot_general(query, key, (((3,), (3,)), both))
    own = np.kron(np.eye(pack, dtype=bool), np.ones((length, length), bool))
    weights = jax.nn.softmax(logits if pack == 1 else jnp.where(own, logits, -jnp.inf), axis=-1)
    made = jax.lax.dot_general(weights, value, (((3,), (2,)), both))
    return jnp.moveaxis(made, 1, 2).reshape(batch, length, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=41)
    arguments = parser.parse_args()
    print(f"batch {arguments.batch}, {jax.devices()[0].device_kind}, jax {jax.__version__}: ms by samples in a pack")
    print("tokens  width " + "".join(f"{pack:>8}" for pack in PACKS))
    for length, width in LEVELS:
        rng = np.random.default_rng(0)
        shape = (CALLS, arguments.batch, length, 3 * width)
        inputs = list(jnp.asarray(0.4 * rng.standard_normal(shape), jnp.float32))
        programs = {pack: jax.jit(lambda xs, pack=pack: [packed(x, pack) for x in xs]) for pack in PACKS}
        alone = programs[1](inputs)
        for program in programs.values():
            for one, other in zip(program(inputs), alone, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        times: dict[int, list[float]] = {pack: [] for pack in PACKS}
        for _ in range(arguments.rounds):
            for pack, program in programs.items():
                start = time.perf_counter()
                jax.block_until_ready(program(inputs))
                times[pack].append((time.perf_counter() - start) / CALLS)
        print(f"{length:>6} {width:>6} " + "".join(f"{1e3 * statistics.median(times[pack]):8.3f}" for pack in PACKS))


if __name__ == "__main__":
    main()
