"""Run a plan: one `lax.scan` for every sampler.

The plan is an argument, not code, so a program compiled once serves every plan of as many rows. Sizes: S rows,
B samples of a state (C, F); any state shape with samples as its first axis works.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.sampler_updates import CLEAN, LANGEVIN, LANGEVIN_NOISE, LEARNED

Tensor = Any
"""A NumPy or JAX array outside the scan, a traced one inside."""

Network = Callable[[Tensor, Tensor], Tensor]
"""(state (B, C, F), time (B,)) to the prediction (B, C, F), or (B, C, 2F) with a learned variance."""

Draw = Callable[[Tensor], Tensor]
"""A row's number among the draws (a traced integer) to standard normal noise of the state's shape and dtype."""


Carry = tuple[Tensor, Tensor, Tensor]
"""The state, the base state and the memory, each (B, C, F)."""


Change = Callable[[Tensor], Tensor]
"""Maps the predicted clean state (B, C, F) to the changed one."""


class PlanRows(NamedTuple):
    """The arrays of a plan for the scan: times (S,), draws (S,), noisy (S,), coefficients (S, 3, 5) or as many
    more as the plan has, clean (S, 2), and scales (S,) and deviations (S, 3) or None."""

    times: Tensor
    draws: Tensor
    noisy: Tensor
    coefficients: Tensor
    clean: Tensor
    scales: Tensor | None = None
    deviations: Tensor | None = None

    def part(self, rows: slice) -> PlanRows:
        """Some of the rows."""
        part: PlanRows = jax.tree.map(lambda values: values[rows], self)
        return part


def plan_rows(plan: SamplingPlan, dtype: str) -> PlanRows:
    """A plan's arrays, cast once from float64 to the dtype of the state."""
    # Computed in float64 and rounded once; in float32 the error of the products would accumulate over the steps.
    coefficients, clean = plan.coefficients.astype(dtype), plan.clean.astype(dtype)
    scales, deviations = (None if values is None else values.astype(dtype) for values in (plan.scales, plan.deviations))
    return PlanRows(plan.times.astype(dtype), plan.draws.astype(np.uint32), plan.noisy, coefficients, clean, scales,
                    deviations)  # fmt: skip


def run_plan(
    network: Network,
    rows: PlanRows,
    state: Tensor,
    noise: Tensor | Draw,
    record: bool = False,
    change: Change | None = None,
) -> Tensor:
    """Run ``state`` through every row.

    Args:
        network: called once per row, with the row's time for every sample.
        rows: the plan, of the dtype of ``state``.
        state: x_T, (B, C, F); float32 or float64.
        noise: a tape (S, B, C, F) with a slot for *every* row (see :func:`wdport.uses.diffusion.noise.lay_out`), or
            a function of the row's ``draws``, called only in noisy rows.
        record: return the state after every row, (S, B, C, F), instead of the last one.
        change: changes the clean state before it is used; the plan must be made for it.
    """
    carry, states = run_rows(network, rows, first_carry(state), noise, record, change=change)
    return states if record else carry[0]


def first_carry(state: Tensor) -> Carry:
    """The initial carry of the first row."""
    return state, jnp.zeros_like(state), jnp.zeros_like(state)


def run_rows(
    network: Network,
    rows: PlanRows,
    carry: Carry,
    noise: Tensor | Draw,
    record: bool = False,
    change: Change | None = None,
) -> tuple[Carry, Tensor | None]:
    """Run some rows of a plan from a carry; arguments as in :func:`run_plan`."""
    draw = noise if callable(noise) else None

    def advance(carry: Carry, row: tuple[PlanRows, Tensor]) -> tuple[Carry, Tensor | None]:
        (time, number, noisy, matrix, clean, scale, spread), row_noise = row
        state = carry[0]
        if draw is not None:
            # A branch, not a product with 0: the generator runs in noisy rows only.
            row_noise = jax.lax.cond(noisy, draw, lambda _: jnp.zeros_like(state), number)
        output = network(state if scale is None else scale * state, jnp.broadcast_to(time, state.shape[:1]))
        # The state keeps its precision if the network computes in bfloat16.
        output, variance = jnp.split(output.astype(state.dtype), [state.shape[-1]], axis=-1)
        # The order of the unit vectors in diffusion/sampler_updates.py.
        terms = dict(enumerate((*carry, output, row_noise)))
        if change is not None:
            terms[CLEAN] = change(clean[0] * state + clean[1] * output)
        if matrix.shape[1] > LANGEVIN and spread is None:
            length = _norms(output)
            # An output of zeros has no direction, and must not make the other rows NaN.
            root = jnp.where(length > 0.0, sqrt(2.0) * _norms(row_noise) / jnp.where(length > 0.0, length, 1.0), 0.0)
            terms |= {LANGEVIN: root**2 * output, LANGEVIN_NOISE: root * row_noise}
        if spread is not None:
            # A variance between two, by a share from -1 to 1 of the way between their logarithms.
            deviation = jnp.exp(spread[0] + (spread[1] - spread[0]) * (variance + 1.0) / 2.0)
            terms[LEARNED] = jnp.sqrt(deviation**2 + spread[2]) * row_noise
        state, base, memory = (sum(matrix[i, j] * term for j, term in terms.items()) for i in range(3))
        return (state, base, memory), state if record else None

    # Scanned, the program has 22 kB of HLO for any number of steps; unrolled, 200 steps had 2.6 MB.
    carry, states = jax.lax.scan(advance, carry, (rows, None if draw else noise))
    return carry, states


def _norms(values: Tensor) -> Tensor:
    """The norm of every sample, for products with arrays of samples."""
    return jnp.sqrt(jnp.sum(values**2, axis=tuple(range(1, values.ndim)), keepdims=True))
