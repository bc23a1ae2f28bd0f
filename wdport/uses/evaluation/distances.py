"""Distances of two sets of series: Fréchet, sliced Wasserstein, dynamic time warping, correlations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from scipy.spatial.distance import jensenshannon

from wdport.base.errors import UsageError
from wdport.models.interface import Array

LARGEST: Final = 1e9
"""Largest scaled value; squares of larger ones would overflow float32 in a judge."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """The minimum and the maximum (F,) of real windows over windows and time; constant features have a range of 1."""

    least: Array
    largest: Array

    @staticmethod
    def of(real: Array) -> Scaling:
        """From real windows (n, N, F)."""
        least, largest = real.min((0, 1)), real.max((0, 1))
        return Scaling(least, np.where(largest > least, largest, least + 1.0))

    def __call__(self, series: Array) -> Array:
        """Scaled series (n, N, F), float64; generated values may leave [0, 1]."""
        scaled: Array = (np.asarray(series, np.float64) - self.least) / (self.largest - self.least)
        return scaled


def frechet_distance(one: Array, other: Array) -> float:
    """Return the squared distance of the Gaussians with the means and sample covariances of vectors (n, D), (m, D).

    It is |mu1 - mu2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)). The trace of the root is the sum of the singular values of
    A B^T, where A^T A = S1 and B^T B = S2: no root of a product that rounding made indefinite. Computed in float64.

    Raises :class:`UsageError` for fewer than two vectors.
    """
    if len(one) < 2 or len(other) < 2:
        raise UsageError("samples", f"are {len(one)} and {len(other)}", "give at least two of each")
    first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
    gap = first.mean(0) - second.mean(0)
    a, b = (_root(vectors) for vectors in (first, second))
    root = np.linalg.svd(a @ b.T, compute_uv=False).sum()
    return float(gap @ gap + (a**2).sum() + (b**2).sum() - 2.0 * root)


def _root(vectors: Array) -> Array:
    """A matrix A of at most D rows with A^T A the covariance of vectors (n, D)."""
    centred = (vectors - vectors.mean(0)) / np.sqrt(len(vectors) - 1)
    # The triangular factor has the same A^T A, and D rows instead of n.
    return np.asarray(np.linalg.qr(centred, mode="r")) if len(vectors) > vectors.shape[1] else centred


DIRECTIONS: Final = 400


def sliced_wasserstein(real: Array, generated: Array, seed: int) -> float:
    """Return the distance of order 2 of two sets of as many series (n, N, F), each taken as a vector.

    Features are standardised over the real set's windows and time, and the vectors are projected on 400 random
    directions, in float64; the distance is the root of the mean of the squared distances along them.
    """
    mean, deviation = real.mean((0, 1)), real.std((0, 1))
    deviation = np.where(deviation > 0.0, deviation, 1.0)
    directions = np.random.default_rng(seed).normal(size=(real.shape[1] * real.shape[2], DIRECTIONS))
    # Normal numbers have no preferred direction, so normalised they are uniform on the sphere.
    directions /= np.linalg.norm(directions, axis=0)
    # In one dimension the best transport pairs the sorted values.
    one, other = (np.sort(((series - mean) / deviation).reshape(len(series), -1) @ directions, 0)
                  for series in (real, generated))  # fmt: skip
    return float(np.sqrt(((one - other) ** 2).mean()))


BINS: Final = 50
MARGIN: Final = 0.05
"""Margin on both sides of the histograms, relative to the joint range of the distances."""

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
    # One series at a time: all at once would need memory for every pair.
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
        # Cells outside read any column; their cost is replaced by infinity below.
        local = jnp.abs(left - jnp.take(right, jnp.clip(column - 1, 0, columns - 1), axis=-1))
        diagonal, above, beside = earlier.cost[..., :-1], last.cost[..., :-1], last.cost[..., 1:]
        # The order of preference of the backtracking: the diagonal, then the row above, then the left.
        steps = jnp.where(above <= beside, last.length[..., :-1], last.length[..., 1:])
        least = jnp.minimum(above, beside)
        steps = jnp.where(diagonal <= least, earlier.length[..., :-1], steps)
        cost = jnp.where(inside, local + jnp.minimum(diagonal, least), jnp.inf)
        current = _Diagonals(endless.at[..., 1:].set(cost), none.length.at[..., 1:].set(steps + 1.0))
        return (last, current), current.cost[..., -1] / current.length[..., -1]

    # From 2, the antidiagonal of cell (1, 1). The last one has the cell (N, M) alone, in the last row.
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


DIVISOR: Final = 10.0
"""The public evaluation divides the sum over pairs by it."""


def correlations(series: Array) -> Array:
    """The correlations (F, F) of series (n, N, F): features standardised over windows and time, with the deviation of
    n N - 1 degrees of freedom."""
    flat = np.asarray(series, np.float64).reshape(-1, series.shape[-1])
    centred = flat - flat.mean(0)
    deviation = np.sqrt((centred**2).sum(0) / (len(flat) - 1))
    standard = centred / np.where(deviation > 0.0, deviation, 1.0)
    # The public evaluation standardises with n N - 1 and averages over n N, so that the diagonal is not exactly 1.
    matrix: Array = standard.T @ standard / len(flat)
    return matrix


def correlational_score(real: Array, generated: Array) -> float:
    """The sum over pairs of features i >= j of the absolute differences of their correlations, divided by 10."""
    return float(np.tril(np.abs(correlations(real) - correlations(generated))).sum() / DIVISOR)
