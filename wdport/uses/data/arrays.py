"""Read a numpy file (`.npy`, `.npz`) as a table of the array's columns. Nothing is unpickled."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wdport.base.errors import UsageError, WdportError
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import open_regular
from wdport.models.interface import Array
from wdport.uses.data.numpy_files import REAL, Arrays, read_array
from wdport.uses.data.table import ColumnTable, table_of

_SHOWN = 20


@contextmanager
def understood(kind: str) -> Iterator[None]:
    """Convert any exception of another library's parser for a damaged file of this ``kind`` to a :class:`Fault`.

    Parsers of binary formats raise many exceptions (zlib.error, KeyError, IndexError, struct.error, ...).
    """
    try:
        yield
    except (Fault, WdportError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: a place before the file
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        raise Fault(f"is not a {kind} file, or is damaged ({lines[0]})", f"write it again as {kind}") from error


def npy_array(path: Path, kinds: str = REAL) -> Array:
    """Read the array in an ``.npy`` file, with a dtype of these ``kinds``; raises :class:`Fault`."""
    with open_regular(path) as file, understood(".npy"):
        return read_array(file, os.fstat(file.fileno()).st_size, kinds)


def read_npy(path: Path, key: str | None) -> ColumnTable:
    """Read the table in an ``.npy`` file: (T, F), or (T,) for one feature."""
    # The readers of all formats have one signature; an .npy file has no keys.
    del key
    return table_of(npy_array(path))


def read_npz(path: Path, key: str | None) -> ColumnTable:
    """Read the table in the only array of an ``.npz`` file, or in the array ``key``."""
    with opened_npz(path) as archive:
        array = archive[choose_key(key, archive.files, archive.files)]
    return table_of(array)


@contextmanager
def opened_npz(path: Path, max_bytes: int | None = None) -> Iterator[Arrays]:
    """Open an ``.npz`` file whose arrays have at most ``max_bytes`` bytes each.

    Exceptions of its parser in the block become a :class:`Fault`.
    """
    with open_regular(path) as file, understood(".npz"):
        # NumPy loads an .npy file under any name, but it has no member for this reader.
        magic = file.read(6)
        if magic == b"\x93NUMPY":
            raise Fault("holds a single array, not an .npz archive", "name it .npy")
        yield Arrays(file, os.fstat(file.fileno()).st_size, max_bytes)


def choose_key(key: str | None, candidates: Sequence[str], names: Sequence[str]) -> str:
    """Return ``key`` if it is one of ``names``; without a key, the only one of the ``candidates``.

    Raises :class:`UsageError` for an unknown key and :class:`Fault` if there is no candidate or more than one.
    """
    if key is not None:
        if key not in names:
            fix = f"choose from {_few(candidates or names)}"
            raise UsageError(("key", key), "is not an array of the file", fix, details=names)
        return key
    if not candidates:
        raise Fault("has no array of numbers over time", "save one array of shape (time steps, features) in it")
    if len(candidates) > 1:
        raise Fault(
            f"has {len(candidates)} arrays: {_few(candidates)}",
            "choose one with key in Python, or save it in a separate file",
        )
    return candidates[0]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
