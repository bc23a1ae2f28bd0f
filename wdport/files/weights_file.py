"""Read the arrays of a ``.keras`` or ``.weights.h5`` file, one at a time.

Anything that Keras does not write is a :class:`~wdport.checkpoint.faults.Fault`;
:func:`~wdport.checkpoint.located.located` adds the path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from wdport.checkpoint.faults import COPY_AGAIN, Fault
from wdport.checkpoint.source import Source, Span
from wdport.files.hdf5 import Contents, read_hdf5
from wdport.files.keras_archive import KerasArchive, check_crc
from wdport.files.manifests import MANIFEST
from wdport.model import Array


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
        check_crc(span)
        self._span = span
        self.contents: Contents = read_hdf5(self._read, span.nbytes)

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

    def _read(self, offset: int, count: int) -> bytes:
        buffer = bytearray(count)
        self._span.read_into(memoryview(buffer), offset)
        return bytes(buffer)


@contextmanager
def open_weights(path: Path) -> Iterator[WeightsFile]:
    """Open the HDF5 file ``path``, or the one in the archive ``path``."""
    with closing(Source(path)) as source:
        if path.name.endswith(".h5"):
            yield WeightsFile(Span(source, 0, source.size, None, path.name))
        else:
            yield WeightsFile(KerasArchive(source).weights())
