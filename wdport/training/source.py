"""Where training takes clean states from: an array of them, or the windows of a series, transformed on the device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.checkpoint.faults import Fault
from wdport.data.arrays import understood
from wdport.data.files import data_file
from wdport.data.npy import map_array, read_array
from wdport.data.series import Series, read_series
from wdport.data.statistics import Statistics
from wdport.errors import UsageError
from wdport.model import Array, Decoding, Diffused

SHARE: Final = 0.25
"""Of a device's memory: larger data are streamed."""


class Source(Protocol):
    """Clean states by number."""

    @property
    def held(self) -> Array:
        """The array that is kept on the device; an empty one if the data are streamed."""
        ...

    @property
    def data(self) -> Array:
        """All data, wherever they are."""
        ...

    @property
    def count(self) -> int:
        """How many states there are."""
        ...

    def feed(self, numbers: Array) -> Array:
        """What the device gets for a batch of states by number (B,): the numbers, or the data themselves."""
        ...

    def take(self, held: Tensor, fed: Tensor) -> Tensor:
        """The states (B, *shape) of what was fed, inside a compiled program."""
        ...


@dataclass(frozen=True, eq=False)
class States:
    """An array (n, *shape) of clean states."""

    held: Array

    @property
    def data(self) -> Array:
        return self.held

    @property
    def count(self) -> int:
        return len(self.held)

    def feed(self, numbers: Array) -> Array:
        return numbers

    def take(self, held: Tensor, fed: Tensor) -> Tensor:
        return held[fed]


@dataclass(frozen=True, eq=False)
class StreamedStates:
    """Clean states (n, *shape) in the host's memory or in a file, of which every batch is read when it is needed."""

    states: Array
    dtype: str

    @property
    def held(self) -> Array:
        return np.zeros(0, self.dtype)

    @property
    def data(self) -> Array:
        return self.states

    @property
    def count(self) -> int:
        return len(self.states)

    def feed(self, numbers: Array) -> Array:
        found = np.asarray(self.states[numbers], self.dtype)
        if not np.isfinite(found).all():
            raise UsageError("data", "have NaN or infinite values", "give finite ones")
        return found

    def take(self, held: Tensor, fed: Tensor) -> Tensor:
        return fed


@dataclass(frozen=True, eq=False)
class Windows:
    """All windows of a z-scored series (T, F), one a step; memory is that of the series."""

    held: Array
    decoding: Decoding

    @property
    def data(self) -> Array:
        return self.held

    @property
    def count(self) -> int:
        return len(self.held) - self.decoding.shape[0] + 1

    def feed(self, numbers: Array) -> Array:
        return numbers

    def take(self, held: Tensor, fed: Tensor) -> Tensor:
        rows = fed[:, None] + jnp.arange(self.decoding.shape[0])
        return self.decoding.encode(held[rows])


@dataclass(frozen=True, eq=False)
class StreamedWindows:
    """The same with the series in the host's memory; the device gets the windows of a batch, and transforms them."""

    series: Array
    decoding: Decoding

    @property
    def held(self) -> Array:
        return np.zeros(0, self.series.dtype)

    @property
    def data(self) -> Array:
        return self.series

    @property
    def count(self) -> int:
        return len(self.series) - self.decoding.shape[0] + 1

    def feed(self, numbers: Array) -> Array:
        found: Array = self.series[numbers[:, None] + np.arange(self.decoding.shape[0])]
        return found

    def take(self, held: Tensor, fed: Tensor) -> Tensor:
        return self.decoding.encode(fed)


def source_of(
    data: Array | Series | str | PathLike[str], about: Diffused, dtype: str, stream: bool | None = None
) -> Source:
    """Return the states of ``data`` for a model.

    Args:
        data: states (n, *shape), as an array of that rank; otherwise a series: an array (T, F), a
            :class:`~wdport.data.series.Series`, or a data file. A series is z-scored with the statistics that the model
            knows, or with its own.
        about: what the model's states are.
        dtype: dtype of the states.
        stream: read every batch when it is needed, instead of keeping the data on the device; by default if they take
            more than a quarter of its memory.

    Raises:
        UsageError: the data have other sizes than the model.
        InputError: the file cannot be read.
    """
    decoding = about.decoding
    if (
        not isinstance(decoding, Decoding)
        or len(decoding.shape) != 2
        or (isinstance(data, np.ndarray) and data.ndim > 2)
    ):
        return _states(data, about, dtype, stream)
    if isinstance(data, np.ndarray):
        series = Series.of(data)
    else:
        series = data if isinstance(data, Series) else read_series(data)
    length, features = decoding.shape
    where = Path(data) if isinstance(data, (str, PathLike)) else "data"
    if series.values.shape[1] != features:
        what = f"has {series.values.shape[1]} features, and the model {features}"
        raise UsageError(where, what, "give the columns that the model is for")
    if len(series.values) < length:
        raise UsageError(where, f"has {len(series.values)} steps, and a window has {length}", "give a longer series")
    known = any(decoding.mean) or any(each != 1.0 for each in decoding.std)
    statistics = Statistics(decoding.mean, decoding.std) if known else Statistics.of(series.values)
    values = statistics.normalize(series.values).astype(dtype)
    return (StreamedWindows if _streams(values.nbytes, stream) else Windows)(values, decoding)


def _streams(size: int, stream: bool | None) -> bool:
    """Whether data of so many bytes are streamed."""
    if stream is not None:
        return stream
    told = jax.local_devices()[0].memory_stats()  # None for a CPU
    memory = told.get("bytes_limit") if told else None
    if memory is None and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return memory is not None and size > memory * SHARE


def _states(data: object, about: Diffused, dtype: str, stream: bool | None) -> Source:
    fix = f"give an array of {about.state.name} (n, {', '.join(map(str, about.shape))})"
    if isinstance(data, (str, PathLike)):
        with data_file(data) as file, open(file, "rb") as opened, understood(".npy"):
            if file.suffix != ".npy":
                raise Fault("is not an .npy file, and this model has no series", fix)
            size = file.stat().st_size
            data = (map_array if _streams(size, stream) else read_array)(opened, size)
    if not isinstance(data, np.ndarray):
        raise UsageError("data", f"is a {type(data).__name__}, and this model has no series", fix)
    if data.shape[1:] != about.shape or not len(data):
        raise UsageError("data", f"have shape {data.shape}", fix)
    if _streams(data.size * np.dtype(dtype).itemsize, stream):
        return StreamedStates(data, dtype)
    if not np.isfinite(data).all():
        raise UsageError("data", "have NaN or infinite values", "give finite ones")
    return States(np.asarray(data, dtype))
