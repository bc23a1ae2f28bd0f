"""Stages of a pipeline, each in a thread of its own, and the buffers that pass between them.

numpy, hashlib and the system's reads and writes let go of Python's lock, so the stages run side by side. A stage is at
most one item ahead of the next one, and there are only so many buffers: that is the bound on memory.
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
"""Seconds after which whoever waits asks whether all was stopped."""


class Stopped(Exception):
    """Another stage has ended; nobody waits for this one."""


class Buffers:
    """Buffers of ``size`` bytes, used again and again; a page of one is first touched when it is needed."""

    def __init__(self, count: int, size: int, stop: Event) -> None:
        self._free: Queue[Array] = Queue()
        self._stop = stop
        for _ in range(count):
            self._free.put(np.empty(size, np.uint8))

    def take(self) -> Array:
        """A free one, waited for; raises :class:`Stopped`."""
        while not self._stop.is_set():
            try:
                return self._free.get(timeout=_WAIT)
            except Empty:
                continue
        raise Stopped

    def give(self, buffer: Array) -> None:
        """Let it be taken again."""
        self._free.put(buffer)


def ahead(items: Iterator[T], stop: Event) -> Iterator[T]:
    """The same items, made in another thread, one ahead of whoever asks for them.

    What is raised there is raised here. When this iterator ends or is closed, ``stop`` is set and the thread is over.
    """
    passed: Queue[T | _End] = Queue(1)

    def make() -> None:
        end = _End()
        try:
            for item in items:
                if not _put(passed, item, stop):
                    return
        except Stopped:
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
    """The last of the items, or the error that came in its place."""

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
    raise Stopped
