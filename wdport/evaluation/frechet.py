"""The Fréchet distance of two Gaussians (Dowson and Landau, J. Multivariate Anal. 12, 1982)."""

from __future__ import annotations

import numpy as np

from wdport.errors import UsageError
from wdport.model import Array


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
    return np.asarray(np.linalg.qr(centred, mode="r")) if len(vectors) > vectors.shape[1] else centred
