"""Track which files this process has finished, for the message after an interruption."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wdport.files.temporary import in_temporary_folder

WRITTEN: list[Path] = []


def describe_written() -> str:
    """Return a text such as "a.keras was written"; "nothing was changed" if there are no files or all were removed
    again."""
    paths = [path for path in dict.fromkeys(WRITTEN) if not in_temporary_folder(path)]
    names = [name for name in map(str, paths) if os.path.exists(name)]
    if not names:
        return "nothing was changed"
    return f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} written"


@contextmanager
def track_write(path: Path) -> Iterator[None]:
    """Track a file that another writer renames, such as :mod:`wdport.recorder`."""
    before = _identity(path)
    try:
        yield
    finally:
        if _identity(path) != before:
            WRITTEN.append(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
