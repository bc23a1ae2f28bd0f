"""Write ``.weights.h5`` and ``.keras`` files in Keras 3's layout without building the model.

Keras stores a layer's variables under the attribute path of the layer, numbered in the order of
creation: ``level_0/input_proj/vars/0``. A structural variable path is an attribute path too, so the
list of paths is all that is needed; a test compares with what `model.save` writes. Keras's writer would need its
import and a second copy of the weights, and destroys an older file on a full disk.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from wdport.files.defer_signals import deferred_signals
from wdport.files.keras_reader import ASSETS, CONFIG, METADATA, WEIGHTS, dataset_paths
from wdport.files.manifest_seal import MANIFEST
from wdport.files.quiet_file import QuietFile, quiet_hdf5
from wdport.platforms import CLOEXEC

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
