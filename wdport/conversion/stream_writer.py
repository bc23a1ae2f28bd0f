"""Convert in bounded memory: write variables in pieces to a folder of shards, a ``.safetensors`` or an ``.npz`` file.

For a folder, everything is read once and written once, and hashed (SHA-256) meanwhile; nothing is read back. A single
file has its manifest before values that are not hashed yet, or a CRC of each, so it is read again in pieces, compared
and hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from wdport.conversion.apply import Progress
from wdport.conversion.manifest import make_manifest, manifest_with_file
from wdport.conversion.manifest_schema import Manifest, OutputEntry
from wdport.conversion.prepare import Prepared
from wdport.conversion.storage import SHARD_SIZE, Storage
from wdport.conversion.stream import VariableStream
from wdport.conversion.values import See
from wdport.errors import MachineError
from wdport.files.inputs import sha256_at
from wdport.files.manifest_seal import BLANK, folder_sha256, sealed
from wdport.files.model_files import Hashes, Written, size_at, stored_digests
from wdport.files.npz_file import NpzWriter
from wdport.files.orbax_folder import OrbaxWriter
from wdport.files.safetensors_file import PlannedTensor, SafetensorsWriter
from wdport.files.sharded_file import ShardedWriter, ShardPart
from wdport.files.target import FOLDER, ORBAX, ModelTarget, Target


@dataclass(frozen=True)
class Plans:
    """A planned conversion, its target and its settings."""

    prepared: Prepared
    target: ModelTarget
    storage: Storage
    allow_nonfinite: bool = False
    cast: bool = False
    progress: Progress | None = None
    see: See = lambda name, array: None


def write_streamed(plans: Plans, file: Path) -> Manifest:
    """Write the variables to ``file``, the target's temporary file or folder; return the manifest to be written next to
    it.

    Raises as :class:`wdport.conversion.stream.VariableStream` does.
    """
    prepared, target = plans.prepared, plans.target
    dtypes = plans.storage.dtypes(prepared)
    stream = VariableStream(prepared, dtypes, plans.storage.max_memory, plans.allow_nonfinite, plans.cast, plans.see)

    def manifest(hashes: Hashes | None, source: str = BLANK, parts: list[ShardPart] | None = None) -> Manifest:
        base = make_manifest(prepared, target, hashes, source, dtypes)
        output: OutputEntry = {**base["output"]}
        if plans.storage.dtype != "float32":
            output["dtype"] = plans.storage.dtype
        if parts:
            output["files"] = [{"name": part.name, "sha256": part.sha256, "bytes": part.size} for part in parts]
        return {**base, "output": output}

    with (
        prepared.checkpoint.hashed() as hashed,
        closing(_open(file, plans, stream.entries, manifest)) as writer,
        ThreadPoolExecutor(1) as thread,
        closing(stream.pieces()) as pieces,
    ):
        # A buffer may be reused only after its bytes are hashed.
        stream.read = hashed.settle
        digests = {entry.name: hashlib.sha256() for entry in stream.entries}
        for piece in pieces:
            # The hash of a piece is computed while the piece is written.
            hashing = thread.submit(digests[piece.name].update, piece.data)
            writer.write_at(piece.name, piece.start, piece.data)
            hashing.result()
            piece.release()
            if plans.progress:
                plans.progress(piece.done, stream.total)
        # A checkpoint that was read in order is hashed by now, apart from the parts that no variable needs.
        hashes, source = Hashes({name: hasher.hexdigest() for name, hasher in digests.items()}), hashed.hexdigest()
        parts = writer.finished() if isinstance(writer, ShardedWriter) else None
        inside = manifest(hashes, source, parts)
        writer.finish(sealed(inside))
    if parts is not None:
        sha256 = folder_sha256((part.name, part.sha256) for part in parts)
    else:
        _require_written(file, target, stream.entries, hashes.variables)
        sha256 = sha256_at(file)
    return manifest_with_file(inside, target, Written(sha256, size_at(file), hashes))


def _open(
    file: Path, plans: Plans, entries: list[PlannedTensor], manifest: Callable[[Hashes | None], Manifest]
) -> ShardedWriter | SafetensorsWriter | NpzWriter | OrbaxWriter:
    if plans.target.format == FOLDER:
        return ShardedWriter(file, entries, plans.storage.max_shard_size or SHARD_SIZE)
    if plans.target.format == ORBAX:
        return OrbaxWriter(file, entries)
    if plans.target.format == "npz":
        return NpzWriter(file, entries)
    shapes, dtypes = ({entry.name: entry.shape for entry in entries}, {entry.name: entry.dtype for entry in entries})
    return SafetensorsWriter(file, shapes, sealed(manifest(None)), dtypes)


def _require_written(file: Path, target: Target, entries: list[PlannedTensor], digests: Mapping[str, str]) -> None:
    stored = stored_digests(file, entries)
    for name in digests:
        if stored[name] != digests[name]:
            raise MachineError((target.path, name), "differs when read back", "check the disk")
