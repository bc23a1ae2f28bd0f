"""A folder next to the output with a run's finished blocks, from which an interrupted run resumes.

Every block is written under a temporary name, synced and renamed, so every block is complete. Its name has a SHA-256 of
the run's facts and of its bytes, which is checked whenever it is read: damaged blocks and those of another run are
found before they are used. The folder is private to this user, and removed when the output is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from wdport.errors import InputError, MachineError
from wdport.files.atomic import whole_file
from wdport.files.own_files import keep_private, private_stream
from wdport.files.run_folder import RunFolder
from wdport.model import Array
from wdport.sampling.blocks import Layout, layout_of, read_block, unsound

_NAME = re.compile(r"(\d{9,12})-(\d{9,12})-([0-9a-f]{64})\.npz")
REMOVE = "remove it, or start again with `--force`"

CHUNK = 1 << 20
"""Bytes hashed at a time."""


@dataclass(frozen=True, order=True)
class Part:
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
        buffer = BytesIO()
        np.savez(buffer, **block)
        digest = self._digest(buffer.getbuffer())
        with whole_file(self._run.output(f"{start:09d}-{start + rows:09d}-{digest}.npz")) as opened:
            keep_private(opened)
            opened.write(buffer.getbuffer())
        for other in self._stored_parts():
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
        digest = hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode() + b"\n")
        for piece in [data] if isinstance(data, memoryview) else iter(lambda: data.read(CHUNK), b""):
            digest.update(piece)
        return digest.hexdigest()

    def _stored_parts(self) -> list[Part]:
        """All parts, in order."""
        names = filter(None, map(_NAME.fullmatch, os.listdir(self.folder)))
        return sorted(Part(int(m[1]), int(m[2]), m[3], self.folder / m[0]) for m in names)

    def _sound(self) -> list[Part]:
        """The contiguous parts from sample 0."""
        sound: list[Part] = []
        for part in self._stored_parts():
            if part.start == (sound[-1].stop if sound else 0) and part.stop > part.start:
                sound.append(part)
        return sound

    def remove(self) -> None:
        """Remove the folder, when the output is written or nothing was drawn."""
        self._run.remove()

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._run.close()
