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
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from wdport.files.held_back import held_back
from wdport.files.quiet_file import QuietFile
from wdport.files.window import open_member
from wdport.model import Array

METADATA = "wdport"
"""The attribute (``.weights.h5``) or the member ``wdport.json`` (``.keras``) that holds our metadata."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_EPOCH = (1980, 1, 1, 0, 0, 0)
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

    def __init__(self, path: Path, variables: Mapping[str, tuple[int, ...]], metadata: Mapping[str, str]) -> None:
        self._hdf5 = _Hdf5(os.open(path, _NEW, 0o666), variables, metadata)

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        """Put one array in its place."""
        self._hdf5.write(name, array)

    def finish(self) -> None:
        """Write what is left and close."""
        self._hdf5.finish()

    def close(self) -> None:
        """Close the file, complete or not."""
        self._hdf5.close()


class ArchiveWriter:
    """A ``.keras`` archive: weights streamed into a file beside it, then packed with the model's config."""

    def __init__(
        self,
        path: Path,
        variables: Mapping[str, tuple[int, ...]],
        metadata: Mapping[str, str],
        document: Mapping[str, object],
    ) -> None:
        self._path, self._metadata, self._document = path, dict(metadata), document
        # without a name, so that a killed process leaves none
        self._weights = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115
        self._hdf5 = _Hdf5(os.dup(self._weights.fileno()), variables, {})

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        """Put one array in its place."""
        self._hdf5.write(name, array)

    def finish(self) -> None:
        """Pack and close."""
        self._hdf5.finish()
        with zipfile.ZipFile(self._path, "w") as archive:
            archive.writestr(_member("metadata.json"), json.dumps({"keras_version": version("keras")}))
            archive.writestr(_member("config.json"), json.dumps(self._document))
            archive.writestr(_member(f"{METADATA}.json"), json.dumps(self._metadata, sort_keys=True))
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

    def __init__(self, descriptor: int, variables: Mapping[str, tuple[int, ...]], metadata: Mapping[str, str]) -> None:
        self._places = dataset_paths(variables)
        self._quiet = QuietFile(descriptor)
        with held_back():
            self._file = h5py.File(self._quiet, "w")
            if metadata:
                self._file.attrs[METADATA] = json.dumps(dict(metadata), sort_keys=True)

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        place = self._places[name]
        with held_back():
            dataset = self._file.create_dataset(place, data=array, track_times=False)
            dataset.parent.attrs["name"] = place.split("/")[-3]
        self._quiet.check()

    def finish(self) -> None:
        self.close()
        self._quiet.check()

    def close(self) -> None:
        with held_back():
            self._file.close()
            self._quiet.close()


def read_archive_document(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The config and our metadata of a ``.keras`` archive."""
    with zipfile.ZipFile(path) as archive:
        document = json.loads(archive.read("config.json"))
        ours = archive.read(f"{METADATA}.json") if f"{METADATA}.json" in archive.namelist() else b"{}"
        return document, json.loads(ours)


def read_weights_metadata(path: Path) -> dict[str, str]:
    """Our metadata of a ``.weights.h5`` file; raises ``KeyError`` if it has none."""
    with h5py.File(path) as file:
        found: dict[str, str] = json.loads(file.attrs[METADATA])
        return found


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
    return found.count(h5py.h5o.TYPE_DATASET)


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, _EPOCH)
