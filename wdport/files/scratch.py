"""A folder for temporary files: it goes at the end, and what a killed process left goes at the next."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wdport.files.held_back import deferred_signals
from wdport.files.temporary import make_temporary_folder, remove_leftovers


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder in the system's temporary folder, for this user alone."""
    place = Path(tempfile.gettempdir(), "wdport")
    with deferred_signals():
        remove_leftovers(place, lambda path: path.lstat().st_uid == os.geteuid())
        temporary = make_temporary_folder(place)
    try:
        temporary.path.chmod(0o700)
        inside = temporary.path / "files"  # the folder itself is locked, and whoever writes into a folder locks it
        inside.mkdir()
        yield inside
    finally:
        temporary.discard()
