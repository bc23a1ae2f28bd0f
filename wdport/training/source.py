"""Where training takes clean states from: an array of them, or the windows of a series, transformed on the device."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.checkpoint.faults import Fault
from wdport.data.files import data_file
from wdport.data.npy import read_array
from wdport.data.series import Series, read_series
from wdport.data.statistics import Statistics
from wdport.errors import UsageError
from wdport.model import Array, Decoding, Diffused


class Source(Protocol):
    """Clean states by number."""

    @property
    def held(self) -> Array:
        """The array that is kept on the device."""
        ...

    @property
    def count(self) -> int:
        """How many states there are."""
        ...

    def take(self, held: Tensor, numbers: Tensor) -> Tensor:
        """The states (B, *shape) of these numbers (B,), inside a compiled program."""
        ...


@dataclass(frozen=True, eq=False)
class States:
    """An array (n, *shape) of clean states."""

    held: Array

    @property
    def count(self) -> int:
        return len(self.held)

    def take(self, held: Tensor, numbers: Tensor) -> Tensor:
        return held[numbers]


@dataclass(frozen=True, eq=False)
class Windows:
    """All windows of a z-scored series (T, F), one a step; memory is that of the series."""

    held: Array
    decoding: Decoding

    @property
    def count(self) -> int:
        return len(self.held) - self.decoding.shape[0] + 1

    def take(self, held: Tensor, numbers: Tensor) -> Tensor:
        rows = numbers[:, None] + jnp.arange(self.decoding.shape[0])
        return self.decoding.encode(held[rows])


def source_of(data: Array | Series | str | PathLike[str], about: Diffused, dtype: str) -> Source:
    """Return the states of ``data`` for a model.

    Args:
        data: states (n, *shape), as an array of that rank; otherwise a series: an array (T, F), a
            :class:`~wdport.data.series.Series`, or a data file. A series is z-scored with the statistics that the model
            knows, or with its own.
        about: what the model's states are.
        dtype: dtype of the states.

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
        return _states(data, about, dtype)
    if isinstance(data, np.ndarray):
        series = Series.of(data)
    else:
        series = data if isinstance(data, Series) else read_series(data)
    length, features = decoding.shape
    if series.values.shape[1] != features:
        what = f"have {series.values.shape[1]} features, and the model {features}"
        raise UsageError("data", what, "choose columns with wdport.data.read_series")
    if len(series.values) < length:
        raise UsageError("data", f"have {len(series.values)} steps, and a window has {length}", "give a longer series")
    known = any(decoding.mean) or any(each != 1.0 for each in decoding.std)
    statistics = Statistics(decoding.mean, decoding.std) if known else Statistics.of(series.values)
    return Windows(statistics.normalize(series.values).astype(dtype), decoding)


def _states(data: object, about: Diffused, dtype: str) -> States:
    fix = f"give an array of {about.state.name} (n, {', '.join(map(str, about.shape))})"
    if isinstance(data, (str, PathLike)):
        with data_file(data) as file, open(file, "rb") as opened:
            if file.suffix != ".npy":
                raise Fault("is not an .npy file, and this model has no series", fix)
            data = read_array(opened, file.stat().st_size)
    if not isinstance(data, np.ndarray):
        raise UsageError("data", f"is a {type(data).__name__}, and this model has no series", fix)
    if data.shape[1:] != about.shape or not len(data):
        raise UsageError("data", f"have shape {data.shape}", fix)
    if not np.isfinite(data).all():
        raise UsageError("data", "have NaN or infinite values", "give finite ones")
    return States(np.asarray(data, dtype))
