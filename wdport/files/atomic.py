"""The one way in which wdport writes a file: under a temporary name beside it, synced, then renamed.

Until the rename nothing has the file's name, so whatever happens before it, an older file stays as it was.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from wdport.errors import MachineError
from wdport.files.writable import is_stream

_TEMPORARY: Final = ".wdport-tmp"
_UNFINISHED: Final = re.compile(r"\.(?P<finished>.+)\.(?P<owner>\d+)\.wdport-tmp.*", re.DOTALL)
_ENDING: Final = re.compile(r"(\.weights)?\.[A-Za-z0-9]{1,12}\Z")
"""What other writers (Keras, matplotlib) read off a file's name."""


@contextmanager
def replacing(*paths: Path) -> Iterator[tuple[Path, ...]]:
    """A temporary name for each of ``paths``, all in one folder, to write there by whatever means.

    When the block ends well, the files are synced and take their names, one after the other; a file that is replaced
    passes on its permissions. Whatever is raised, no temporary file is left; files that a killed process left are
    removed by the next one that writes the same path. Raises :class:`MachineError` where the machine refuses.
    """
    temporaries = tuple(map(_temporary, paths))
    try:
        for path in paths:
            _clear_leftovers(path)
        yield temporaries
        for path, temporary in zip(paths, temporaries, strict=True):
            _finish(path, temporary)
        for path, temporary in zip(paths, temporaries, strict=True):
            os.replace(temporary, path)
        with suppress(PermissionError):  # a folder that may be written to, but not listed
            _sync(paths[0].parent)
    except OSError as error:
        raise machine_error(paths[0], error) from error
    finally:
        for temporary in temporaries:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which replaces ``path`` when the block ends well: see :func:`replacing`."""
    with replacing(path) as (temporary,), temporary.open("wb") as file:
        yield file


def write_text(path: Path, text: str) -> None:
    """Write a text file, following links; what is a stream (:func:`is_stream`) is written into.

    Raises :class:`MachineError` where the machine refuses.
    """
    if not is_stream(path):
        with whole_file(Path(os.path.realpath(path))) as file:
            file.write(text.encode())
        return
    try:
        with path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise machine_error(path, error) from error


def machine_error(path: Path, error: OSError) -> MachineError:
    """An operating system's refusal as one line."""
    fix = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the folder and its disk"
    return MachineError(path, f"could not be written ({error.strerror or error})", fix)


def is_temporary(name: str, of: re.Pattern[str]) -> bool:
    """Whether a file of this name is an unfinished one whose finished name matches ``of``."""
    made = _UNFINISHED.fullmatch(name)
    return made is not None and of.fullmatch(made["finished"]) is not None


def _temporary(path: Path) -> Path:
    ending = _ENDING.search(path.name)
    return path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}{ending[0] if ending else ''}")


def _finish(path: Path, temporary: Path) -> None:
    """Bring a written file to the disk, and give it the permissions of the one that it replaces."""
    _sync(temporary)
    with suppress(FileNotFoundError, PermissionError):  # nothing to replace, or a file system without permissions
        shutil.copymode(path, temporary)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _clear_leftovers(path: Path) -> None:
    """Remove temporary files of processes that died while writing ``path``."""
    with suppress(PermissionError):
        for name in os.listdir(path.parent):
            if (owner := _owner(name, path.name)) not in (None, os.getpid()) and not Path(f"/proc/{owner}").exists():
                (path.parent / name).unlink(missing_ok=True)


def _owner(name: str, finished: str) -> int | None:
    """The process that writes a file under this ``name``, if it is to have the name ``finished``."""
    made = _UNFINISHED.fullmatch(name)
    return int(made["owner"]) if made and made["finished"] == finished else None
