"""Wall time of each gate of a comparison, by letter; gates may be interleaved."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from wdport.compare.findings import Gate


class Clock:
    """Seconds of wall time by gate: computing for a gate, or waiting for it.

    What every gate needs, namely reading the files, building the models and running the reference, counts as preflight
    (0).
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, letter: str, seconds: float) -> None:
        """Count these seconds for a gate."""
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
