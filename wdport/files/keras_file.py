"""Read and write ``.weights.h5`` and ``.keras`` files in Keras 3's layout without building the model.

Keras stores a layer's variables under the attribute path of the layer, numbered in the order of
creation: ``level_0/input_proj/vars/0``. A structural variable path is an attribute path too, so the
list of paths is all that is needed; a test compares with what `model.save` writes. Keras's writer would need its
import and a second copy of the weights, and destroys an older file on a full disk.

A reader takes the arrays one at a time; anything that Keras does not write is a
:class:`~wdport.checkpoint.faults.Fault`.

HDF5 ends the process by a signal when a write fails (measured with 2.0 on a full disk: 39 of 85 sizes of a ``.keras``
file, 77 of 102 of a ``.weights.h5``). So the first error is stored, later writes go to memory, from where HDF5 can read
them again, and the error is raised when HDF5 has finished.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from wdport.base.limits import MAX_CONFIG_BYTES, MAX_KEPT_BYTES, MAX_MANIFEST_BYTES
from wdport.base.platforms import CLOEXEC, read_at, write_at
from wdport.checkpoint.faults import COPY_AGAIN, SAVE_WITH_KERAS, Fault
from wdport.checkpoint.source import Source, Span
from wdport.checkpoint.strict_json import require_shallow, strict_json
from wdport.checkpoint.zip_archive import read_flat_members
from wdport.files.defer_signals import deferred_signals
from wdport.files.hdf5.structure import Hdf5Contents, read_hdf5
from wdport.files.manifest_seal import MANIFEST
from wdport.models.interface import Array

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.weights.h5"
METADATA: Final = "metadata.json"
ASSETS: Final = "assets/"
_CAPS: Final = {CONFIG: MAX_CONFIG_BYTES, METADATA: MAX_CONFIG_BYTES, MANIFEST: MAX_MANIFEST_BYTES}


class KerasArchive:
    """The members of an archive, read on demand."""

    def __init__(self, source: Source) -> None:
        self._members = read_flat_members(source)
        for name in (CONFIG, WEIGHTS):
            if name not in self._members:
                raise Fault(f"has no {name}: it is not a whole .keras file", SAVE_WITH_KERAS)
        for name in self._members:
            if name not in (*_CAPS, WEIGHTS) and not name.startswith(ASSETS):
                raise Fault("neither Keras nor wdport writes this member", SAVE_WITH_KERAS, name)

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a JSON member or an asset; None if the archive does not have it."""
        if name not in self._members:
            return None
        span, cap = self._members[name], _CAPS.get(name, MAX_KEPT_BYTES)
        if span.nbytes > cap:
            raise Fault(f"the {name} of {span.nbytes} bytes is too long (at most {cap})", SAVE_WITH_KERAS)
        check_crc(span)
        return span.read()

    def config_json(self) -> bytes:
        """Return Keras's description of the model, checked to be safe to parse."""
        raw = self.read(CONFIG) or b""
        require_shallow(strict_json(raw, CONFIG, finite=False), CONFIG)  # Keras writes infinite constants
        return raw

    def weights(self) -> Span:
        """Return the HDF5 file in the archive; its CRC is not checked yet, see :func:`check_crc`."""
        return self._members[WEIGHTS]


def check_crc(span: Span) -> None:
    """Read a member once and compare it with its CRC."""
    if span.crc is None or span.verified:
        return
    if span.source.crc(span.start, span.nbytes) != span.crc:
        raise Fault("the bytes of the zip member do not match their CRC", COPY_AGAIN, span.name)
    span.verified = True


def dataset_paths(names: Iterable[str]) -> dict[str, str]:
    """Map variable paths, in creation order, to their places in a Keras weights file."""
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}
    for name in names:
        layer = name.rpartition("/")[0]
        places[name] = f"{layer}/vars/{counts[layer]}".lstrip("/")
        counts[layer] += 1
    return places


_STATE = "optimizer/"
"""Where Keras stores the state of an optimizer, in the file of a compiled model."""


