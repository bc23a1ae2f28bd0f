"""Arrays to a converted model's file: written, re-read and compared; and the arrays of one that is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from wdport.checkpoint import open_checkpoint
from wdport.errors import InputError, InternalError, MachineError
from wdport.files.manifests import file_sha256
from wdport.files.safetensors_file import SafetensorsWriter
from wdport.files.target import Target
from wdport.model import Array

Shape = tuple[int, ...]
FORMAT = 1


class Writer(Protocol):
    """What every output format can do."""

    def write(self, name: str, array: Array) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Written:
    """A finished file: its hash and size, and each variable's shape and hash."""

    sha256: str
    size: int
    variables: dict[str, tuple[Shape, str]]


def write_model(
    file: Path,
    target: Target,
    variables: Mapping[str, Shape],
    arrays: Iterable[tuple[str, Array]],
    metadata: Mapping[str, object],
    document: Mapping[str, object],
) -> Written:
    """Write all ``arrays`` (float32, one per entry of ``variables``) to ``file``, re-read them and compare.

    ``target`` is what the file is to become, see :func:`wdport.files.atomic.replacing`.
    """
    texts = {"wdport": json.dumps({"format": FORMAT, **metadata}, sort_keys=True)}
    writer = _open(file, target.format, variables, texts, document)
    try:
        digests = {name: _write(writer, name, array) for name, array in arrays}
        if set(digests) != set(variables):
            raise InternalError(target.path, "not every variable was written", "report this")
        writer.finish()
    finally:
        writer.close()
    _compare(file, target, variables, digests)
    return Written(file_sha256(file), file.stat().st_size, digests)


def write_by_keras(
    file: Path, target: Target, save: Callable[[Path], Mapping[str, Array]], read: Callable[[Path], Mapping[str, Array]]
) -> Written:
    """The same for a model that Keras itself writes: ``save`` does and gives the values that it wrote by path, which
    have to be those that ``read`` finds."""
    saved = {name: (array.shape, _digest(array)) for name, array in save(file).items()}
    found = {name: (array.shape, _digest(array)) for name, array in read(file).items()}
    if wrong := [name for name in saved if found.get(name) != saved[name]]:
        raise InternalError((target.path, wrong[0]), "was not written as it is", "report this")
    return Written(file_sha256(file), file.stat().st_size, saved)


def _open(
    file: Path, kind: str, variables: Mapping[str, Shape], texts: Mapping[str, str], document: Mapping[str, object]
) -> Writer:
    if kind == "safetensors":
        return SafetensorsWriter(file, variables, texts)
    from wdport.files.keras_files import ArchiveWriter, WeightsWriter

    if kind == "keras":
        return ArchiveWriter(file, variables, texts, document)
    return WeightsWriter(file, variables, texts)


def _write(writer: Writer, name: str, array: Array) -> tuple[Shape, str]:
    writer.write(name, array)
    return array.shape, _digest(array)


def _digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def read_variables(path: Path, variables: Mapping[str, Shape]) -> Iterator[tuple[str, Array]]:
    """Every variable of a converted file.

    Raises :class:`InputError` if one is missing or has another shape, or if too many are there.
    """
    for name, array in _read(path, variables):
        if array.shape != variables[name]:
            raise InputError((path, name), f"has shape {array.shape}, not {variables[name]}", "convert again")
        yield name, array


def _read(path: Path, variables: Mapping[str, Shape]) -> Iterator[tuple[str, Array]]:
    if path.name.endswith(".safetensors"):
        with open_checkpoint(path) as file:
            _same_names(path, set(variables), set(file.tensors))
            for name in variables:
                yield name, file.read(name)
        return
    from wdport.files.keras_files import count_datasets, read_arrays

    if (count := count_datasets(path)) != len(variables):
        raise InputError(path, f"has {count} variables where the model has {len(variables)}", "convert again")
    try:
        yield from read_arrays(path, variables)
    except KeyError as error:
        raise InputError((path, error.args[0]), "is missing", "convert again") from None


def _same_names(path: Path, wanted: set[str], found: set[str]) -> None:
    for name in sorted(wanted ^ found):
        raise InputError(
            (path, name), "is missing" if name in wanted else "is no variable of the model", "convert again"
        )


def _compare(
    file: Path, target: Target, variables: Mapping[str, Shape], digests: Mapping[str, tuple[Shape, str]]
) -> None:
    for name, array in read_variables(file, variables):
        if (array.shape, _digest(array)) != digests[name]:
            raise MachineError((target.path, name), "reads back differently than it was written", "check the disk")
