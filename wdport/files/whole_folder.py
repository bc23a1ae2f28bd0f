"""The one way in which wdport writes a folder: under a temporary name beside it, synced, then renamed, as files are.

An older folder is exchanged for the new one in a single step of the file system, and removed after that.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wdport.errors import MachineError
from wdport.files.atomic import machine_error
from wdport.files.held_back import held_back
from wdport.files.temporary import Temporary, held_folder, make_temporary_folder, remove_leftovers
from wdport.files.written import WRITTEN

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextmanager
def whole_folder(path: Path, ours: Callable[[Path], bool]) -> Iterator[Path]:
    """An empty folder to write into, which becomes ``path`` when the block ends well; whoever writes a file syncs it.

    An older folder of the name is replaced, so ask first whether anything is lost with it; ``ours`` says of a folder
    that it holds nothing but what is written here. Whatever is raised, no temporary folder is left; what a killed
    process left is removed by the next one that writes the same path. Raises :class:`MachineError` where the machine
    refuses.
    """
    made: Temporary | None = None
    try:
        with held_back():
            remove_leftovers(path, ours)
            made = make_temporary_folder(path)
        yield made.path
        os.fsync(made.descriptor)
        with held_folder(path.parent) as parent, held_back():
            _give_name(made, ours)
            if parent is not None:
                os.fsync(parent)
    except OSError as error:
        raise machine_error(path, error) from error
    finally:
        with held_back():
            if made is not None:
                made.discard()


def _give_name(made: Temporary, ours: Callable[[Path], bool]) -> None:
    """Rename it, or exchange it with the older folder, which is then held and discarded in its place."""
    if not os.path.lexists(made.finished):
        os.rename(made.path, made.finished)
        WRITTEN.append(made.finished)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    new, old = os.fsencode(made.path), os.fsencode(made.finished)
    exchange = getattr(libc, "renameat2", None)
    if exchange is None or exchange(_AT_FDCWD, new, _AT_FDCWD, old, _RENAME_EXCHANGE) != 0:
        what = f"could not be replaced in one step ({os.strerror(ctypes.get_errno())})"
        raise MachineError(made.finished, what, "remove the older folder first, or give another name with -o")
    WRITTEN.append(made.finished)
    remove_leftovers(made.finished, ours)
