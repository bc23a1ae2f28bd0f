"""The inverse question: group lengths in, every wavelet and series length that gives them out."""

from __future__ import annotations

from dataclasses import dataclass

from wdport.wavelets.lengths import filter_length, group_lengths


@dataclass(frozen=True)
class Candidate:
    """Wavelets that all have ``taps`` taps per filter, and the series lengths that fit, longest first."""

    wavelets: tuple[str, ...]
    taps: int
    lengths: tuple[int, ...]


def candidates(level_lengths: tuple[int, ...], mode: str = "symmetric") -> tuple[Candidate, ...]:
    """Everything that gives these groups (cA_L, cD_L, ..., cD_1), short filters first.

    Lengths depend on a filter's number of taps alone, so wavelets come in classes that no file can tell apart.
    """
    import pywt

    level = len(level_lengths) - 1
    classes: dict[int, list[str]] = {}
    for name in pywt.wavelist(kind="discrete"):
        classes.setdefault(filter_length(name), []).append(name)
    found = []
    for taps, names in sorted(classes.items()):
        finest = level_lengths[-1]
        reach = range(max(1, 2 * finest - taps - 1), 2 * finest + 1) if level else (finest,)
        fitting = [n for n in reach if group_lengths(n, names[0], level, mode) == tuple(level_lengths)]
        if fitting:
            found.append(Candidate(tuple(names), taps, tuple(sorted(fitting, reverse=True))))
    return tuple(found)
