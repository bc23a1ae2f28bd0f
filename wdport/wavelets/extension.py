"""Boundary modes as linear maps: every sample beyond a signal's ends is a weighted sum of at most four inside it.

PyWavelets' nine modes (https://pywavelets.readthedocs.io/en/latest/ref/signal-extension-modes.html), N samples
x[0], ..., x[N-1], position p anywhere:

    zero            0
    constant        x[0] or x[N-1]
    periodic        x[p mod N]
    periodization   x[min(p mod P, N-1)], P = N rounded up to even
    symmetric       q = p mod 2N: x[q] or x[2N-1-q]               (half-sample mirror)
    antisymmetric   the same, negated in the mirrored half
    reflect         q = p mod (2N-2): x[q] or x[2N-2-q]           (whole-sample mirror)
    antireflect     m, q = divmod(p, 2N-2): 2m (x[N-1] - x[0]) + (x[q] or 2 x[N-1] - x[2N-2-q])
    smooth          the straight line through the two samples at the edge
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wdport.errors import UsageError
from wdport.mapping.arrays import Array
from wdport.wavelets.lengths import BOUNDARY_MODES


@dataclass(frozen=True, eq=False)
class Extension:
    """Sample p is ``sum_k weights[p, k] * x[indices[p, k]]``; ``indices`` (P, K) int, ``weights`` (P, K) float64."""

    indices: Array
    weights: Array

    def matrix(self, length: int) -> Array:
        """The same as a (P, N) matrix."""
        matrix = np.zeros((len(self.indices), length))
        # add.at, and not an assignment: several terms of a sample may have the same index, and add up.
        np.add.at(matrix, (np.arange(len(matrix))[:, None], self.indices), self.weights)
        return matrix


def extend(length: int, first: int, last: int, mode: str) -> Extension:
    """Positions ``first`` to ``last`` (inclusive) of a signal of ``length`` samples.

    Raises :class:`UsageError` for an unknown mode, and for a single sample where the mode needs two.
    """
    require_mode(mode)
    if length == 1 and mode in ("reflect", "antireflect"):
        raise UsageError("mode", f"{mode} cannot extend a single sample", "take another mode or a smaller level")
    p = np.arange(first, last + 1)
    terms = _TERMS[mode](p, length)
    indices, weights = (np.stack(parts, axis=1) for parts in zip(*terms, strict=True))
    return Extension(indices, weights.astype(np.float64))


def require_mode(mode: str) -> None:
    """Raise :class:`UsageError` unless ``mode`` is one of the nine."""
    if mode not in BOUNDARY_MODES:
        raise UsageError("mode", f"unknown boundary mode {mode!r}", f"use one of {', '.join(BOUNDARY_MODES)}")


Terms = list[tuple[Array, Array]]


def _one(index: Array, weight: Array | float = 1.0) -> Terms:
    return [(index, np.broadcast_to(np.asarray(weight, dtype=np.float64), index.shape))]


def _inside(p: Array, n: int) -> Array:
    return np.clip(p, 0, n - 1)


def _zero(p: Array, n: int) -> Terms:
    return _one(_inside(p, n), (p >= 0) & (p < n))


def _constant(p: Array, n: int) -> Terms:
    return _one(_inside(p, n))


def _periodic(p: Array, n: int) -> Terms:
    return _one(p % n)


def _periodization(p: Array, n: int) -> Terms:
    # A signal of odd length is first made even by repeating its last sample.
    return _one(np.minimum(p % (n + n % 2), n - 1))


def _symmetric(p: Array, n: int) -> Terms:
    q = p % (2 * n)
    return _one(np.minimum(q, 2 * n - 1 - q))


def _antisymmetric(p: Array, n: int) -> Terms:
    q = p % (2 * n)
    return _one(np.minimum(q, 2 * n - 1 - q), np.where(q < n, 1.0, -1.0))


def _reflect(p: Array, n: int) -> Terms:
    q = p % (2 * n - 2)
    return _one(np.minimum(q, 2 * n - 2 - q))


def _antireflect(p: Array, n: int) -> Terms:
    turns, q = np.divmod(p, 2 * n - 2)
    mirrored = q >= n
    mirror = _one(np.minimum(q, 2 * n - 2 - q), np.where(mirrored, -1.0, 1.0))
    first, last = np.zeros_like(p), np.full_like(p, n - 1)
    return [*mirror, *_one(last, 2.0 * turns + np.where(mirrored, 2.0, 0.0)), *_one(first, -2.0 * turns)]


def _smooth(p: Array, n: int) -> Terms:
    # A single sample has no slope; PyWavelets repeats it as well.
    if n == 1:
        return _constant(p, n)
    beyond = np.where(p < 0, p, np.maximum(p - (n - 1), 0))  # steps outside, signed
    edge = _inside(p, n)
    upper = np.where(p < 0, 1, n - 1)
    return [*_one(edge), *_one(upper, beyond), *_one(upper - 1, -beyond)]


_TERMS = {
    "zero": _zero,
    "constant": _constant,
    "symmetric": _symmetric,
    "periodic": _periodic,
    "smooth": _smooth,
    "periodization": _periodization,
    "reflect": _reflect,
    "antisymmetric": _antisymmetric,
    "antireflect": _antireflect,
}