class WeightsFile:
    """An HDF5 file, in an archive or not, and its ``contents``."""

    def __init__(self, span: Span) -> None:
        # An archive's member is checked before HDF5's structure is parsed; a plain .weights.h5 file has no CRC.
        check_crc(span)
        self._span = span
        self.contents: Hdf5Contents = read_hdf5(span.read, span.nbytes)

    @property
    def arrays(self) -> set[str]:
        """Return the datasets of the model, without the optimizer's."""
        return {path for path in self.contents.datasets if path != MANIFEST and not path.startswith(_STATE)}

    def read(self, path: str) -> Array:
        """Return the stored array of the dataset at ``path``; ``KeyError`` if there is none."""
        dataset = self.contents.datasets[path]
        # Its bytes lie within the file, none twice: no array is larger than the file.
        array = np.empty(dataset.shape, dataset.dtype)
        stored = array.reshape(-1).view(np.uint8)
        if dataset.nbytes:
            self._span.read_into(stored.data, dataset.offset)
        if dataset.dtype == np.bool_ and stored.size and stored.max() > 1:
            raise Fault("a bool array holds bytes other than 0 and 1", COPY_AGAIN, path)
        return array


@contextmanager
def open_weights(path: Path) -> Iterator[WeightsFile]:
    """Open the HDF5 file ``path``, or the one in the archive ``path``."""
    with closing(Source(path)) as source:
        if path.name.endswith(".h5"):
            yield WeightsFile(Span(source, 0, source.size, None, path.name))
        else:
            yield WeightsFile(KerasArchive(source).weights())


_WRITING: Final = {"w": os.O_CREAT | os.O_TRUNC, "r+": 0}


class QuietFile(io.RawIOBase):
    """An open file for random writes and reads, which it closes; use it with signals deferred.

    A signal handler that raises would raise in this class, and HDF5 would see the error.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._file, self._position, self._size = descriptor, 0, os.fstat(descriptor).st_size
        self._refusal: OSError | None = None
        self._kept: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raise the stored error, if any."""
        if self._refusal is not None:
            raise self._refusal

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._refusal is None:
            self._attempt(view)
        if self._refusal is not None:
            # Later writes are kept even where the disk would take them: HDF5 must read back what it wrote, in this
            # order.
            self._kept.append((self._position, bytes(view)))
        self._position += len(view)
        self._size = max(self._size, self._position)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._position)]
        view[:] = bytes(len(view))  # where nothing was written
        try:
            read_at(self._file, view, self._position)
        except OSError as error:
            self._refusal = self._refusal or error
        for start, data in self._kept:
            begin, end = max(start, self._position), min(start + len(data), self._position + len(view))
            if begin < end:
                view[begin - self._position : end - self._position] = data[begin - start : end - start]
        self._position += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._position if size is None else size
        try:
            os.ftruncate(self._file, self._size)
        except OSError as error:
            self._refusal = self._refusal or error
        return self._size

    def close(self) -> None:
        if not self.closed:
            try:
                os.close(self._file)
            except OSError as error:
                self._refusal = self._refusal or error
        super().close()

    def _attempt(self, view: memoryview) -> None:
        try:
            write_at(self._file, view, self._position)
        except OSError as error:
            self._refusal = error


@contextmanager
def quiet_hdf5() -> Iterator[None]:
    """Redirect files opened inside with ``h5py.File(path, mode)``, "w" or "r+", through a :class:`QuietFile`.

    For Keras's writers. Raises ``OSError`` at the end if a write failed; signals are deferred until then.
    """
    opened: list[QuietFile] = []

    class File(h5py.File):
        def __init__(self, name: object, mode: str = "r", **options: object) -> None:
            if mode not in _WRITING or not isinstance(name, (str, os.PathLike)):
                super().__init__(name, mode, **options)
                return
            quiet = QuietFile(os.open(name, os.O_RDWR | CLOEXEC | _WRITING[mode], 0o644))
            files.callback(quiet.close)
            opened.append(quiet)
            super().__init__(quiet, mode, **options)
            files.callback(self.close)

    with deferred_signals():
        # Keras looks h5py.File up when it writes, so the class can be replaced for the duration of the block.
        before, h5py.File = h5py.File, File
        try:
            with ExitStack() as files:
                yield
        finally:
            h5py.File = before
        for quiet in opened:
            quiet.check()


_NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | CLOEXEC
_EPOCH = (1980, 1, 1, 0, 0, 0)


class ArchiveWriter:
    """Writes a ``.keras`` archive: streams weights to a file next to it, then packs them with the model's config."""

    def __init__(
        self,
        path: Path,
        variables: Mapping[str, tuple[int, ...]],
        config_json: str,
        assets: Mapping[str, bytes] | None = None,
    ) -> None:
        self._path, self._config_json, self._assets = path, config_json, assets or {}
        # without a name, so that a killed process leaves none
        self._weights = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115
        self._hdf5 = WeightsWriter(os.dup(self._weights.fileno()), variables)

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        self._hdf5.write(name, array)

    def finish(self, manifest: str) -> None:
        """Pack the archive and close it."""
        self._hdf5.finish()
        with zipfile.ZipFile(self._path, "w") as archive:
            archive.writestr(_member(METADATA), json.dumps({"keras_version": version("keras")}))
            archive.writestr(_member(CONFIG), self._config_json)
            archive.writestr(_member(MANIFEST), manifest)
            for name, data in self._assets.items():
                archive.writestr(_member(ASSETS + name), data)
            member = _member(WEIGHTS)
            # With the size known in advance, zipfile adds a 64-bit field only to a member that needs one.
            member.file_size = self._weights.seek(0, os.SEEK_END)
            self._weights.seek(0)
            with archive.open(member, "w") as packed:
                shutil.copyfileobj(self._weights, packed, 1 << 22)
        self.close()

    def close(self) -> None:
        """Close and remove the weights file, complete or not."""
        self._hdf5.close()
        self._weights.close()


class WeightsWriter:
    """Streams arrays to a ``.weights.h5`` file, a path or an open descriptor, through a :class:`QuietFile`; peak memory
    is one array."""

    def __init__(self, file: Path | int, variables: Mapping[str, tuple[int, ...]]) -> None:
        self._places = dataset_paths(variables)
        self._quiet = QuietFile(file if isinstance(file, int) else os.open(file, _NEW, 0o644))
        with deferred_signals():
            self._file = h5py.File(self._quiet, "w")

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        place = self._places[name]
        with deferred_signals():
            # Without times, equal weights give equal bytes.
            dataset = self._file.create_dataset(place, data=array, track_times=False)
            # Keras also writes the layer's name, as an attribute of its group of variables.
            dataset.parent.attrs["name"] = place.split("/")[-3]
        self._quiet.check()

    def finish(self, manifest: str | None = None) -> None:
        """Write the manifest, if any, and close."""
        if manifest is not None:
            with deferred_signals():
                self._file.create_dataset(MANIFEST, data=np.frombuffer(manifest.encode(), np.uint8), track_times=False)
        self.close()
        self._quiet.check()

    def close(self) -> None:
        """Close the file, complete or not."""
        with deferred_signals():
            self._file.close()
            self._quiet.close()


def add_manifest(path: Path, manifest: str) -> None:
    """Add the manifest to a ``.keras`` or ``.weights.h5`` file that Keras wrote."""
    if path.name.endswith(".h5"):
        with quiet_hdf5(), h5py.File(path, "r+") as file:
            file.create_dataset(MANIFEST, data=np.frombuffer(manifest.encode(), np.uint8), track_times=False)
    else:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(_member(MANIFEST), manifest)


def _member(name: str) -> zipfile.ZipInfo:
    # The earliest date that a zip archive can have, instead of today's: equal models give equal bytes.
    return zipfile.ZipInfo(name, _EPOCH)
