"""Boundaries keep the work of a backward pass linear in the depth, and are absent from programs without gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from wdport.nets.boundary import compile_options, once


def residual(boundary: Callable[[Any], Any], x: Any, kernels: Any) -> Any:
    """A pre-norm residual network over rows (B, D)."""
    for kernel in kernels:
        x = boundary(x)
        centred = boundary(x - x.mean(-1, keepdims=True))
        x = x + jnp.tanh(centred @ kernel)
    return jnp.sum(x**2)


def operations(boundary: Callable[[Any], Any], depth: int) -> float:
    """Element-wise operations and products of the compiled gradient; 256 rows of width 8, so products are few."""
    x, kernels = jnp.ones((256, 8)), [jnp.ones((8, 8))] * depth
    program = jax.jit(jax.grad(partial(residual, boundary), argnums=(0, 1)),
                      compiler_options=compile_options())  # fmt: skip
    found: Any = program.lower(x, kernels).compile().cost_analysis()
    return float(found["flops"])


def test_boundaries_keep_the_backward_pass_linear_in_the_depth() -> None:
    free, bound = (operations(boundary, 24) / operations(boundary, 12) for boundary in (lambda x: x, once))
    if free < 2.3:
        pytest.skip("this XLA repeats nothing without boundaries")
    assert bound < 2.1, (free, bound)


def test_boundaries_change_no_value_and_no_gradient() -> None:
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        x, kernels = rng.standard_normal((5, 4)), [rng.standard_normal((4, 4)) for _ in range(3)]
        slopes = [jax.value_and_grad(partial(residual, boundary), argnums=(0, 1)) for boundary in (once, lambda x: x)]
        found, wanted = (each(x, kernels) for each in slopes)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        check_grads(partial(residual, once), (x, kernels), order=2, atol=1e-5, rtol=1e-5)


def test_programs_without_gradients_have_no_boundaries() -> None:
    lowered = jax.jit(lambda x, kernels: residual(once, x, kernels)).lower(jnp.ones((5, 4)), [jnp.ones((4, 4))])
    assert "optimization_barrier" not in lowered.as_text()
