"""Arrays to a converted model's file: written, re-read and compared; and what is in one that is there.

A file holds its manifest, and the manifest a SHA-256 of every array, so that whoever reads an array can check it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.located import located
from wdport.checkpoint.source import Source
from wdport.errors import InputError, InternalError, MachineError
from wdport.files.keras_archive import MANIFEST, KerasArchive
from wdport.files.manifests import CONVERT_AGAIN, file_sha256
from wdport.files.safetensors_file import METADATA, SafetensorsWriter
from wdport.files.target import Target
from wdport.files.weights_file import dataset_paths, open_weights
from wdport.model import Array

Shape = tuple[int, ...]

Digests = Mapping[str, str]
"""The SHA-256 of variables by path: of their values in row-major order, little-endian."""


class Writer(Protocol):
    """What every output format can do."""

    def write(self, name: str, array: Array) -> None: ...

    def finish(self, manifest: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Hashes:
    """What a manifest says of the written file: the SHA-256 of each variable, and of Keras's ``config.json``."""

    variables: Digests
    config_json: str | None = None


MakeManifest = Callable[[Hashes | None], str]
"""Makes a manifest's text; without hashes, one that is as long."""


@dataclass(frozen=True)
class Written:
    """A finished file: its hash and size, and the hashes of what is in it."""

    sha256: str
    size: int
    hashes: Hashes


@dataclass(frozen=True)
class Beside:
    """What a converted file holds beside its arrays: the manifest's text, None where Keras saved the file itself, and
    Keras's own description of a ``.keras`` archive."""

    manifest: bytes | None
    config_json: bytes | None = None


def write_model(
    file: Path,
    target: Target,
    variables: Mapping[str, Shape],
    arrays: Iterable[tuple[str, Array]],
    manifest: MakeManifest,
    document: Mapping[str, object],
) -> Written:
    """Write all ``arrays`` (float32, one per entry of ``variables``) to ``file``, re-read them and compare.

    ``target`` is what the file is to become, see :func:`wdport.files.atomic.replacing`; ``document`` is Keras's
    ``config.json``, for an archive.
    """
    config_json = json.dumps(document)
    writer = _open(file, target.format, variables, manifest(None), config_json)
    try:
        digests = {name: _write(writer, name, array) for name, array in arrays}
        if set(digests) != set(variables):
            raise InternalError(target.path, "not every variable was written", "report this")
        hashes = Hashes(digests, _sha256(config_json.encode()) if target.format == "keras" else None)
        writer.finish(manifest(hashes))
    finally:
        writer.close()
    for name, array in read_variables(file, variables):
        if digest(array) != digests[name]:
            raise MachineError((target.path, name), "reads back differently than it was written", "check the disk")
    return Written(file_sha256(file), file.stat().st_size, hashes)


def write_by_keras(
    file: Path,
    target: Target,
    save: Callable[[Path], Mapping[str, Array]],
    read: Callable[[Path], Mapping[str, Array]],
    manifest: MakeManifest,
) -> Written:
    """The same for a model that Keras itself writes: ``save`` does and gives the values that it wrote by path, which
    have to be those that ``read`` finds."""
    from wdport.files.keras_files import add_manifest

    saved = {name: digest(array) for name, array in save(file).items()}
    config_json = read_beside(file).config_json
    hashes = Hashes(saved, None if config_json is None else _sha256(config_json))
    add_manifest(file, manifest(hashes))
    found = {name: digest(array) for name, array in read(file).items()}
    if wrong := [name for name in saved if found.get(name) != saved[name]]:
        raise InternalError((target.path, wrong[0]), "was not written as it is", "report this")
    return Written(file_sha256(file), file.stat().st_size, hashes)


def read_beside(path: Path) -> Beside:
    """What is in a converted file beside its arrays; raises :class:`WdportError`."""
    if path.name.endswith(".safetensors"):
        with open_checkpoint(path) as file:
            text = file.metadata.get(METADATA)
            return Beside(text.encode() if isinstance(text, str) else None)
    with located(path):
        if path.name.endswith(".h5"):
            with open_weights(path) as weights:
                return Beside(weights.read(MANIFEST).tobytes() if MANIFEST in weights.contents.datasets else None)
        with closing(Source(path)) as source:
            archive = KerasArchive(source)
            return Beside(archive.read(MANIFEST), archive.config_json())


def read_variables(
    path: Path, variables: Mapping[str, Shape], digests: Digests | None = None
) -> Iterator[tuple[str, Array]]:
    """Every variable of a converted file.

    Raises :class:`InputError` if one is missing, has another shape or dtype, or not the SHA-256 that ``digests`` has
    for it; or if too many are there.
    """
    for name, array in _read(path, variables):
        if array.shape != variables[name] or array.dtype != np.float32:
            what = f"is {array.dtype} {array.shape}, not float32 {variables[name]}"
            raise InputError((path, name), what, CONVERT_AGAIN)
        if digests is not None and digest(array) != digests[name]:
            raise InputError((path, name), "is damaged: another SHA-256 than was written", CONVERT_AGAIN)
        yield name, array


def digest(array: Array) -> str:
    """The SHA-256 of an array's values, see :data:`Digests`."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _open(file: Path, kind: str, variables: Mapping[str, Shape], room: str, config_json: str) -> Writer:
    if kind == "safetensors":
        return SafetensorsWriter(file, variables, room)
    from wdport.files.keras_files import ArchiveWriter, WeightsWriter

    return ArchiveWriter(file, variables, config_json) if kind == "keras" else WeightsWriter(file, variables)


def _write(writer: Writer, name: str, array: Array) -> str:
    writer.write(name, array)
    return digest(array)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path, variables: Mapping[str, Shape]) -> Iterator[tuple[str, Array]]:
    if path.name.endswith(".safetensors"):
        with open_checkpoint(path) as file:
            _same_names(path, set(variables), set(file.tensors))
            for name in variables:
                yield name, file.read(name)
        return
    with located(path), open_weights(path) as weights:
        places = dataset_paths(variables)
        if len(found := weights.arrays) != len(places):
            raise Fault(f"has {len(found)} variables where the model has {len(places)}", CONVERT_AGAIN)
        for name, place in places.items():
            if place not in found:
                raise Fault("is missing", CONVERT_AGAIN, name)
            yield name, weights.read(place)


def _same_names(path: Path, wanted: set[str], found: set[str]) -> None:
    for name in sorted(wanted ^ found):
        raise InputError((path, name), "is missing" if name in wanted else "is no variable of the model", CONVERT_AGAIN)
