"""Write arrays to a converted model's file, re-read and compare them; and read existing files.

A file contains its manifest, and the manifest a SHA-256 of every array, so that readers can check it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from wdport.base.errors import InputError, InternalError, MachineError
from wdport.base.limits import MAX_MANIFEST_BYTES
from wdport.checkpoint.checkpoint import open_checkpoint
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.safetensors import read_safetensors
from wdport.checkpoint.source import Source, Span, decode
from wdport.checkpoint.tensor import NUMPY
from wdport.files.keras_file import ASSETS, KerasArchive, dataset_paths, open_weights
from wdport.files.manifest_seal import CONVERT_AGAIN, MANIFEST, file_sha256
from wdport.files.model_target import Target
from wdport.files.npz_file import manifest_in, open_npz, values_of
from wdport.files.orbax_folder import ITEM, read_orbax, require_orbax
from wdport.files.safetensors_writer import METADATA, PlannedTensor
from wdport.models.interface import Array

Shape = tuple[int, ...]

Digests = Mapping[str, str]
"""The SHA-256 of variables by path, computed from their values in row-major order, little-endian."""


@dataclass(frozen=True)
class Hashes:
    """The hashes in a manifest: the SHA-256 of each variable, and of Keras's ``config.json``.

    ``float32`` has those of variables that are stored in another dtype, as float32.
    """

    variables: Digests
    config_json: str | None = None
    float32: Digests = field(default_factory=dict)


MakeManifest = Callable[[Hashes | None], str]
"""Makes a manifest's text; without hashes, a placeholder of the same length."""


@dataclass(frozen=True)
class Written:
    """A finished file: its hash and size, and the hashes of its content."""

    sha256: str
    size: int
    hashes: Hashes


@dataclass(frozen=True)
class ModelMetadata:
    """The content of a converted file apart from its arrays: the manifest's text, None if Keras saved the file, and
    Keras's model description of a ``.keras`` archive."""

    manifest: bytes | None
    config_json: bytes | None = None


def write_model(
    file: Path,
    target: Target,
    variables: Mapping[str, Shape],
    arrays: Iterable[tuple[str, Array]],
    manifest: MakeManifest,
    document: Mapping[str, object],
    assets: Mapping[str, bytes] | None = None,
) -> Written:
    """Write all ``arrays`` (float32, one per entry of ``variables``) to ``file`` as Keras does, re-read and compare.

    ``target`` is the final file, see :func:`wdport.files.atomic.replacing`; ``document`` is Keras's
    ``config.json`` and ``assets`` are other files, by name, for an archive.
    """
    config_json = json.dumps(document)
    digests = {}
    from wdport.files.keras_file import ArchiveWriter, WeightsWriter

    archive = target.format == "keras"
    opened = ArchiveWriter(file, variables, config_json, assets) if archive else WeightsWriter(file, variables)
    with closing(opened) as writer:
        for name, array in arrays:
            writer.write(name, array)
            digests[name] = digest(array)
        if set(digests) != set(variables):
            raise InternalError(target.path, "not every variable was written", "report this")
        hashes = Hashes(digests, _sha256(config_json.encode()) if archive else None)
        writer.finish(manifest(hashes))
    # Read by the strict reader, not by the library that wrote the file.
    for name, array in read_variables(file, variables):
        if digest(array) != digests[name]:
            raise MachineError((target.path, name), "differs when read back", "check the disk")
    return Written(file_sha256(file), file.stat().st_size, hashes)


def write_by_keras(
    file: Path,
    target: Target,
    save: Callable[[Path], Mapping[str, Array]],
    read: Callable[[Path], Mapping[str, Array]],
    manifest: MakeManifest,
) -> Written:
    """Write a model with Keras: ``save`` writes it and returns the written values by path, which must equal those that
    ``read`` returns."""
    from wdport.files.keras_file import add_manifest

    arrays = save(file)
    saved = {name: digest(array) for name, array in arrays.items()}
    single = {name: digest(array.astype(np.float32)) for name, array in arrays.items() if array.dtype != np.float32}
    config_json = read_metadata(file).config_json
    hashes = Hashes(saved, None if config_json is None else _sha256(config_json), single)
    add_manifest(file, manifest(hashes))
    stored = {name: digest(array) for name, array in read(file).items()}
    if wrong := [name for name in saved if stored.get(name) != saved[name]]:
        raise InternalError((target.path, wrong[0]), "was written with other values", "report this")
    return Written(file_sha256(file), file.stat().st_size, hashes)


def read_metadata(path: Path) -> ModelMetadata:
    """Read the content of a converted file apart from its arrays; raises :class:`WdportError`."""
    if path.name.endswith(".safetensors"):
        with open_checkpoint(path) as file:
            text = file.metadata.get(METADATA)
            return ModelMetadata(text.encode() if isinstance(text, str) else None)
    with located(path):
        if path.is_dir():
            return ModelMetadata(_small(path / MANIFEST))
        if path.name.endswith(".npz"):
            return ModelMetadata(manifest_in(path))
        if path.name.endswith(".h5"):
            with open_weights(path) as weights:
                return ModelMetadata(
                    weights.read(MANIFEST).tobytes() if MANIFEST in weights.contents.datasets else None
                )
        with closing(Source(path)) as source:
            archive = KerasArchive(source)
            return ModelMetadata(archive.read(MANIFEST), archive.config_json())


