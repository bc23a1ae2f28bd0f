"""``.weights.h5`` and ``.keras`` files in Keras 3's own layout, written without building the model.

Keras stores a layer's variables under the attribute path of the layer, numbered in the order of
creation: ``level_0/input_proj/vars/0``. A structural variable path is an attribute path too, so the
list of paths is all that is needed; a test compares with what `model.save` writes. Keras's own writer
would cost its import and a second copy of the weights, and destroys an older file on a full disk.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from wdport.files.held_back import held_back
from wdport.files.quiet_file import QuietFile
from wdport.files.window import open_member
from wdport.model import Array

MANIFEST = "wdport.json"
"""The dataset of bytes (``.weights.h5``) or the member (``.keras``) that holds the manifest; no attribute's name."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_EPOCH = (1980, 1, 1, 0, 0, 0)
_CONFIG = "config.json"
_WEIGHTS = "model.weights.h5"


def dataset_paths(names: Iterator[str] | Mapping[str, object]) -> dict[str, str]:
    """Variable paths in creation order -> their places in a Keras weights file."""
    seen: Counter[str] = Counter()
    places: dict[str, str] = {}
    for name in names:
        layer = name.rpartition("/")[0]
        places[name] = f"{layer}/vars/{seen[layer]}".lstrip("/")
        seen[layer] += 1
    return places


class WeightsWriter:
    """Streams arrays into a ``.weights.h5`` file; peak memory is one array."""

    def __init__(self, path: Path, variables: Mapping[str, tuple[int, ...]]) -> None:
        self._hdf5 = _Hdf5(os.open(path, _NEW, 0o666), variables)

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        """Put one array in its place."""
        self._hdf5.write(name, array)

    def finish(self, manifest: str) -> None:
        """Write the manifest and close."""
        self._hdf5.finish(manifest)

    def close(self) -> None:
        """Close the file, complete or not."""
        self._hdf5.close()


class ArchiveWriter:
    """A ``.keras`` archive: weights streamed into a file beside it, then packed with the model's config."""

    def __init__(self, path: Path, variables: Mapping[str, tuple[int, ...]], config_json: str) -> None:
        self._path, self._config_json = path, config_json
        # without a name, so that a killed process leaves none
        self._weights = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115
        self._hdf5 = _Hdf5(os.dup(self._weights.fileno()), variables)

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        """Put one array in its place."""
        self._hdf5.write(name, array)

    def finish(self, manifest: str) -> None:
        """Pack and close."""
        self._hdf5.finish()
        with zipfile.ZipFile(self._path, "w") as archive:
            archive.writestr(_member("metadata.json"), json.dumps({"keras_version": version("keras")}))
            archive.writestr(_member(_CONFIG), self._config_json)
            archive.writestr(_member(MANIFEST), manifest)
            member = _member(_WEIGHTS)
            member.file_size = self._weights.seek(0, os.SEEK_END)
            self._weights.seek(0)
            with archive.open(member, "w") as packed:
                shutil.copyfileobj(self._weights, packed, 1 << 22)
        self.close()

    def close(self) -> None:
        """Close and remove the weights file, complete or not."""
        self._hdf5.close()
        self._weights.close()


class _Hdf5:
    """Arrays at their places in an HDF5 file, which is written through a :class:`QuietFile`."""

    def __init__(self, descriptor: int, variables: Mapping[str, tuple[int, ...]]) -> None:
        self._places = dataset_paths(variables)
        self._quiet = QuietFile(descriptor)
        with held_back():
            self._file = h5py.File(self._quiet, "w")

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        place = self._places[name]
        with held_back():
            dataset = self._file.create_dataset(place, data=array, track_times=False)
            dataset.parent.attrs["name"] = place.split("/")[-3]
        self._quiet.check()

    def finish(self, manifest: str | None = None) -> None:
        if manifest is not None:
            with held_back():
                self._file.create_dataset(MANIFEST, data=np.frombuffer(manifest.encode(), np.uint8), track_times=False)
        self.close()
        self._quiet.check()

    def close(self) -> None:
        with held_back():
            self._file.close()
            self._quiet.close()


def add_manifest(path: Path, manifest: str) -> None:
    """Put the manifest into a ``.keras`` or ``.weights.h5`` file that Keras wrote."""
    if path.name.endswith(".h5"):
        with h5py.File(path, "r+") as file:
            _put_manifest(file, manifest)
    else:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(_member(MANIFEST), manifest)


def read_config_json(path: Path) -> bytes:
    """Keras's own ``config.json`` of a ``.keras`` archive."""
    with zipfile.ZipFile(path) as archive:
        return archive.read(_CONFIG)


def read_manifest(path: Path) -> bytes | None:
    """The text of the manifest in a ``.keras`` or ``.weights.h5`` file; None if it holds none."""
    if path.name.endswith(".h5"):
        with h5py.File(path) as file:
            return file[MANIFEST][()].tobytes() if MANIFEST in file else None
    with zipfile.ZipFile(path) as archive:
        return archive.read(MANIFEST) if MANIFEST in archive.namelist() else None


def _put_manifest(file: h5py.File, manifest: str) -> None:
    file.create_dataset(MANIFEST, data=np.frombuffer(manifest.encode(), np.uint8), track_times=False)


def read_arrays(path: Path, names: Mapping[str, object]) -> Iterator[tuple[str, Array]]:
    """Every variable of a ``.keras`` or ``.weights.h5`` file, by structural path, one at a time.

    Raises ``KeyError`` with the path of one that is not there.
    """
    with _weights(path) as file:
        for name, place in dataset_paths(names).items():
            # h5py's low level: hundreds of small datasets take it two thirds of the time
            try:
                dataset = h5py.h5d.open(file.id, place.encode())
            except KeyError:
                raise KeyError(name) from None
            if dataset.shape is None:  # a null dataspace
                raise KeyError(name)
            array = np.empty(dataset.shape, dataset.dtype)
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, array)
            yield name, array


@contextmanager
def _weights(path: Path) -> Iterator[h5py.File]:
    """The HDF5 file that ``path`` is, or that it holds."""
    if path.name.endswith(".h5"):
        with h5py.File(path) as file:
            yield file
        return
    with open_member(path, _WEIGHTS) as window, h5py.File(window) as file:
        yield file


def count_datasets(path: Path) -> int:
    """How many variables a ``.keras`` or ``.weights.h5`` file holds."""
    found: list[int] = []
    with _weights(path) as file:
        h5py.h5o.visit(file.id, lambda _, item: found.append(item.type), info=True)
        return found.count(h5py.h5o.TYPE_DATASET) - (MANIFEST in file)


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, _EPOCH)
