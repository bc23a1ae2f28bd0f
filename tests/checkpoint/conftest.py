"""What a reader touches of a file."""

from __future__ import annotations

import pytest

from wdport.checkpoint.source import Source


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Offset and length of every read."""
    seen: list[tuple[int, int]] = []
    real = Source.read_unobserved

    def recording(self: Source, offset: int, target: memoryview) -> None:
        seen.append((offset, len(target)))
        real(self, offset, target)

    monkeypatch.setattr(Source, "read_unobserved", recording)
    return seen
