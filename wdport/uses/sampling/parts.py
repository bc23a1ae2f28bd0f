"""A folder next to the output with a run's finished blocks, each checked, from which an interrupted run resumes.

Every block is written under a temporary name, synced and renamed, so every block is complete. Its name has a SHA-256 of
the run's facts and of its bytes, which is checked whenever it is read: damaged blocks and those of another run are
found before they are used. The folder is private to this user, and removed when the output is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.npyio import NpzFile

from wdport.base.errors import InputError, MachineError
from wdport.checkpoint.faults import Fault
from wdport.files.atomic import whole_file
from wdport.files.locked_folder import RunFolder, keep_private, private_stream
from wdport.models.interface import Array
from wdport.uses.data.arrays import understood

Layout = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape of one sample and dtype, by the name of the array."""


def layout_of(block: Mapping[str, Array]) -> Layout:
    """The layout of a block's arrays."""
    return {name: (array.shape[1:], array.dtype.name) for name, array in block.items()}


def unsound(block: Mapping[str, Array]) -> int:
    """The number of samples of a block with a value that is not finite."""
    rows = [np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in block.values()]
    return int(np.count_nonzero(~np.logical_and.reduce(rows)))


def read_block(file: IO[bytes], path: Path, rows: int, layout: Layout, fix: str) -> dict[str, Array]:
    """The arrays in ``file``, ``rows`` long each; raises :class:`InputError` unless they have this ``layout``."""
    try:
        with understood(".npz"):
            block = _arrays(file)
    except Fault as fault:
        raise InputError(path, fault.what, fix) from None
    for name, array in block.items():
        if array.dtype.kind != "f" or array.shape[:1] != (rows,):
            raise InputError(path, f"holds {name} of {array.dtype.name} {array.shape} for {rows} samples", fix)
    held = layout_of(block)
    for name, expected in layout.items():
        if held.get(name) != expected:
            what = f"holds {_described(held, name)} where this run has {_described(layout, name)}"
            raise InputError(path, what, fix)
    return block


def _arrays(file: IO[bytes]) -> dict[str, Array]:
    archive = np.load(file, allow_pickle=False)
    if not isinstance(archive, NpzFile) or archive.zip is None or not archive.files:
        raise Fault("holds no arrays")
    with archive:
        # Parts are written uncompressed. Stored members cannot unpack to more than the size of the file.
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.zip.infolist()):
            raise Fault("is compressed")
        return {name: np.asarray(archive[name]) for name in archive.files}


def _described(layout: Layout, name: str) -> str:
    if name not in layout:
        return f"no {name}"
    shape, dtype = layout[name]
    return f"{name} of {dtype} {shape}"


_NAME = re.compile(r"(\d{9,12})-(\d{9,12})-([0-9a-f]{64})\.npz")
REMOVE = "remove it, or start again with `--force`"

CHUNK = 1 << 20
"""Bytes hashed at a time."""


@dataclass(frozen=True, order=True)
class OutputPart:
    """A block's file: its first sample, the one after its last, and the digest in its name."""

    start: int
    stop: int
    digest: str
    file: Path


class Parts:
    """The folder ``NAME.parts`` of the output ``NAME``, held by one process at a time.

    ``facts`` are everything that determines the samples; a folder with other facts belongs to another run. ``settled``
    names the facts that the first run chooses automatically, integers from 1: a resumed run uses these values. ``anew``
    removes parts that are damaged or from another run; parts that this run would draw again, bit for bit, stay. Files
    that wdport did not write always stay. ``layout`` is the expected layout of a block's arrays, where known.

    Raises:
        UsageError: the folder holds parts of another run. InputError: they are damaged, or another user may have
            written them. MachineError: another process holds it, or the system refuses.
    """

    def __init__(
        self,
        output: Path,
        facts: Mapping[str, object],
        settled: tuple[str, ...] = (),
        anew: bool = False,
        layout: Layout | None = None,
    ) -> None:
        self.folder = output.with_name(f"{output.name}.parts")
        self._layout: Layout = layout or {}
        self._unsound: dict[int, int] = {}
        self._run = RunFolder(self.folder, _NAME, "parts")
        try:
            self._run.begin(facts, settled, anew, lambda: bool(self._stored_parts()), self._check)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, MachineError)) and not self._stored_parts():
                self.remove()
            self._run.close()
            raise

    @property
    def facts(self) -> Mapping[str, object]:
        """Everything that determines the samples."""
        return self._run.facts

    def _check(self) -> None:
        for _ in self.blocks():
            pass

    @property
    def batch(self) -> int:
        """The batch size of the run that created the folder."""
        return self._run.number("batch")

    @property
    def done(self) -> int:
        """Number of finished samples, from the first without a gap."""
        sound = self._sound()
        return sound[-1].stop if sound else 0

    @property
    def unsound(self) -> int:
        """The number of samples with a value that is not finite."""
        return sum(self._unsound.values())

    def save(self, start: int, block: Mapping[str, Any]) -> None:
        """Keep a block of samples that begins with sample ``start``."""
        rows = len(next(iter(block.values())))
        # Written to memory first, because the name of the file has the digest of its bytes.
        buffer = BytesIO()
        np.savez(buffer, **block)
        digest = self._digest(buffer.getbuffer())
        with whole_file(self._run.output(f"{start:09d}-{start + rows:09d}-{digest}.npz")) as opened:
            keep_private(opened)
            opened.write(buffer.getbuffer())
        for other in self._stored_parts():
            # A part that begins with the same sample is replaced, such as one of another length.
            if other.start == start and other.digest != digest:
                other.file.unlink()
        self._layout = layout_of(block)
        self._unsound[start] = unsound(block)

    def blocks(self) -> Iterator[dict[str, Array]]:
        """Every block, from the first; raises :class:`InputError` for a damaged one."""
        for part in self._sound():
            with private_stream(part.file, REMOVE) as opened:
                if self._digest(opened) != part.digest:
                    raise InputError(part.file, "is not what this run wrote", REMOVE)
                opened.seek(0)
                block = read_block(opened, part.file, part.stop - part.start, self._layout, REMOVE)
            self._layout = layout_of(block)
            self._unsound[part.start] = unsound(block)
            yield block

    def _digest(self, data: memoryview | IO[bytes]) -> str:
        """SHA-256 of the facts and the bytes of a part."""
        # The facts are hashed too, so that a part of another run does not pass for one of this run.
        digest = hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode() + b"\n")
        for piece in [data] if isinstance(data, memoryview) else iter(lambda: data.read(CHUNK), b""):
            digest.update(piece)
        return digest.hexdigest()

    def _stored_parts(self) -> list[OutputPart]:
        """All parts, in order."""
        names = filter(None, map(_NAME.fullmatch, os.listdir(self.folder)))
        return sorted(OutputPart(int(m[1]), int(m[2]), m[3], self.folder / m[0]) for m in names)

    def _sound(self) -> list[OutputPart]:
        """The contiguous parts from sample 0."""
        sound: list[OutputPart] = []
        for part in self._stored_parts():
            if part.start == (sound[-1].stop if sound else 0) and part.stop > part.start:
                sound.append(part)
        return sound

    def remove(self) -> None:
        """Remove the folder, when the output is written or nothing was drawn."""
        self._run.remove()

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self._run.close()
