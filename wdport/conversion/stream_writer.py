"""Settings for storing variables, and writing them in bounded memory: in pieces to a folder of shards, a
``.safetensors`` or an ``.npz`` file.

For a folder, everything is read once and written once, and hashed (SHA-256) meanwhile; nothing is read back. A single
file has its manifest before values that are not hashed yet, or a CRC of each, so it is read again in pieces, compared
and hashed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from wdport.base.errors import MachineError, UsageError
from wdport.checkpoint.source import decode
from wdport.checkpoint.tensor import NUMPY
from wdport.conversion.manifest import make_manifest
from wdport.conversion.manifest_schema import Manifest, OutputEntry
from wdport.conversion.prepare import Prepared
from wdport.conversion.rounding import STORED
from wdport.conversion.stream import Progress, VariableStream
from wdport.files import npz_file
from wdport.files.inputs import sha256_at
from wdport.files.json_document import OutputFile
from wdport.files.manifest_seal import BLANK, folder_sha256, sealed
from wdport.files.model_files import Hashes, Written, size_at, stored_digests
from wdport.files.model_target import FOLDER, KERAS, ORBAX, Target
from wdport.files.npz_file import NpzWriter
from wdport.files.orbax_folder import OrbaxWriter
from wdport.files.safetensors_writer import PlannedTensor, SafetensorsWriter, ShardedWriter


def write_streamed(
    stream: VariableStream, target: Target, storage: Storage, progress: Progress | None, float32: bool, file: Path
) -> tuple[Manifest, Written]:
    """Write the variables to ``file``, the target's temporary file or folder; return the manifest inside, and what was
    written, with the hashes of the values as ``float32`` if they are requested.

    Raises as :meth:`wdport.conversion.stream.VariableStream.pieces` does.
    """

    def manifest(hashes: Hashes | None, source: str = BLANK, parts: list[OutputFile] | None = None) -> Manifest:
        base = make_manifest(stream.prepared, target, hashes, source, stream.dtypes)
        output: OutputEntry = {**base["output"]}
        if storage.dtype != "float32":
            output["dtype"] = storage.dtype
        if parts:
            output["files"] = [{"name": part.name, "sha256": part.sha256, "bytes": part.bytes} for part in parts]
        return {**base, "output": output}

    with (
        stream.prepared.checkpoint.hashed() as hashed,
        closing(_open(file, target.format, storage, stream.entries, manifest)) as writer,
        ThreadPoolExecutor(1) as thread,
        closing(stream.pieces()) as pieces,
    ):
        # A buffer may be reused only after its bytes are hashed.
        stream.read = hashed.settle
        digests = {entry.name: hashlib.sha256() for entry in stream.entries}
        single = {entry.name: (hashlib.sha256(), entry.dtype) for entry in stream.entries
                  if float32 and entry.dtype != "float32"}  # fmt: skip
        for piece in pieces:
            # The hash of a piece is computed while the piece is written.
            hashing = thread.submit(digests[piece.name].update, piece.data)
            writer.write_at(piece.name, piece.start, piece.data)
            if piece.name in single:
                hasher, dtype = single[piece.name]
                hasher.update(decode(np.frombuffer(piece.data, NUMPY[dtype]), dtype).astype(np.float32).data)
            hashing.result()
            if piece.release is not None:
                piece.release()
            if progress:
                progress(piece.done, stream.total)
        # A checkpoint that was read in order is hashed by now, apart from the parts that no variable needs.
        widened = {name: hasher.hexdigest() for name, (hasher, _) in single.items()}
        hashes = Hashes({name: hasher.hexdigest() for name, hasher in digests.items()}, float32=widened)
        source = hashed.hexdigest()
        parts = writer.finished() if isinstance(writer, ShardedWriter) else None
        inside = manifest(hashes, source, parts)
        writer.finish(sealed(inside))
    if parts is not None:
        sha256 = folder_sha256((part.name, part.sha256) for part in parts)
    else:
        _require_written(file, target, stream.entries, hashes.variables)
        sha256 = sha256_at(file)
    return inside, Written(sha256, size_at(file), hashes)


def _open(
    file: Path, kind: str, storage: Storage, entries: list[PlannedTensor],
    manifest: Callable[[Hashes | None], Manifest],
) -> ShardedWriter | SafetensorsWriter | NpzWriter | OrbaxWriter:  # fmt: skip
    if kind == FOLDER:
        return ShardedWriter(file, entries, storage.max_shard_size or SHARD_SIZE)
    if kind == ORBAX:
        return OrbaxWriter(file, entries)
    if kind == "npz":
        return NpzWriter(file, entries)
    shapes, dtypes = ({entry.name: entry.shape for entry in entries}, {entry.name: entry.dtype for entry in entries})
    return SafetensorsWriter(file, shapes, sealed(manifest(None)), dtypes)


def _require_written(file: Path, target: Target, entries: list[PlannedTensor], digests: Mapping[str, str]) -> None:
    stored = stored_digests(file, entries)
    for name in digests:
        if stored[name] != digests[name]:
            raise MachineError((target.path, name), "differs when read back", "check the disk")


SHARD_SIZE: Final = 5_000_000_000
"""Default bytes per shard, as in Hugging Face's libraries."""

_SIZE: Final = re.compile(r"(\d{1,15})\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_UNITS: Final = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
                 "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}  # fmt: skip


@dataclass(frozen=True)
class Storage:
    """``dtype`` is one of :data:`wdport.conversion.rounding.STORED`; sizes are bytes, None for the defaults."""

    dtype: str = "float32"
    max_memory: int | None = None
    max_shard_size: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in STORED:
            raise UsageError("--dtype", f"unknown dtype {self.dtype!r}", f"use one of {', '.join(STORED)}")

    def streams(self, target: Target) -> bool:
        """Return whether the conversion runs in bounded memory; raises ``UsageError`` if the format does not support
        the settings."""
        asked = {"--dtype": self.dtype != "float32", "--max-memory": self.max_memory is not None}
        if target.format in KERAS and any(asked.values()):
            option = next(name for name, requested in asked.items() if requested)
            what = f"works with .safetensors, .npz and folders, not with .{target.format}"
            raise UsageError(option, what, "end the name that `-o` gives in .safetensors, or in / for a folder")
        if target.format == "npz" and self.dtype not in npz_file.DTYPES:
            raise UsageError("--dtype", f"numpy has no {self.dtype}", "write a .safetensors file or a folder")
        if target.format == ORBAX and self.max_memory is not None:
            what = "does not work with an Orbax checkpoint, which is written at once"
            raise UsageError("--max-memory", what, "write a folder of safetensors shards")
        if target.format != FOLDER and self.max_shard_size is not None:
            raise UsageError("--max-shard-size", "requires a folder", "end the name that `-o` gives in /")
        return target.format not in KERAS

    def dtypes(self, prepared: Prepared) -> Mapping[str, str]:
        """Return the dtype of every variable: a table that is checked against its formula stays float32, since 16 bits
        ruin it."""
        tables = {target for move in prepared.plan.moves if any(name in prepared.plan.checks for name in move.sources)
                  for target in move.targets}  # fmt: skip
        return {name: "float32" if name in tables else self.dtype for name in prepared.variables}


def parse_size(option: str, text: str | None) -> int | None:
    """Parse ``512MiB`` or ``5GB`` to bytes; raises :class:`UsageError`."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if not match or not int(match[1]):
        raise UsageError(option, f"invalid size {text!r}", "write for example 512MiB or 5GB")
    return int(match[1]) * _UNITS[match[2] or ""]
