"""The recording as an NPZ file, which holds every array once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import zipfile
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Iterator, Mapping

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .shared_types import Array


SCHEMA = 4


class RecordingWriter:
    """Writes arrays and their index to a file that appears when it is complete."""

    def __init__(self, path: str) -> None:
        self.path = path
        folder, name = os.path.split(path)
        _remove_leftovers(folder or os.curdir, name)
        self._temporary, self._file = _new_file(os.path.join(folder, f".{name}."))
        self._archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        self._known: dict[bytes, str] = {}
        self._count = 0

    def put(self, array: ArrayLike) -> str:
        """Write ``array`` unless the file already holds it; returns its reference."""
        array = np.asarray(array)
        reference = self._known.get(_key(array))
        if reference is None:
            reference = str(self._count)
            self._count += 1
            self._add(reference, array)
            self._known[_key(array)] = reference
            for form, derived in _derived(array):
                self._known.setdefault(_key(derived), f"{reference}:{form}")
        return reference

    def close(self, index: Mapping[str, object]) -> None:
        """Write the index and rename the file to its final name."""
        self._add("index", np.frombuffer(json.dumps(index, allow_nan=False).encode(), np.uint8))
        self._archive.close()
        self._file.flush()
        # Otherwise a crash could leave the final name without the contents.
        os.fsync(self._file.fileno())
        # Before it is closed: without the lock, another process would remove it as a leftover.
        os.replace(self._temporary, self.path)
        self._file.close()

    def abandon(self) -> None:
        """Remove the unfinished file."""
        with suppress(OSError):
            os.unlink(self._temporary)
        for stream in (self._archive, self._file):
            with suppress(OSError):  # what is left in their buffers does not fit on the disk either
                stream.close()

    def _add(self, name: str, array: Array) -> None:
        # zipfile does not know the size in advance, and would refuse more than 2 GiB.
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.require(array, requirements="C"), allow_pickle=False)


def _new_file(prefix: str) -> tuple[str, BinaryIO]:
    """Create an empty file with a random name, locked while it is open."""
    while True:
        path = f"{prefix}{secrets.token_hex(8)}.wdport-tmp"
        file = open(path, "x+b")  # noqa: SIM115
        if _hold(file.fileno()) is not False and os.path.exists(path):
            return path, file
        file.close()  # another process removed it as a leftover before it was locked


def _remove_leftovers(folder: str, finished: str) -> None:
    """Remove unlocked temporary files that killed processes left for the file ``finished``."""
    pattern = re.compile(re.escape(f".{finished}.") + r"([0-9a-f]+)\.wdport-tmp", re.DOTALL)
    with suppress(OSError):
        for name in os.listdir(folder):
            match, path = pattern.fullmatch(name), os.path.join(folder, name)
            # Names of older releases have the id of the process, and no lock.
            if not match or not os.path.isfile(path) or os.path.islink(path) or os.path.exists(f"/proc/{match[1]}"):
                continue
            with suppress(OSError), open(path, "rb") as file:
                if _hold(file.fileno()):
                    os.unlink(path)


def _hold(descriptor: int) -> bool | None:
    """Lock the file; returns whether it succeeded, or ``None`` if there are no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _derived(array: Array) -> Iterator[tuple[str, Array]]:
    """Arrays that a reader of the file makes of this one, with the letters for it."""
    forms = {"": array}
    if array.dtype.kind == "f" and (array < 0).any():
        forms["p"] = np.where(array > 0, array, array.dtype.type(0))
        yield "p", forms["p"]
    for form, wide in forms.items() if array.dtype == np.float64 else ():
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float32)
        yield f"{form}s", narrow
        yield f"{form}d", narrow.astype(np.float64)


def _key(array: Array) -> bytes:
    # With dtype and shape, since different arrays may have the same bytes.
    digest = hashlib.blake2b(f"{array.dtype.str}{array.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()
