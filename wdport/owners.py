"""Whether another user may have written a folder or a file: what is resumed from, or run, must be one's own.

Owners and permission bits count; access control lists are not looked at. Some file systems keep neither (FAT, some
network and container mounts): there, a new file shows who owns everything, and bits say nothing.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final

OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
"""Bits with which others than the owner write."""

ROOT: Final = 0


def distrust(found: os.stat_result, folder: Path, friends: Collection[int] = ()) -> str | None:
    """Why somebody else may have written what ``found`` describes, which lies in ``folder``; None if nobody may.

    Its owner must be this process's effective user, root or one of ``friends``, and nobody else may write to it.
    """
    if not hasattr(os, "geteuid"):  # Windows has access control lists alone
        return None
    owned = found.st_uid in {os.geteuid(), ROOT, *friends}
    if owned and not found.st_mode & OTHERS:
        return None
    new = _new_file(folder)
    if new is None or (new.st_uid == os.geteuid() and not new.st_mode & OTHERS):
        return "may be written to by other users" if owned else f"belongs to another user (id {found.st_uid})"
    return None if found.st_uid == new.st_uid else f"belongs to another user (id {found.st_uid})"


def _new_file(folder: Path) -> os.stat_result | None:
    """What a private file looks like here, None where none can be made."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno())
    except OSError:
        return None
