"""Detect changes of a file while it is read.

A file that is written while it is read gives a mixture of two versions. Size, modification time, inode and device
reveal it, except for a change within one tick of the file system's clock (4 ms at most on Linux) after an earlier
change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, stat_result
from typing import Final, NamedTuple

from wdport.checkpoint.faults import Fault

WAIT: Final = "run it again once nothing writes to it"


class State(NamedTuple):
    """A file's status."""

    size: int
    modified: int
    """Nanoseconds."""
    inode: int
    device: int

    @staticmethod
    def of(status: stat_result) -> State:
        return State(status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)

    def require(self, now: State) -> None:
        """Raise :class:`Fault` if the file ``now`` is another one, or was written to."""
        if now[2:] != self[2:]:
            raise Fault("was replaced while it was read", WAIT)
        if now != self:
            raise Fault("was changed while it was read", WAIT)


def state_of(file: int | str | PathLike[str]) -> State:
    """Return the state of an open descriptor, or of the file at a path."""
    return State.of(os.stat(file))


@contextmanager
def unchanged(path: str | PathLike[str]) -> Iterator[None]:
    """Raise :class:`Fault` at the end of a block that reads ``path`` if the file was changed or replaced."""
    before = state_of(path)
    yield
    before.require(state_of(path))
