"""A path goes in; the path of a regular file comes out, and faults found in it leave as errors that name it."""

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
    """Raises :class:`InputError` for a path that leads to no regular file, and for any ``Fault`` of the block.

    What the system refuses becomes a :class:`MachineError`.
    """
    file = Path(path)
    if "\0" in str(file):
        raise InputError(file, "a path cannot contain a zero byte", "check the path")
    with located(file):
        mode = os.stat(file).st_mode
        if not stat.S_ISREG(mode):
            raise Fault("is a directory" if stat.S_ISDIR(mode) else "is no regular file", "give a data file")
        yield file
