"""Check whether another user may have written a folder or a file; files that are resumed from or run must be trusted.

Owners and permission bits count; access control lists are not checked. Some file systems keep neither (FAT, some
network and container mounts): there, a new file shows who owns everything, and permission bits are meaningless.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final

OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
"""Permission bits that let users other than the owner write."""

ROOT: Final = 0


def distrust(status: os.stat_result, folder: Path, friends: Collection[int] = ()) -> str | None:
    """Return why another user may have written the file that ``status`` describes, in ``folder``; None if nobody may.

    Its owner must be this process's effective user, root or one of ``friends``, and nobody else may write to it.
    """
    if not hasattr(os, "geteuid"):  # Windows has only access control lists
        return None
    # Root may write anything anyway.
    owned = status.st_uid in {os.geteuid(), ROOT, *friends}
    if owned and not status.st_mode & OTHERS:
        return None
    # A file system that keeps no owners shows a new private file like this one.
    new = _new_file(folder)
    if new is None or (new.st_uid == os.geteuid() and not new.st_mode & OTHERS):
        return "may be written to by other users" if owned else f"belongs to another user (id {status.st_uid})"
    return None if status.st_uid == new.st_uid else f"belongs to another user (id {status.st_uid})"


def replaceable(path: Path) -> Path | None:
    """Return the folder around ``path``, which is absolute, in which anybody may rename what others own; None if there
    is none."""
    for parent in path.parents if hasattr(os, "geteuid") else ():
        mode = parent.stat().st_mode
        # With the sticky bit, as in /tmp, only the owner of a file may rename it.
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return parent
    return None


def _new_file(folder: Path) -> os.stat_result | None:
    """Return the status of a new private file in the folder, None if none can be created."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno())
    except OSError:
        return None
