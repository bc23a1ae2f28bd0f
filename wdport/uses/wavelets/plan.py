"""Plan a multilevel transform: its stages, the four filters of a wavelet from PyWavelets, and the layout of the
coefficients.

Analysis (PyWavelets' `dwt`): cA[o] = sum_j h[j] x[s + 2o - j], cD with g, o = 0 ... M-1, on the extended
signal; s = 1, or Lf/2 for periodization.

Synthesis (`idwt`): y[k] = sum_o h'[k + Lf - 2 - 2o] cA[o] + g'[...] cD[o], k = 0 ... 2M - Lf + 1, whatever the
mode; for periodization h'[k + Lf/2 - 1 - 2o] with the index o taken modulo M, k = 0 ... 2M - 1. Split by the
parity r of k = 2m + r this is y[2m + r] = sum_t h'[2t + b] cA[m + a - t]: two short convolutions.

Boundary modes as linear maps: every sample beyond a signal's ends is a weighted sum of at most four inside it.

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
from functools import lru_cache

import numpy as np

from wdport.base.errors import UsageError
from wdport.base.options import COUNT, Interval, require_number
from wdport.models.interface import Array
from wdport.uses.wavelets.lengths import BOUNDARY_MODES, auto_level, filter_length


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


@dataclass(frozen=True, eq=False)
class FilterBank:
    """Decomposition and reconstruction filters, low-pass and high-pass, (Lf,) each, float64; Lf is even."""

    dec_lo: Array
    dec_hi: Array
    rec_lo: Array
    rec_hi: Array

    @property
    def length(self) -> int:
        """Lf, taps per filter."""
        return len(self.dec_lo)


@lru_cache
def filter_bank(wavelet: str) -> FilterBank:
    """The filters of one of PyWavelets' 106 discrete wavelets; raises :class:`UsageError` for another name."""
    import pywt

    try:
        filter_length(wavelet)
    except (ValueError, TypeError):
        fix = 'use one of pywt.wavelist(kind="discrete"), such as db2'
        raise UsageError("wavelet", f"{wavelet!r} is not a discrete wavelet of PyWavelets", fix) from None
    return FilterBank(*(np.asarray(taps, dtype=np.float64) for taps in pywt.Wavelet(wavelet).filter_bank))