def read_assets(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Read these files from a ``.keras`` archive, as far as it has them; none from other formats."""
    if path.is_dir() or not path.name.endswith(".keras"):
        return {}
    with located(path), closing(Source(path)) as source:
        archive = KerasArchive(source)
        return {name: data for name in names if (data := archive.read(ASSETS + name)) is not None}


def read_variables(
    path: Path, variables: Mapping[str, Shape], digests: Digests | None = None, dtypes: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Array]]:
    """Read every variable of a converted file as float32; one stored in 16 bits, according to ``dtypes``, is widened.

    Raises :class:`InputError` if one is missing, has another shape or dtype, or another SHA-256 than in ``digests``; or
    if there are too many.
    """
    entries = [PlannedTensor(name, (dtypes or {}).get(name, "float32"), shape) for name, shape in variables.items()]
    for entry, array, dtype in _read(path, entries):
        if array.shape != entry.shape or dtype != entry.dtype:
            what = f"is {dtype} {array.shape}, not {entry.dtype} {entry.shape}"
            raise InputError((path, entry.name), what, CONVERT_AGAIN)
        if digests is not None and digest(array) != digests[entry.name]:
            raise InputError((path, entry.name), "is damaged: its SHA-256 differs from the written one", CONVERT_AGAIN)
        # The digest above is of the stored bits; widening comes after it.
        yield entry.name, decode(array, dtype).astype(np.float32, copy=False)


def stored_digests(path: Path, entries: Sequence[PlannedTensor]) -> dict[str, str]:
    """Return the SHA-256 of every variable of a ``.safetensors`` or ``.npz`` file, read in pieces, or of an Orbax
    checkpoint; raises as :func:`read_variables` does."""
    if path.is_dir():
        return {entry.name: digest(array) for entry, array, _ in _read(path, entries)}
    hashes = {}
    with ExitStack() as files:
        files.enter_context(located(path))
        spans: Mapping[str, Span]
        if path.name.endswith(".npz"):
            members = files.enter_context(open_npz(path))
            spans = {entry.name: values_of(members, entry) for entry in entries}
        else:
            spans = read_safetensors(files.enter_context(closing(Source(path)))).spans
        for entry in entries:
            hashed, span = hashlib.sha256(), spans[entry.name]
            for piece in span.source.pieces(span.start, span.nbytes):
                hashed.update(piece)
            hashes[entry.name] = hashed.hexdigest()
    return hashes


def size_at(path: Path) -> int:
    """Return the size of a converted file, or of everything in a folder, in bytes."""
    return (
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size
    )


def digest(array: Array) -> str:
    """Return the SHA-256 of an array's values, see :data:`Digests`."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _small(path: Path) -> bytes:
    """Return the manifest of a folder."""
    with closing(Source(path)) as source:
        if source.size > MAX_MANIFEST_BYTES:
            raise Fault(f"has a manifest of more than {MAX_MANIFEST_BYTES >> 20} MB", CONVERT_AGAIN)
        return source.read(0, source.size)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path, entries: Sequence[PlannedTensor]) -> Iterator[tuple[PlannedTensor, Array, str]]:
    names = [entry.name for entry in entries]
    if path.is_dir() and (path / ITEM).is_dir():
        with located(path):
            require_orbax(path)
            arrays = read_orbax(path, entries)
            # Orbax reads all variables at once.
            yield from ((entry, *arrays[entry.name]) for entry in entries)
    elif path.is_dir() or path.name.endswith(".safetensors"):
        with open_checkpoint(path) as file:
            _same_names(path, set(names), set(file.tensors))
            for entry in entries:
                yield entry, file.read_stored(entry.name), file.tensors[entry.name].dtype
    elif path.name.endswith(".npz"):
        with located(path), open_npz(path) as members:
            # In both directions: a variable too many means that the file belongs to another model.
            _same_names(path, set(names), set(members) - {MANIFEST})
            for entry in entries:
                array = np.empty(entry.shape, NUMPY[entry.dtype])
                if entry.nbytes:
                    values_of(members, entry).read_into(array.reshape(-1).view(np.uint8).data)
                yield entry, array, entry.dtype
    else:
        yield from _read_hdf5(path, entries)


def _read_hdf5(path: Path, entries: Sequence[PlannedTensor]) -> Iterator[tuple[PlannedTensor, Array, str]]:
    with located(path), open_weights(path) as weights:
        places = dataset_paths(entry.name for entry in entries)
        if len(arrays := weights.arrays) != len(places):
            raise Fault(f"has {len(arrays)} variables, but the model has {len(places)}", CONVERT_AGAIN)
        for entry in entries:
            if (place := places[entry.name]) not in arrays:
                raise Fault("is missing", CONVERT_AGAIN, entry.name)
            array = weights.read(place)
            yield entry, array, str(array.dtype)


def _same_names(path: Path, expected: set[str], stored: set[str]) -> None:
    for name in sorted(expected ^ stored):
        raise InputError(
            (path, name), "is missing" if name in expected else "is not a variable of the model", CONVERT_AGAIN
        )
