"""Pipeline stages, each in its own thread, and the buffers that pass between them.

numpy, hashlib and the system's reads and writes release the GIL, so the stages run in parallel. A stage is at most one
item ahead of the next one, and the number of buffers is fixed, which bounds the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Final, TypeVar

import numpy as np

from wdport.model import Array

T = TypeVar("T")

_WAIT: Final = 0.1
"""Seconds between a waiting stage's checks of whether the pipeline was stopped."""


class StageEnded(Exception):
    """Another stage has ended; the result of this one is not needed."""


class Buffers:
    """Reusable buffers of ``size`` bytes; their pages are first touched when needed."""

    def __init__(self, count: int, size: int, stop: Event) -> None:
        self._free: Queue[Array] = Queue()
        self._stop = stop
        for _ in range(count):
            self._free.put(np.empty(size, np.uint8))

    def take(self) -> Array:
        """Wait for a free buffer and return it; raises :class:`StageEnded`."""
        while not self._stop.is_set():
            try:
                return self._free.get(timeout=_WAIT)
            except Empty:
                continue
        raise StageEnded

    def give(self, buffer: Array) -> None:
        """Return a buffer for reuse."""
        self._free.put(buffer)


def prefetch(items: Iterator[T], stop: Event) -> Iterator[T]:
    """Yield the same items, produced in another thread, one ahead of the consumer.

    An exception in the thread is raised here. When this iterator ends or is closed, ``stop`` is set and the thread has
    ended.
    """
    passed: Queue[T | _End] = Queue(1)

    def make() -> None:
        end = _End()
        try:
            for item in items:
                if not _put(passed, item, stop):
                    return
        except StageEnded:
            return
        except BaseException as error:
            end.error = error
        _put(passed, end, stop)

    thread = Thread(target=make, daemon=True)
    thread.start()
    try:
        while not isinstance(item := _got(passed, stop), _End):
            yield item
        if item.error is not None:
            raise item.error
        thread.join()
    except BaseException:
        stop.set()
        thread.join()
        raise


class _End:
    """The end of the items, or the error that ended them."""

    error: BaseException | None = None


def _put(passed: Queue[T | _End], item: T | _End, stop: Event) -> bool:
    while not stop.is_set():
        try:
            passed.put(item, timeout=_WAIT)
            return True
        except Full:
            continue
    return False


def _got(passed: Queue[T | _End], stop: Event) -> T | _End:
    while not stop.is_set():
        try:
            return passed.get(timeout=_WAIT)
        except Empty:
            continue
    raise StageEnded
