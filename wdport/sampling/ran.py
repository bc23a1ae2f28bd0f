"""A finished run of sampling, and the clock that separates compiling from drawing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ran:
    """A finished run: the number of samples that existed ``already``, the ``batch`` size, the ``seconds`` that the rest
    took, the ``shapes`` of all arrays by name, the ``size`` of the file in bytes, and the number of ``unsound``
    samples, with a value that is not finite. ``compiling`` are the seconds before the first step, ``rate`` the samples
    per second after them, None if there is nothing to measure."""

    already: int
    batch: int
    seconds: float
    shapes: Mapping[str, tuple[int, ...]]
    size: int
    unsound: int = 0
    compiling: float = 0.0
    rate: float | None = None


class Clock:
    """Receives progress reports; records when the first step began, before which programs are compiled."""

    def __init__(self, count: int, then: Callable[[float], None] | None) -> None:
        self._count, self._then = count, then
        self._began = time.monotonic()
        self._first: tuple[float, float] | None = None

    def __call__(self, done: float) -> None:
        if self._first is None:
            self._first = time.monotonic(), done
        if self._then:
            self._then(done)

    @property
    def compiling(self) -> float:
        """Seconds before the first step."""
        return self._first[0] - self._began if self._first else 0.0

    def rate(self) -> float | None:
        """Samples per second from the first step until now; None if the only report came at the end."""
        if self._first is None or self._first[1] >= self._count:
            return None
        return (self._count - self._first[1]) / max(time.monotonic() - self._first[0], 1e-9)
