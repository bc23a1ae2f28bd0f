"""A numpy file (`.npy`, `.npz`) goes in; a table of the array's columns comes out. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from wdport.checkpoint.faults import Fault
from wdport.data.table import Table, table_of
from wdport.errors import UsageError, WdportError


@contextmanager
def understood(kind: str) -> Iterator[None]:
    """Turn whatever another library's parser raises over a damaged file of some ``kind`` into a :class:`Fault`.

    Parsers of binary formats raise nearly everything (zlib.error, KeyError, IndexError, struct.error, ...).
    """
    try:
        yield
    except (Fault, WdportError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        raise Fault(f"is no {kind} file, or a damaged one ({lines[0]})", f"write it again as {kind}") from error


def read_npy(path: Path, key: str | None) -> Table:
    """The table in an ``.npy`` file: (T, F), or (T,) for one feature."""
    del key
    with path.open("rb") as file, understood(".npy"):
        array = np.lib.format.read_array(file, allow_pickle=False)
    return table_of(array)


def read_npz(path: Path, key: str | None) -> Table:
    """The table in the only array of an ``.npz`` file, or in the one called ``key``."""
    with opened_npz(path) as archive:
        array = archive[choose_key(key, archive.files, archive.files)]
    if not isinstance(array, np.ndarray):  # a member that is no .npy file comes as bytes
        raise Fault("its member is no array", "write it again with numpy.savez")
    return table_of(array)


@contextmanager
def opened_npz(path: Path) -> Iterator[NpzFile]:
    """An ``.npz`` file, open; what its parser raises in the block becomes a :class:`Fault`."""
    with path.open("rb") as file, understood(".npz"):
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, NpzFile):
            raise Fault("holds a single array, not an .npz archive", "name it .npy")
        with archive:
            yield archive


def choose_key(key: str | None, candidates: Sequence[str], names: Sequence[str]) -> str:
    """``key`` if it is one of ``names``; without a key the only one of the ``candidates``.

    Raises :class:`UsageError` for an unknown key and :class:`Fault` where there is no or more than one candidate.
    """
    if key is not None:
        if key not in names:
            fix = f"choose from {', '.join(candidates or names)}"
            raise UsageError(("key", key), "names no array of the file", fix, details=names)
        return key
    if not candidates:
        raise Fault("holds no array of numbers over time", "save one array of shape (time steps, features) in it")
    if len(candidates) > 1:
        raise Fault(f"holds {len(candidates)} arrays: {', '.join(candidates)}", "choose one with key")
    return candidates[0]
