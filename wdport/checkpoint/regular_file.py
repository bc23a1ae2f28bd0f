"""Open a regular file, or read all of a small one, and detect changes while it is read. Pipes and devices are
refused.

All files that a user names are opened here: this never waits for the other end of a pipe and never reads endlessly.

A file that is written while it is read gives a mixture of two versions. Size, modification time, inode and device
reveal it, except for a change within one tick of the file system's clock (4 ms at most on Linux) after an earlier
change.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from os import PathLike, stat_result
from pathlib import Path
from typing import Final, NamedTuple

from wdport.base.errors import InputError, MachineError
from wdport.base.platforms import CLOEXEC, NONBLOCK, unsupported
from wdport.checkpoint.faults import Fault

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
_GIVE: Final = "give the path of a regular file"


def require_supported() -> None:
    """Raise :class:`MachineError` on an operating system without what every reader and writer needs."""
    if name := unsupported():
        what = "wdport needs file locks and positional reads, which this system lacks"
        raise MachineError(name, what, "use Linux or macOS, or WSL 2 on Windows")


def open_descriptor(path: str | PathLike[str], fix: str = _GIVE) -> int:
    """Return a descriptor to read a regular file; raises :class:`Fault` for anything else, ``OSError``, and
    :class:`~wdport.base.errors.MachineError` on Windows."""
    require_supported()
    # The kind is asked before opening: merely opening a device can have effects.
    _require_regular(os.stat(path).st_mode, fix)
    # And again after: with O_NONBLOCK a pipe that has taken the file's place cannot hang the call.
    descriptor = os.open(path, os.O_RDONLY | NONBLOCK | CLOEXEC)
    try:
        _require_regular(os.fstat(descriptor).st_mode, fix)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(path: str | PathLike[str], fix: str = _GIVE) -> BufferedReader:
    """Open a regular file for reading; raises as :func:`open_descriptor` does."""
    return os.fdopen(open_descriptor(path, fix), "rb")


def read_small(path: str | PathLike[str], max_bytes: int, fix: str = _GIVE) -> bytes:
    """Read all bytes of a regular file of at most ``max_bytes`` bytes; raises :class:`Fault` and ``OSError``.

    The length is checked before anything is read, and the state of the file afterwards.
    """
    with open_regular(path, fix) as file:
        before = state_of(file.fileno())
        if before.size > max_bytes:
            raise Fault(f"has {before.size} bytes (at most {max_bytes} are read)", fix)
        data = file.read(max_bytes + 1)
        if len(data) > max_bytes:  # a file in /proc, for example, has the size 0
            raise Fault(f"has more than {max_bytes} bytes", fix)
        before.require(state_of(file.fileno()))
    return data


def read_option(path: str | PathLike[str], max_bytes: int, fix: str) -> bytes:
    """Read a small file that an option names; raises :class:`~wdport.base.errors.InputError`, and :class:`MachineError`
    without permission."""
    try:
        return read_small(path, max_bytes, fix)
    except Fault as fault:
        what = fault.what
    except FileNotFoundError:
        what = "no such file"
    except PermissionError:
        raise MachineError(Path(path), "permission denied", "give this user read permission (chmod u+r)") from None
    except OSError as error:
        what = f"cannot be opened ({error.strerror})"
    except ValueError:
        what = "a path cannot contain a zero byte"
    raise InputError(path, what, fix)


def _require_regular(mode: int, fix: str) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in _KINDS if test(mode)), "not a regular file")
        raise Fault(f"is {kind}" if kind.startswith("a ") else kind, fix)


def inside(folder: Path, name: str) -> Path:
    """Return the path of the file ``name``, which must be inside ``folder``, following links.

    A snapshot in a cache of the Hugging Face Hub links to the files of its repository, in ``blobs``; those are inside.
    """
    path = folder / name
    plain = name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)
    place = os.path.realpath(folder)
    # `realpath` follows every link, so a name inside the folder cannot lead outside it.
    snapshot = snapshot_of(Path(place))
    places = [place] if snapshot is None else [place, str(snapshot.parents[1] / "blobs")]
    if not plain or os.path.dirname(os.path.realpath(path)) not in places:
        fix = "put all files into the folder itself (cp -rL copies what links lead to)"
        raise Fault(f"file {name!r} lies outside the folder", fix)
    return path


def snapshot_of(place: Path) -> Path | None:
    """The folder ``models--GROUP--NAME/snapshots/COMMIT`` that a place is, or is in."""
    for folder in (place, *place.parents):
        if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
            return folder
    return None


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
        # A new inode means another file under this path: editors and downloads rename a new file into place.
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
