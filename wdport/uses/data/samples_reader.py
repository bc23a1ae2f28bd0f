"""Read series (n, N, F) from a file of samples, as `wdport sample` or another program wrote it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import open_regular
from wdport.files.samples_writer import FEATURES
from wdport.models.interface import Array
from wdport.uses.data.arrays import npy_array, opened_npz, understood
from wdport.uses.data.numpy_files import map_array
from wdport.uses.data.table import checked_names, data_file
from wdport.uses.data.text_tables import read_text

SERIES: Final = "series"
"""The array of an archive with several ones."""

SAMPLE: Final = "sample"
"""The first column of a table: the number of the sample."""

_FIX: Final = "give series (n, length, features)"


@dataclass(frozen=True, eq=False)
class SeriesSet:
    """Series ``values`` (n, N, F) with the names of their ``features``, empty if they have none; ``where`` is the file
    or the argument that they come from, for messages."""

    values: Array
    features: tuple[str, ...] = ()
    where: str | Path = "samples"

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, F)."""
        _, length, features = self.values.shape
        return length, features


def read_samples(path: str | PathLike[str]) -> SeriesSet:
    """Read series (n, N, F), float64; a table and an archive of ours have names of the features.

    Args:
        path: ``.npy``; ``.npz`` with one array, or with one named ``series``; or ``.csv`` with a column ``sample``, a
            column for the step, and one for every feature, as ``wdport sample`` writes them.

    Raises :class:`InputError` for another or a damaged file, also for one with NaN.
    """
    with data_file(path) as file:
        suffix = file.suffix.lower()
        if suffix not in _READERS:
            raise Fault(f"is of an unknown kind ({suffix or 'no suffix'})", f"give one of {', '.join(_READERS)}")
        array, names = _READERS[suffix](file)
        if array.ndim != 3 or 0 in array.shape:
            raise Fault(f"has shape {array.shape}", _FIX)
        values = np.asarray(array, np.float64)
        if not np.isfinite(values).all():
            count = int((~np.isfinite(values)).any((1, 2)).sum())
            raise Fault(f"has NaN or infinite values in {count} of {len(values)} series", "leave these series out")
    return SeriesSet(values, names, Path(path))


def has_windows(path: str | PathLike[str]) -> bool:
    """Whether a file is an ``.npy`` file of an array with three axes; its values are not read."""
    if Path(path).suffix.lower() != ".npy":
        return False
    with data_file(path) as file, open_regular(file) as opened, understood(".npy"):
        return map_array(opened, os.fstat(opened.fileno()).st_size).ndim == 3


Found = tuple[Array, tuple[str, ...]]
"""The array of a file, and the names of the features, if it has them."""


def _npz(path: Path) -> Found:
    with opened_npz(path) as archive:
        names = archive.files
        if len(names) != 1 and SERIES not in names:
            raise Fault(f"has {len(names)} arrays, none of them named {SERIES}", f"save the series as {SERIES}")
        array = archive[SERIES if SERIES in names else names[0]]
        if SERIES not in names or FEATURES not in names:
            return array, ()
        try:
            texts = archive.texts(FEATURES)
            return array, checked_names(texts, array.shape[-1] if array.ndim else 0) if texts else ()
        except ValueError as error:
            raise Fault(str(error), "name every feature once", FEATURES) from None


def _csv(path: Path) -> Found:
    table = read_text(path, None)
    if len(table.names) < 3 or table.names[0] != SAMPLE:
        raise Fault(f"has no first column named {SAMPLE}", "give a file of wdport sample, or an .npy file")
    values = table.load(range(len(table.names)))
    numbers = values[:, 0]
    count = int((numbers == numbers[0]).sum())
    # The number of a sample is constant over its rows, and all have as many rows as the first.
    if len(numbers) % count or not np.array_equal(numbers.reshape(-1, count), numbers[::count, None].repeat(count, 1)):
        raise Fault("has samples of different lengths", "give as many rows for every sample")
    names = tuple(table.names[2:])
    if names == tuple(f"feature_{number}" for number in range(1, len(names) + 1)):  # of a model without names
        names = ()
    return values[:, 2:].reshape(-1, count, values.shape[1] - 2), names


_READERS: Final[Mapping[str, Callable[[Path], Found]]] = {
    ".npy": lambda path: (npy_array(path), ()), ".npz": _npz, ".csv": _csv,
}  # fmt: skip
