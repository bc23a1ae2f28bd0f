"""Read the arrays of a ``.keras`` or ``.weights.h5`` file, one at a time, and the JSON members of a ``.keras`` file.

Anything that Keras does not write is a :class:`~wdport.checkpoint.faults.Fault`;
:func:`~wdport.checkpoint.error_context.located` adds the path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from wdport.checkpoint.faults import COPY_AGAIN, SAVE_WITH_KERAS, Fault
from wdport.checkpoint.source import Source, Span
from wdport.checkpoint.strict_json import require_shallow, strict_json
from wdport.checkpoint.zip_archive import read_flat_members
from wdport.files.hdf5.structure import Hdf5Contents, read_hdf5
from wdport.files.manifest_seal import MANIFEST
from wdport.limits import MAX_CONFIG_BYTES, MAX_KEPT_BYTES, MAX_MANIFEST_BYTES
from wdport.model import Array

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
        require_shallow(strict_json(raw, CONFIG), CONFIG)
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
