"""Write files and folders atomically: under a temporary name next to the target, synced, then renamed.

An older file is unchanged until the rename, whatever happens before it.

An older folder is exchanged for the new one in a single file-system operation, and then removed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from wdport.errors import MachineError
from wdport.files.defer_signals import deferred_signals
from wdport.files.outputs import OutputPath, is_stream
from wdport.files.temporary import WRITTEN, Temporary, held_folder, make_temporary, remove_leftovers

_FIXES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
}


@contextmanager
def replacing(*outputs: OutputPath) -> Iterator[tuple[Path, ...]]:
    """Yield a temporary file for each of ``outputs``, all in one folder, to be written by any means.

    When the block succeeds, the files are synced and renamed to their names, in this order; a replaced file passes
    its permissions on. No signal and no other process that uses this function interrupts the renames. If an exception
    is raised, no temporary file is left; files that a killed process left are removed by the next one that writes the
    same path. Raises :class:`MachineError` if writing fails.
    """
    temporaries: list[Temporary] = []
    try:
        with deferred_signals():
            for output in outputs:
                # A signal between the creation of a file and its entry in the list would leave the file behind.
                remove_leftovers(output.path)
                temporaries.append(make_temporary(output.path))
        yield tuple(temporary.path for temporary in temporaries)
        for temporary in temporaries:
            temporary.settle()
        # As late as possible: syncing may take minutes, in which an input could change.
        for output in outputs:
            output.require_inputs()
        _give_names(temporaries, outputs)
    except OSError as error:
        raise machine_error(outputs[0].path, error) from error
    finally:
        with deferred_signals():
            for temporary in temporaries:
                temporary.discard()


def _give_names(temporaries: Sequence[Temporary], outputs: Sequence[OutputPath]) -> None:
    with held_folder(temporaries[0].finished.parent) as folder, deferred_signals():
        for output in outputs:
            # While the folder is locked: another process may have finished a file of this name in the meantime.
            output.require_new()
        named: list[Path] = []
        try:
            for temporary in temporaries:
                os.replace(temporary.path, temporary.finished)
                named.append(temporary.finished)
            if folder is not None:
                # A rename is durable only once the folder is synced.
                os.fsync(folder)
        except OSError as error:
            if not named:
                raise
            rest = " and ".join(temporary.finished.name for temporary in temporaries[len(named) :])
            fault = f"{rest} could not be" if rest else "its folder could not be synced"
            what = f"was written, but {fault} ({error.strerror or error})"
            raise MachineError(named[0], what, "check the disk and run the same again") from error
        finally:
            WRITTEN.extend(named)


@contextmanager
def whole_file(output: OutputPath) -> Iterator[IO[bytes]]:
    """Yield a file to write, which replaces ``output`` when the block succeeds: see :func:`replacing`."""
    with replacing(output) as (temporary,), temporary.open("wb") as file:
        yield file


def copy_file(source: Path, output: OutputPath) -> None:
    """Copy a file; raises :class:`MachineError` if writing fails."""
    with whole_file(output) as file, source.open("rb") as stream:
        shutil.copyfileobj(stream, file)


def write_text(output: OutputPath, text: str) -> None:
    """Write a text file; a stream (:func:`is_stream`) is written to directly.

    Raises :class:`MachineError` if writing fails.
    """
    path = output.path
    if not is_stream(path):
        with whole_file(output) as file:
            file.write(text.encode())
        return
    output.require_inputs()
    try:
        with path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise machine_error(path, error) from error


def machine_error(path: Path, error: OSError) -> MachineError:
    """Convert an ``OSError`` to a one-line error."""
    fix = _FIXES.get(error.errno or 0, "check the folder and its disk")
    return MachineError(path, f"could not be written ({error.strerror or error})", fix)


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
            temporary = make_temporary(path, folder=True)
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
    # Python has no exchange of two names. `rename` replaces only an empty folder, and removing the older one first
    # would leave none if the process were killed.
    libc = ctypes.CDLL(None, use_errno=True)
    new, old = os.fsencode(temporary.path), os.fsencode(temporary.finished)
    exchange = getattr(libc, "renameat2", None)
    if exchange is None or exchange(_AT_FDCWD, new, _AT_FDCWD, old, _RENAME_EXCHANGE) != 0:
        reason = "this system cannot exchange folders" if exchange is None else os.strerror(ctypes.get_errno())
        what = f"could not be replaced in one step ({reason})"
        raise MachineError(temporary.finished, what, "remove the older folder first, or give another name with `-o`")
    WRITTEN.append(temporary.finished)
    remove_leftovers(temporary.finished, ours)
