"""A ``.npz`` file of a model's variables: a writer in pieces, and a strict reader of the files that it writes.

``numpy.load`` reads it: one array per variable path, and the manifest's bytes under ``wdport.json``. numpy has no
bfloat16, so values are float32 or float16.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Final

import numpy as np

from wdport.base.errors import InternalError
from wdport.base.limits import MAX_MANIFEST_BYTES
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.source import Source, Span
from wdport.checkpoint.tensor import NUMPY
from wdport.checkpoint.zip_archive import read_flat_members
from wdport.files.manifest_seal import CONVERT_AGAIN, MANIFEST
from wdport.files.safetensors_writer import PlannedTensor

DTYPES: Final = ("float32", "float16")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_NPY: Final = ".npy"
_OTHER: Final = "wdport did not write this archive: give a checkpoint or a converted model"


class NpzWriter:
    """Streams variables, each in ascending pieces and all in the order of ``entries``, to ``path``."""

    def __init__(self, path: Path, entries: Sequence[PlannedTensor]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._archive = zipfile.ZipFile(path, "w")
        self._name = ""
        self._member: IO[bytes] | None = None

    def write_at(self, name: str, start: int, data: memoryview) -> None:
        """Write the next bytes of the variable ``name``, which begin at its byte ``start``."""
        if not start:
            self._end()
            head = _header(self._entries[name])
            info = zipfile.ZipInfo(f"{name}{_NPY}", _EPOCH)
            # zipfile must know of a member of more than 2 GiB before its first byte.
            info.file_size = len(head) + self._entries[name].nbytes
            self._name, self._member = name, self._archive.open(info, "w")
            self._member.write(head)
        if self._member is None or name != self._name:
            raise InternalError(name, "was written out of order", "report this")
        self._member.write(data)

    def finish(self, manifest: str) -> None:
        self._end()
        self._archive.writestr(zipfile.ZipInfo(MANIFEST, _EPOCH), manifest)
        self.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        self._end()
        self._archive.close()

    def _end(self) -> None:
        if self._member is not None:
            member, self._member = self._member, None
            member.close()


@contextmanager
def open_npz(path: Path) -> Iterator[dict[str, Span]]:
    """Open the members of a file, by variable path, and the manifest's; raises :class:`Fault`."""
    with closing(Source(path)) as source:
        members = read_flat_members(source, fix=_OTHER)
        yield {name.removesuffix(_NPY): span for name, span in members.items()}


def manifest_in(path: Path) -> bytes | None:
    """Return the manifest's text; None if there is none. Raises :class:`Fault`."""
    with open_npz(path) as members:
        span = members.get(MANIFEST)
        if span is not None and span.nbytes > MAX_MANIFEST_BYTES:
            raise Fault(f"has a manifest of more than {MAX_MANIFEST_BYTES >> 20} MB", CONVERT_AGAIN)
        return span.read() if span is not None else None


def values_of(members: Mapping[str, Span], entry: PlannedTensor) -> Span:
    """Return the place of a variable's values; raises :class:`Fault` unless it is the array that the writer
    produces."""
    head, span = _header(entry), members.get(entry.name)
    if span is None:
        raise Fault("is missing", CONVERT_AGAIN, entry.name)
    if span.nbytes != len(head) + entry.nbytes or span.read(0, len(head)) != head:
        raise Fault(f"is not a {entry.dtype} array of shape {entry.shape}", CONVERT_AGAIN, entry.name)
    # No CRC: reading the header above has already checked that of the whole member.
    return Span(span.source, span.start + len(head), entry.nbytes, None, entry.name)


def _header(entry: PlannedTensor) -> bytes:
    """Return the header of an array's member: numpy's format, version 1.0."""
    held = io.BytesIO()
    described = {"descr": NUMPY[entry.dtype], "fortran_order": False, "shape": entry.shape}
    np.lib.format.write_array_header_1_0(held, described)
    return held.getvalue()
