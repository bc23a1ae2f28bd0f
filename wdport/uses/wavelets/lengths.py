"""The number of coefficients per group of a multilevel transform, from series length and wavelet, and the reverse
search.

The lengths are those of `pywt.wavedec` (PyWavelets), computed without a transform. Also WaveletDiff's automatic choice
of wavelet and depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2

BOUNDARY_MODES = ("zero", "constant", "symmetric", "periodic", "smooth", "periodization", "reflect", "antisymmetric",
                  "antireflect")  # fmt: skip
"""PyWavelets' nine ways of extending a series beyond its ends."""

_MIN_LEVEL, _MAX_LEVEL = 3, 7


@lru_cache
def filter_length(wavelet: str) -> int:
    """Taps of the wavelet's filters; raises ``ValueError`` for a name PyWavelets does not know."""
    import pywt

    if wavelet not in pywt.wavelist(kind="discrete"):
        raise ValueError(f"wavelet {wavelet!r:.100} is not a discrete wavelet of PyWavelets")
    return int(pywt.Wavelet(wavelet).dec_len)


def group_lengths(seq_len: int, wavelet: str, level: int, boundary_mode: str = "symmetric") -> tuple[int, ...]:
    """Coefficients per group, (cA_L, cD_L, ..., cD_1), of a series of ``seq_len`` values; (seq_len,) for level 0."""
    taps = filter_length(wavelet)
    lengths: list[int] = []
    for _ in range(level):
        seq_len = (seq_len + 1) // 2 if boundary_mode == "periodization" else (seq_len + taps - 1) // 2
        lengths.insert(0, seq_len)
    return (lengths[0], *lengths) if lengths else (seq_len,)


def series_lengths(lengths: tuple[int, ...], wavelet: str, boundary_mode: str = "symmetric") -> list[int]:
    """Every length of a series whose groups, (cA_L, cD_L, ..., cD_1), have these lengths.

    The finest group is about half as long as the series, so no more than two lengths need to be tried.
    """
    level, finest = len(lengths) - 1, lengths[-1]
    halved = 2 * finest if boundary_mode == "periodization" else 2 * finest - filter_length(wavelet) + 2
    tried = (halved - 1, halved) if level else (finest,)
    return [n for n in tried if n >= 1 and group_lengths(n, wavelet, level, boundary_mode) == tuple(lengths)]


def auto_wavelet(seq_len: int) -> str:
    """The wavelet that WaveletDiff uses for this length if its configuration has ``auto``."""
    # The limits are those of the public code.
    return next((name for limit, name in ((32, "db2"), (64, "db4"), (128, "db6")) if seq_len <= limit), "db8")


def auto_level(seq_len: int, wavelet: str) -> int:
    """The depth that WaveletDiff uses if its configuration has ``auto``: 3 to 7."""
    taps = filter_length(wavelet)
    # pywt.dwt_max_level. The public code clips it to 3 at least, deeper than PyWavelets advises for short series.
    deepest = int(log2(seq_len / (taps - 1))) if seq_len >= taps - 1 else 0
    return min(max(deepest, _MIN_LEVEL), _MAX_LEVEL)


@dataclass(frozen=True)
class WaveletCandidate:
    """Wavelets that all have ``taps`` taps per filter, and the series lengths that fit, longest first."""

    wavelets: tuple[str, ...]
    taps: int
    lengths: tuple[int, ...]


def candidates(level_lengths: tuple[int, ...], mode: str = "symmetric") -> tuple[WaveletCandidate, ...]:
    """All candidates for these group lengths (cA_L, cD_L, ..., cD_1), short filters first.

    Lengths depend only on the number of filter taps, so wavelets with equal taps cannot be distinguished in a file.
    """
    import pywt

    classes: dict[int, list[str]] = {}
    for name in pywt.wavelist(kind="discrete"):
        classes.setdefault(filter_length(name), []).append(name)
    matches = []
    for taps, names in sorted(classes.items()):
        fitting = series_lengths(level_lengths, names[0], mode)
        if fitting:
            matches.append(WaveletCandidate(tuple(names), taps, tuple(sorted(fitting, reverse=True))))
    return tuple(matches)
