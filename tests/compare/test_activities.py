"""Seconds by activity: an inner one counts for itself alone, in every thread, and waiting for nothing."""

from __future__ import annotations

import time
from itertools import count

import pytest

from wdport.compare.activities import seconds_since, seconds_spent, spent_on


def test_an_inner_activity_counts_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    before = seconds_spent()
    with spent_on("comparing"):  # 0 to 7
        with spent_on("running Keras"), spent_on("tracing"):  # 1 to 4, and 2 to 3
            pass
        with spent_on("waiting"):  # 5 to 6
            pass
    assert seconds_since(before) == {"comparing": 3.0, "running Keras": 2.0, "tracing": 1.0}
