"""Arrays to a finished file: written under a temporary name, re-read, compared, then renamed.

Until the last step nothing has the target's name; whatever happens before it, an older file stays.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wdport.checkpoint import open_checkpoint
from wdport.errors import InputError, InternalError, MachineError
from wdport.files.safetensors_file import SafetensorsWriter
from wdport.files.target import Target, clear_leftovers
from wdport.files.writable import is_stream

Array = NDArray[Any]
Shape = tuple[int, ...]
FORMAT = 1


class Writer(Protocol):
    """What every output format can do."""

    def write(self, name: str, array: Array) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Written:
    """A finished file under its temporary name: its hash and size, and each variable's shape and hash."""

    temporary: Path
    sha256: str
    size: int
    variables: dict[str, tuple[Shape, str]]


def write_model(
    target: Target,
    variables: Mapping[str, Shape],
    arrays: Iterable[tuple[str, Array]],
    metadata: Mapping[str, Any],
    document: Mapping[str, Any],
) -> Written:
    """Write all ``arrays`` (float32, one per entry of ``variables``), re-read them and compare.

    Raises :class:`MachineError` if the machine refuses; no temporary file is left then.
    """
    texts = {"wdport": json.dumps({"format": FORMAT, **metadata}, sort_keys=True)}
    with _unfinished(target) as temporary:
        writer = _open(target, variables, texts, document)
        try:
            digests = {name: _write(writer, name, array) for name, array in arrays}
            if set(digests) != set(variables):
                raise InternalError(target.path, "not every variable was written", "report this")
            writer.finish()
        finally:
            writer.close()
        _compare(target, variables, digests)
        return Written(temporary, file_sha256(temporary), temporary.stat().st_size, digests)


def write_by_keras(
    target: Target, save: Callable[[Path], Mapping[str, Array]], read: Callable[[Path], Mapping[str, Array]]
) -> Written:
    """The same for a model that Keras itself writes: ``save`` does and gives the values that it wrote by path, which
    have to be those that ``read`` finds."""
    with _unfinished(target) as temporary:
        saved = {name: (array.shape, _digest(array)) for name, array in save(temporary).items()}
        found = {name: (array.shape, _digest(array)) for name, array in read(temporary).items()}
        if wrong := [name for name in saved if found.get(name) != saved[name]]:
            raise InternalError((target.path, wrong[0]), "was not written as it is", "report this")
        _sync(temporary)
        return Written(temporary, file_sha256(temporary), temporary.stat().st_size, saved)


@contextmanager
def _unfinished(target: Target) -> Iterator[Path]:
    """The target's temporary name; what has it when the block fails is removed."""
    clear_leftovers(target)
    try:
        yield target.temporary
    except OSError as error:
        target.temporary.unlink(missing_ok=True)
        raise machine_error(target.path, error) from error
    except BaseException:
        target.temporary.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def machine_error(path: Path, error: OSError) -> MachineError:
    """An operating system's refusal as one line."""
    fix = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the folder and its disk"
    return MachineError(path, f"could not be written ({error.strerror or error})", fix)


def write_text(path: Path, text: str) -> None:
    """Write a text file; an older one stays until the new one is whole. What is a stream is written into.

    Raises :class:`MachineError` if the machine refuses; no temporary file is left then.
    """
    try:
        if is_stream(path):
            with path.open("a", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            return
        real = Path(os.path.realpath(path))
        temporary = real.with_name(f".{real.name}.{os.getpid()}.wdport-tmp")
        try:
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, real)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise machine_error(path, error) from error


@contextmanager
def whole_file(target: Target) -> Iterator[IO[bytes]]:
    """A file under the target's temporary name, which gets its own name when the block ends well.

    Raises :class:`MachineError` if the machine refuses; no temporary file is left then.
    """
    clear_leftovers(target)
    try:
        with target.temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(target.temporary, target.path)
    except OSError as error:
        raise machine_error(target.path, error) from error
    finally:
        with suppress(OSError):
            target.temporary.unlink(missing_ok=True)


def _open(target: Target, variables: Mapping[str, Shape], texts: dict[str, str], document: Mapping[str, Any]) -> Writer:
    if target.format == "safetensors":
        return SafetensorsWriter(target.temporary, variables, texts)
    from wdport.files.keras_files import ArchiveWriter, WeightsWriter

    if target.format == "keras":
        return ArchiveWriter(target.temporary, variables, texts, document)
    return WeightsWriter(target.temporary, variables, texts)


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


def _compare(target: Target, variables: Mapping[str, Shape], digests: Mapping[str, tuple[Shape, str]]) -> None:
    for name, array in read_variables(target.temporary, variables):
        if (array.shape, _digest(array)) != digests[name]:
            raise MachineError((target.path, name), "reads back differently than it was written", "check the disk")


def file_sha256(path: str | Path) -> str:
    """A file's SHA-256, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def publish(written: Written, target: Target, manifest: str) -> None:
    """Give the finished file and then its manifest their names, and sync the folder."""
    beside = target.manifest.with_name(f".{target.manifest.name}.{os.getpid()}.wdport-tmp")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(manifest)
            file.flush()
            os.fsync(file.fileno())
        os.replace(written.temporary, target.path)
        os.replace(beside, target.manifest)
        folder = os.open(target.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise machine_error(target.path, error) from error
    finally:
        beside.unlink(missing_ok=True)
        written.temporary.unlink(missing_ok=True)
