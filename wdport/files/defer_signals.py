"""Defer SIGINT and SIGTERM during operations that must not be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer signals that arrive in the block to its end.

    Their handlers are replaced, not the thread's mask: the kernel would deliver a masked signal to another thread, and
    Python would still run the handler here. Outside the main thread no handler runs, so nothing needs to be deferred.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        with _handled(signal.SIGINT, note), _handled(signal.SIGTERM, note):
            yield
    finally:
        # One is enough: its handler raises, so a second one would never be handled.
        for number in came[:1]:
            signal.raise_signal(number)


@contextmanager
def _handled(number: int, handler: Handler) -> Iterator[None]:
    before = signal.getsignal(number)
    if before in (None, signal.SIG_IGN):  # None: not Python's
        yield
        return
    try:
        signal.signal(number, handler)
        yield
    finally:
        signal.signal(number, before)
