"""Check that a path is a regular file, and convert faults found in it to errors that name it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.located import located
from wdport.errors import InputError


@contextmanager
def data_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Return the path; raises :class:`InputError` unless it is a regular file, and for any ``Fault`` of the block.

    A system error becomes a :class:`MachineError`.
    """
    file = Path(path)
    if "\0" in str(file):
        raise InputError(file, "a path cannot contain a zero byte", "check the path")
    with located(file):
        mode = os.stat(file).st_mode
        if not stat.S_ISREG(mode):
            raise Fault("is a directory" if stat.S_ISDIR(mode) else "is not a regular file", "give a data file")
        yield file
