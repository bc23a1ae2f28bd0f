"""A boundary across which XLA does not fuse, in programs that compute gradients.

XLA may recompute a cheap value in every place that uses it. The gradient of a residual stream is a chain of sums
through all blocks, and XLA for CPU repeated the chain for every product: work quadratic in the depth. A value that
passes through a boundary is computed once.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import Array as Tensor


def barrier(values: Any) -> Any:
    """The arrays of ``values``, none of which is used before all of them are computed."""
    return jax.lax.optimization_barrier(values)


@jax.custom_jvp
def once(x: Tensor) -> Tensor:
    """Return ``x``, which is computed once, and so is its gradient; without gradients this has no effect."""
    return x


@once.defjvp
def _once(primals: tuple[Tensor], tangents: tuple[Tensor]) -> tuple[Tensor, Tensor]:
    (value,), (slope,) = primals, tangents
    # The rule is only used under differentiation; a plain call keeps XLA's fusions.
    return barrier(value), barrier(slope)


@jax.custom_vjp
def gradients_once(values: Any) -> Any:
    """Return the arrays of ``values``; none of their gradients is used before all of them are computed."""
    return values


def _forward(values: Any) -> tuple[Any, None]:
    return values, None


def _backward(_: None, slopes: Any) -> tuple[Any]:
    return (barrier(slopes),)


gradients_once.defvjp(_forward, _backward)


def compile_options() -> dict[str, Any]:
    """Options for :func:`jax.jit` of a program with boundaries: XLA for CPU would remove them before it fuses."""
    return {"xla_disable_hlo_passes": "cse_barrier_expander"} if jax.default_backend() == "cpu" else {}
