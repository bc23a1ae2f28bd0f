"""Progress of a verification, and where its time goes: seconds by activity, of all threads together.

Threads work at the same time, so the sum may exceed the wall time. An activity inside another one counts for itself
alone, and waiting for another thread counts for nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Literal

from wdport.compare.findings import Gate

Activity = Literal["reading files", "building models", "tracing", "compiling", "running PyTorch", "running Keras",
                   "comparing", "looking for causes", "waiting"]  # fmt: skip

Say = Callable[[str], None]
"""A function that is told of every step, for a progress display."""

WAITING: Final = "waiting"

_TOTAL: Counter[str] = Counter()
_LOCK = threading.Lock()
_INNER = threading.local()


@contextmanager
def spent_on(activity: Activity) -> Iterator[None]:
    """Count the time of the block, without activities inside it."""
    outer, _INNER.seconds = getattr(_INNER, "seconds", 0.0), 0.0
    begun = time.monotonic()
    try:
        yield
    finally:
        seconds = time.monotonic() - begun
        with _LOCK:
            _TOTAL[activity] += seconds - _INNER.seconds
        _INNER.seconds = outer + seconds


def seconds_spent() -> Mapping[str, float]:
    """The seconds so far in this process."""
    with _LOCK:
        return dict(_TOTAL)


def seconds_since(before: Mapping[str, float]) -> dict[str, float]:
    """The seconds by activity since ``before``, the longest first; without waiting."""
    spent = {name: round(value - before.get(name, 0.0), 3) for name, value in seconds_spent().items()}
    return {name: value for name, value in sorted(spent.items(), key=lambda item: -item[1])
            if value > 0 and name != WAITING}  # fmt: skip


class Clock:
    """Seconds of wall time by gate: computing for a gate, or waiting for it.

    What every gate needs, namely reading the files, building the models and running the reference, counts as preflight
    (0).
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, letter: str, seconds: float) -> None:
        self.seconds[letter] = self.seconds.get(letter, 0.0) + seconds

    @contextmanager
    def gate(self, letter: str) -> Iterator[None]:
        """Count the time of the block for a gate."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.add(letter, time.monotonic() - begun)

    def timed(self, gates: Iterable[Gate]) -> list[Gate]:
        """The gates with their seconds; ``None`` where nothing was counted."""
        return [replace(gate, seconds=self.seconds.get(gate.name)) for gate in gates]
