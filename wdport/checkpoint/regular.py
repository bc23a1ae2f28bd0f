"""The path of a regular file goes in; the open file, or all of a small one, comes out. Pipes and devices are refused.

The one way to open what a user names: nothing here waits for the other end of a pipe or reads without an end.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from os import PathLike
from typing import Final

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.unchanged import state_of
from wdport.errors import WdportError

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
_GIVE: Final = "give the path of a regular file"


def open_descriptor(path: str | PathLike[str], fix: str = _GIVE) -> int:
    """A descriptor to read a regular file; raises :class:`Fault` for what is none, and ``OSError``."""
    # The kind is asked before opening: merely opening a device can have effects.
    _require_regular(os.stat(path).st_mode, fix)
    # And again after: with O_NONBLOCK a pipe that has taken the file's place cannot hang the call.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _require_regular(os.fstat(descriptor).st_mode, fix)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(path: str | PathLike[str], fix: str = _GIVE) -> BufferedReader:
    """A regular file, open to be read; raises as :func:`open_descriptor`."""
    return os.fdopen(open_descriptor(path, fix), "rb")


def read_small(path: str | PathLike[str], most: int, fix: str = _GIVE) -> bytes:
    """All bytes of a regular file of at most ``most``; raises :class:`Fault` and ``OSError``.

    The length is compared before anything is read, and the state of the file after.
    """
    with open_regular(path, fix) as file:
        before = state_of(file.fileno())
        if before.size > most:
            raise Fault(f"has {before.size} bytes (at most {most} are read)", fix)
        data = file.read(most + 1)
        if len(data) > most:  # a file of the system may hold more than it says
            raise Fault(f"has more than {most} bytes", fix)
        before.require(state_of(file.fileno()))
    return data


def read_option(path: str | PathLike[str], most: int, refused: type[WdportError], fix: str) -> bytes:
    """The same for a file that an option names: whatever is the matter with it becomes the error ``refused``."""
    try:
        return read_small(path, most, fix)
    except Fault as fault:
        what = fault.what
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
    except ValueError:
        what = "a path cannot contain a zero byte"
    raise refused(path, what, fix)


def _require_regular(mode: int, fix: str) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in _KINDS if test(mode)), "not a regular file")
        raise Fault(f"is {kind}" if kind.startswith("a ") else kind, fix)