@dataclass(frozen=True, eq=False)
class TransformStage:
    """A stage from ``length`` samples to ``count`` (M) approximation and detail coefficients, and back to ``restored``
    >= length.

    ``extension`` gives the samples from x[first] on that the analysis filters use; ``first`` is 0 or less.
    """

    length: int
    count: int
    restored: int
    first: int
    bank: FilterBank
    extension: Extension
    periodization: bool

    def analysis(self) -> tuple[Array, Array]:
        """Matrices (M, N) to approximation and to detail."""
        inside = self.extension.matrix(self.length)
        columns = 2 * np.arange(self.count)[:, None] + np.arange(self.bank.length)
        low, high = (np.zeros((self.count, len(inside))) for _ in range(2))
        np.put_along_axis(low, columns, self.bank.dec_lo[::-1][None], axis=1)
        np.put_along_axis(high, columns, self.bank.dec_hi[::-1][None], axis=1)
        return low @ inside, high @ inside

    def synthesis(self) -> tuple[Array, Array]:
        """Matrices (restored, M) from approximation and from detail."""
        matrices = np.zeros((2, self.restored, self.count))
        # Without periodization every o is within 0 ... M - 1: the 2 M - Lf + 2 samples are those that all taps reach.
        for parity, phase in enumerate(self.phases()):
            m = np.arange(self.restored // 2)
            for t in range(len(phase.low)):
                o = m + phase.shift - t
                if self.periodization:
                    o %= self.count
                matrices[0, 2 * m + parity, o] += phase.low[t]
                matrices[1, 2 * m + parity, o] += phase.high[t]
        return matrices[0], matrices[1]

    def phases(self) -> tuple[Phase, Phase]:
        """Synthesis filters for the even and the odd samples."""
        start = self.bank.length // 2 - 1 if self.periodization else self.bank.length - 2
        return _phase(self.bank, start), _phase(self.bank, start + 1)


@dataclass(frozen=True, eq=False)
class Phase:
    """y[m] = sum_t low[t] cA[m + shift - t] + high[t] cD[m + shift - t]."""

    low: Array
    high: Array
    shift: int


def _phase(bank: FilterBank, start: int) -> Phase:
    """Taps h'[i] with i of the parity of ``start``: i = start + 2 (m - o), so o = m + (start - i) / 2."""
    first = start % 2
    return Phase(bank.rec_lo[first::2], bank.rec_hi[first::2], (start - first) // 2)


@lru_cache(maxsize=4096)
def make_stage(length: int, wavelet: str, mode: str) -> TransformStage:
    """The stage for ``length`` samples; raises :class:`UsageError` as its parts do."""
    bank = filter_bank(wavelet)
    taps, periodization = bank.length, mode == "periodization"
    count = (length + 1) // 2 if periodization else (length + taps - 1) // 2
    restored = 2 * count if periodization else 2 * count - taps + 2
    start = taps // 2 if periodization else 1
    first = start - taps + 1
    extension = extend(length, first, start + 2 * (count - 1), mode)
    return TransformStage(length, count, restored, first, bank, extension, periodization)


@dataclass(frozen=True, eq=False)
class TransformPlan:
    """Stages from the finest to the coarsest; coefficients are laid out [cA_L, cD_L, ..., cD_1]."""

    length: int
    stages: tuple[TransformStage, ...]

    @property
    def level_lengths(self) -> tuple[int, ...]:
        if not self.stages:
            return (self.length,)
        return (self.stages[-1].count, *(stage.count for stage in reversed(self.stages)))

    @property
    def level_names(self) -> tuple[str, ...]:
        """cA3, cD3, cD2, cD1 for three levels."""
        level = len(self.stages)
        return (f"cA{level}", *(f"cD{i}" for i in range(level, 0, -1)))

    @property
    def level_slices(self) -> tuple[slice, ...]:
        ends = np.cumsum(self.level_lengths).tolist()
        return tuple(slice(end - size, end) for end, size in zip(ends, self.level_lengths, strict=True))

    @property
    def coefficients(self) -> int:
        """C, coefficients in all groups."""
        return sum(self.level_lengths)

    def analysis(self) -> Array:
        """W (C, N) in float64: the whole transform as one matrix."""
        approximation = np.eye(self.length)
        details: list[Array] = []
        for stage in self.stages:
            low, high = stage.analysis()
            details.insert(0, high @ approximation)
            approximation = low @ approximation
        return np.concatenate([approximation, *details])

    def synthesis(self) -> Array:
        """R (N, C) in float64: the whole inverse as one matrix; R W is the identity, W R is not."""
        groups = [np.eye(self.coefficients)[part] for part in self.level_slices]
        approximation = groups[0]
        for stage, detail in zip(reversed(self.stages), groups[1:], strict=True):
            low, high = stage.synthesis()
            approximation = (low @ approximation[: stage.count] + high @ detail)[: stage.length]
        return approximation


def make_plan(length: int, wavelet: str, mode: str, level: int | None) -> TransformPlan:
    """Make a plan; ``level`` None is the automatic one. Raises :class:`UsageError` naming the invalid argument."""
    require_number(COUNT, length=length)
    require_mode(mode)
    # Raises UsageError for an unknown wavelet, for which the automatic level would raise ValueError.
    filter_bank(wavelet)
    if level is None:
        level = auto_level(length, wavelet)
    require_number(Interval(0, integral=True), level=level)
    return _cached_plan(int(length), wavelet, mode, int(level))


# A plan compares by identity; cached, equal arguments give one static argument of jit, and so one program.
@lru_cache(maxsize=1024)
def _cached_plan(length: int, wavelet: str, mode: str, level: int) -> TransformPlan:
    stages: list[TransformStage] = []
    for _ in range(level):
        stages.append(make_stage(stages[-1].count if stages else length, wavelet, mode))
    return TransformPlan(length, tuple(stages))
