"""Dynamic time warping of many pairs of series at once, and the divergence of two sets' distances."""

from __future__ import annotations

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from scipy.spatial.distance import jensenshannon

from wdport.model import Array

BINS: Final = 50
MARGIN: Final = 0.05
"""Of the joint range of the distances, on both sides of the histograms."""

SMALL: Final = 1e-10
"""Added to every bin, so that empty ones have a logarithm."""


class _Diagonals(NamedTuple):
    """Cost of the best path to each cell of an antidiagonal, and its number of cells, (..., N + 1) each, by row; row 0
    is outside."""

    cost: Tensor
    length: Tensor


@jax.jit
def dtw_distances(series: Tensor, references: Tensor) -> Tensor:
    """Return the DTW distance of every series (n, N, F) to every reference (m, M, F), (n, m).

    The cost of a cell is the absolute difference, paths may go anywhere, and the cost of the best path is divided by
    its number of cells. The path is that which is found from the end: of equal predecessors the diagonal one is taken
    first, then the one in the row above, then the one to the left. Distances are per feature, averaged over features.

    Cells of an antidiagonal do not depend on each other, so a scan over the antidiagonals computes all pairs and
    features at once.
    """
    distances: Tensor = jax.lax.map(lambda one: _to_all(one, references), series)
    return distances


def _to_all(one: Tensor, references: Tensor) -> Tensor:
    """The distances (m,) of one series (N, F) to all references (m, M, F)."""
    rows, columns = one.shape[0], references.shape[1]
    left, right = one.T, jnp.moveaxis(references, 2, 1)  # (F, N), (m, F, M)
    shape, dtype = (*right.shape[:2], rows + 1), references.dtype
    endless = jnp.full(shape, jnp.inf, dtype)
    row = jnp.arange(1, rows + 1)
    start = _Diagonals(endless.at[..., 0].set(0.0), jnp.zeros(shape, dtype))  # the corner outside, before cell (1, 1)
    none = _Diagonals(endless, jnp.zeros(shape, dtype))

    def step(both: tuple[_Diagonals, _Diagonals], antidiagonal: Tensor) -> tuple[tuple[_Diagonals, _Diagonals], Tensor]:
        earlier, last = both  # the two before this one, where row + column = antidiagonal
        column = antidiagonal - row
        inside = (column >= 1) & (column <= columns)
        local = jnp.abs(left - jnp.take(right, jnp.clip(column - 1, 0, columns - 1), axis=-1))
        diagonal, above, beside = earlier.cost[..., :-1], last.cost[..., :-1], last.cost[..., 1:]
        steps = jnp.where(above <= beside, last.length[..., :-1], last.length[..., 1:])
        least = jnp.minimum(above, beside)
        steps = jnp.where(diagonal <= least, earlier.length[..., :-1], steps)
        cost = jnp.where(inside, local + jnp.minimum(diagonal, least), jnp.inf)
        current = _Diagonals(endless.at[..., 1:].set(cost), none.length.at[..., 1:].set(steps + 1.0))
        return (last, current), current.cost[..., -1] / current.length[..., -1]

    _, ends = jax.lax.scan(step, (start, none), jnp.arange(2, rows + columns + 1))
    distances: Tensor = ends[-1].mean(-1)
    return distances


def jensen_shannon(one: Array, other: Array) -> float:
    """Return the Jensen-Shannon divergence, with natural logarithms, of the histograms of two sets of numbers.

    Both have 50 bins over the joint range with 5 % more on each side; 1e-10 is added to every bin.
    """
    both = np.concatenate([one, other]).astype(np.float64)
    margin = MARGIN * (both.max() - both.min())
    edges = np.linspace(both.min() - margin, both.max() + margin, BINS + 1)
    histograms = [np.histogram(numbers, edges)[0] + SMALL for numbers in (one, other)]
    return float(jensenshannon(*histograms) ** 2)  # scipy's is the distance, the root of the divergence
