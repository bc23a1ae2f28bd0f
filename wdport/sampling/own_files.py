"""Files of a folder that this user alone may write to: opened without following links, and only if nobody else may.

What another user can write to decides what a run makes of it, so a folder or file of theirs is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Final

from wdport.errors import InputError
from wdport.owners import distrust

_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A link is an error, and a pipe does not wait for somebody to write into it."""


def own_folder(folder: Path, fix: str) -> None:
    """Make ``folder`` for this user alone; raises :class:`InputError` where it is a link, or not this user's.

    The owner of the folder around may have made it, too: whoever that is can replace the output itself.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found, around = os.lstat(folder), os.stat(folder.parent)
    if not stat.S_ISDIR(found.st_mode):
        raise InputError(folder, "is a link to a folder", fix)
    if reason := distrust(found, folder.parent, {around.st_uid}):
        raise InputError(folder, reason, fix)


def open_own(file: Path, fix: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file in a folder of one's own; raises :class:`InputError` for any other."""
    try:
        opened = os.open(file, flags | _SAFELY, 0o600)
    except OSError as error:
        if not os.path.islink(file) and not _is_special(file):
            raise
        raise InputError(file, "is no regular file", fix) from error
    try:
        found = os.fstat(opened)
        reason = None if stat.S_ISREG(found.st_mode) else "is no regular file"
        reason = reason or distrust(found, file.parent, {os.stat(file.parent).st_uid})
        if reason:
            raise InputError(file, reason, fix)
    except BaseException:
        os.close(opened)
        raise
    return opened


def read_own(file: Path, most: int, fix: str) -> bytes:
    """All bytes of such a file; raises :class:`InputError` where there are more than ``most``."""
    with opened_own(file, fix) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise InputError(file, f"has more than {most} bytes", fix)
    return data


def opened_own(file: Path, fix: str) -> IO[bytes]:
    """Such a file to read; see :func:`open_own`."""
    return os.fdopen(open_own(file, fix), "rb")


def keep_private(file: IO[bytes]) -> None:
    """Let no other user write to a new file, whatever the process's mask is."""
    os.fchmod(file.fileno(), 0o600)


def _is_special(file: Path) -> bool:
    """Whether something is there that is no regular file: opening a socket or a folder fails by itself."""
    try:
        return not stat.S_ISREG(os.lstat(file).st_mode)
    except OSError:
        return False
