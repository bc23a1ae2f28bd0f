"""Files of a folder that only this user may write to: opened without following links.

Another user who can write a file controls the run that reads it, so folders and files of other users are refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Final

from wdport.checkpoint.regular import require_supported
from wdport.errors import InputError
from wdport.owners import distrust
from wdport.platforms import CLOEXEC, NOFOLLOW, NONBLOCK

_SAFELY: Final = NOFOLLOW | NONBLOCK | CLOEXEC
"""A link is an error, and opening a pipe does not wait for a writer."""


def private_folder(folder: Path, fix: str) -> None:
    """Make ``folder`` for this user only; raises :class:`InputError` if it is a link, or another user's.

    The owner of the parent folder may have made it, too: that user can replace the output anyway.
    """
    require_supported()
    folder.mkdir(mode=0o700, exist_ok=True)
    status, around = os.lstat(folder), os.stat(folder.parent)
    if not stat.S_ISDIR(status.st_mode):
        raise InputError(folder, "is a link to a folder", fix)
    if reason := distrust(status, folder.parent, {around.st_uid}):
        raise InputError(folder, reason, fix)


def open_private(file: Path, fix: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of this user's regular file; raises :class:`InputError` for any other file."""
    try:
        opened = os.open(file, flags | _SAFELY, 0o600)
    except OSError as error:
        if not os.path.islink(file) and not _is_special(file):
            raise
        raise InputError(file, "is not a regular file", fix) from error
    try:
        status = os.fstat(opened)
        reason = None if stat.S_ISREG(status.st_mode) else "is not a regular file"
        reason = reason or distrust(status, file.parent, {os.stat(file.parent).st_uid})
        if reason:
            raise InputError(file, reason, fix)
    except BaseException:
        os.close(opened)
        raise
    return opened


def read_private(file: Path, max_bytes: int, fix: str) -> bytes:
    """All bytes of such a file; raises :class:`InputError` if there are more than ``max_bytes``."""
    with private_stream(file, fix) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise InputError(file, f"has more than {max_bytes} bytes", fix)
    return data


def private_stream(file: Path, fix: str) -> IO[bytes]:
    """Open such a file for reading; see :func:`open_private`."""
    return os.fdopen(open_private(file, fix), "rb")


def keep_private(file: IO[bytes]) -> None:
    """Let no other user write to a new file, whatever the process's umask is."""
    os.fchmod(file.fileno(), 0o600)


def _is_special(file: Path) -> bool:
    """Whether the path exists and is not a regular file: opening a socket or a folder fails anyway."""
    try:
        return not stat.S_ISREG(os.lstat(file).st_mode)
    except OSError:
        return False
