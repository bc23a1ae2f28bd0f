"""What a file was like before it was read goes in; nothing comes out unless somebody has changed it meanwhile.

A file that is written while it is read gives a mixture of two. Size, modification time, inode and device tell: what
changes within one tick of the file system's clock (4 ms at most on Linux) of an earlier change does not show.
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
    """A file as the system describes it."""

    size: int
    modified: int
    """Nanoseconds."""
    inode: int
    device: int

    @staticmethod
    def of(found: stat_result) -> State:
        return State(found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev)

    def require(self, now: State) -> None:
        """Raise :class:`Fault` if the file is another one ``now``, or was written to."""
        if now[2:] != self[2:]:
            raise Fault("was replaced while it was read", WAIT)
        if now != self:
            raise Fault("was changed while it was read", WAIT)


def state_of(file: int | str | PathLike[str]) -> State:
    """The state of an open descriptor, or of the file that a path leads to."""
    return State.of(os.stat(file))


@contextmanager
def unchanged(path: str | PathLike[str]) -> Iterator[None]:
    """Raise :class:`Fault` at the end of a block that reads ``path`` in any way, if the file is no longer the same."""
    before = state_of(path)
    yield
    before.require(state_of(path))
