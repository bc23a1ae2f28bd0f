"""Find every wavelet and series length with given group lengths."""

from __future__ import annotations

from dataclasses import dataclass

from wdport.wavelets.lengths import filter_length, series_lengths


@dataclass(frozen=True)
class Candidate:
    """Wavelets that all have ``taps`` taps per filter, and the series lengths that fit, longest first."""

    wavelets: tuple[str, ...]
    taps: int
    lengths: tuple[int, ...]


def candidates(level_lengths: tuple[int, ...], mode: str = "symmetric") -> tuple[Candidate, ...]:
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
            matches.append(Candidate(tuple(names), taps, tuple(sorted(fitting, reverse=True))))
    return tuple(matches)
