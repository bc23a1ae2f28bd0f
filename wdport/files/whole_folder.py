"""Write folders atomically: under a temporary name next to the target, synced, then renamed, like files.

An older folder is exchanged for the new one in a single file-system operation, and then removed.
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
from wdport.files.held_back import deferred_signals
from wdport.files.temporary import Temporary, held_folder, make_temporary_folder, remove_leftovers
from wdport.files.writable import OutputPath
from wdport.files.written import WRITTEN

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextmanager
def whole_folder(output: OutputPath, ours: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield an empty folder, which becomes ``output`` when the block succeeds; the caller syncs the files in it.

    An older folder with this name is replaced, so check first that nothing is lost with it; ``ours`` returns whether a
    folder contains only what is written here. If an exception is raised, no temporary folder is left; leftovers of a
    killed process are removed by the next one that writes the same path. Raises :class:`MachineError` if writing fails.
    """
    temporary: Temporary | None = None
    path = output.path
    try:
        with deferred_signals():
            remove_leftovers(path, ours)
            temporary = make_temporary_folder(path)
        yield temporary.path
        os.fsync(temporary.descriptor)
        output.require_inputs()
        with held_folder(path.parent) as parent, deferred_signals():
            _give_name(temporary, ours)
            if parent is not None:
                os.fsync(parent)
    except OSError as error:
        raise machine_error(path, error) from error
    finally:
        with deferred_signals():
            if temporary is not None:
                temporary.discard()


def _give_name(temporary: Temporary, ours: Callable[[Path], bool]) -> None:
    """Rename the folder, or exchange it with the older one, which is then discarded instead."""
    if not os.path.lexists(temporary.finished):
        os.rename(temporary.path, temporary.finished)
        WRITTEN.append(temporary.finished)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    new, old = os.fsencode(temporary.path), os.fsencode(temporary.finished)
    exchange = getattr(libc, "renameat2", None)
    if exchange is None or exchange(_AT_FDCWD, new, _AT_FDCWD, old, _RENAME_EXCHANGE) != 0:
        reason = "this system cannot exchange folders" if exchange is None else os.strerror(ctypes.get_errno())
        what = f"could not be replaced in one step ({reason})"
        raise MachineError(temporary.finished, what, "remove the older folder first, or give another name with `-o`")
    WRITTEN.append(temporary.finished)
    remove_leftovers(temporary.finished, ours)
