"""Where training takes clean states from, an array of them or the windows of a series, transformed on the device."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.base.errors import InputError, UsageError
from wdport.checkpoint.faults import Fault
from wdport.models.interface import Array, Condition, Decoding, Diffused, Windowed
from wdport.uses.data.arrays import opened_npz, understood
from wdport.uses.data.images import read_images
from wdport.uses.data.numpy_files import WITH_BOOLEANS, map_array, read_array
from wdport.uses.data.samples_reader import has_windows
from wdport.uses.data.series import Series, series_of
from wdport.uses.data.statistics import Statistics
from wdport.uses.data.table import data_file
from wdport.uses.data.transforms import LOG_VOLUME, OHLC_ATR, ZSCORE, windows_of

Data = Array | Series | str | PathLike[str] | Sequence[Array] | Mapping[str, Array]
"""What a model is trained on: see :func:`wdport.train`."""

SHARE: Final = 0.25
"""Share of a device's memory; larger data are streamed."""

FIRST: Final = 64
"""Samples in which pixel values are looked for."""

BRIGHT: Final = 16.0
"""Whole numbers from 0 to more than this are taken for pixel values."""

MOST_INTEGER: Final = 2**31 - 1
"""The largest integer on the device."""

_BLOCK: Final = 1 << 20
"""Values of streamed data that are read at a time to describe them."""


@dataclass(frozen=True, eq=False)
class StateSource:
    """Clean states by number: the rows of ``data`` (n, *shape) or, with a ``length``, all windows of a series (T, F),
    one a step, of which memory has the series alone.

    ``decoding`` encodes windows (N, F) in standard units as states; without one, the data are states. ``streamed`` data
    are in the host's memory or in a file, and every batch is read when it is needed. ``dtype`` is that of the device,
    ``condition`` (count, ...) that of every state; None if the network is trained without one. ``others`` are further
    inputs (count, ...) of a network of several, and ``keys`` the names of all if it takes them as a dictionary.
    ``where`` is the file of the data, if they are from one.
    """

    data: Array
    dtype: str
    decoding: Decoding | None = None
    length: int = 0
    streamed: bool = False
    condition: Array | None = None
    where: str | Path = "data"
    others: tuple[Array, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def held(self) -> Array:
        """The array that is kept on the device; an empty one if the data are streamed."""
        return np.zeros(0, self.dtype) if self.streamed else self.data

    @property
    def overlap(self) -> int:
        """How many of the states before one share data with it."""
        return max(self.length - 1, 0)

    @property
    def count(self) -> int:
        return len(self.data) - self.overlap

    def feed(self, numbers: Array) -> Array:
        """What the device gets for a batch of states by number (B,): the numbers, or the data themselves."""
        if not self.streamed:
            return numbers
        rows = numbers[:, None] + np.arange(self.length) if self.length else numbers
        values = np.asarray(self.data[rows], self.dtype)
        require_finite(values, self.where, numbers)
        return values

    @cached_property
    def hashed(self) -> Any:
        """The SHA-256 of the data as the device gets them, whether they are streamed or not.

        Raises :class:`WdportError` for streamed data that are not finite.
        """
        digest = sha256(f"{np.dtype(self.dtype)} {self.data.shape}".encode())
        rows = max(_BLOCK // max(self.data[:1].size, 1), 1)
        for first in range(0, len(self.data), rows):
            values = np.asarray(self.data[first : first + rows], self.dtype)
            if self.streamed:
                require_finite(values, self.where, range(first, first + rows))
            add_values(digest, values)
        return digest

    def structure(self, arrays: Sequence[Any]) -> Any:
        """The inputs of the network as it takes them: the only one, several, or a dictionary."""
        if self.keys:
            return dict(zip(self.keys, arrays, strict=True))
        return tuple(arrays) if len(arrays) > 1 else arrays[0]

    def take(self, held: Tensor, fed: Tensor) -> Tensor:
        """The states (B, *shape) of what was fed, inside a compiled program."""
        values = fed
        if not self.streamed:
            # Windows are cut on the device: they overlap, and all of them would take N times the memory of the series.
            values = held[fed[:, None] + jnp.arange(self.length) if self.length else fed]
        return values if self.decoding is None else self.decoding.encode(values)


def add_values(digest: Any, array: Array) -> None:
    """Add the bytes of an array to a hash."""
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def source_of(
    data: Data,
    about: Diffused,
    dtype: str,
    stream: bool | None = None,
    condition: Array | None = None,
    transform: str | None = None,
) -> StateSource:
    """Return the states of ``data`` for a model.

    Args:
        data: states (n, *shape) or windows (n, N, F) in the units of the data, as an array of that rank or an ``.npy``
            file; a folder of images, for a model of images; otherwise a series: an array (T, F), a
            :class:`~wdport.uses.data.series.Series`, or a data file. Series and windows are z-scored with the
            statistics that the model knows, or with their own.
        about: what the model's states are.
        dtype: dtype of the states.
        stream: read every batch when it is needed, instead of keeping the data on the device; by default if they take
            more than a quarter of its memory.
        condition: the condition (n, ...) of every state; that of windows of prices follows from a series.
        transform: the user's own transform, if that is the model's.

    Raises:
        UsageError: the data have other sizes than the model, or a condition is missing.
        InputError: the file cannot be read, or has values that are not finite.
    """
    source, data_condition = _source(data, about, dtype, stream, transform)
    values = _condition(about.condition, data_condition if condition is None else condition, source.count, dtype)
    return source if values is None else replace(source, condition=values)


def _source(
    data: Data, about: Diffused, dtype: str, stream: bool | None, transform: str | None
) -> tuple[StateSource, Array | None]:
    """The states, and their condition if it follows from the data."""
    decoding = about.decoding
    series = isinstance(decoding, Decoding) and len(decoding.shape) == 2
    where = Path(data) if isinstance(data, (str, PathLike)) else "data"
    if isinstance(data, (str, PathLike)) and not series and Path(data).is_dir():
        return _images(Path(data), about, dtype, stream)
    if isinstance(data, (str, PathLike)) and Path(data).suffix == ".npy" and (not series or has_windows(data)):
        data = _arrays(data, stream)
    if not isinstance(decoding, Decoding) or not series:
        return _states(data, about, dtype, stream, where), None
    if isinstance(data, np.ndarray) and data.ndim > 2:
        # An array of states and one of windows can have the same shape; it is then taken for windows.
        if data.shape[1:] == about.shape and about.shape != decoding.shape:
            return _states(data, about, dtype, stream, where), None
        return _windows(data, decoding, about.windowed, dtype, stream, where), None
    if isinstance(data, Mapping):
        raise UsageError("data", f"is a {type(data).__name__}", "give a file, an array or a Series")
    data_series = series_of(data)
    _require_own(transform, about.windowed, decoding)
    if about.windowed is not None:
        return _transformed(data_series, about, decoding, dtype, stream, transform)
    length, features = decoding.shape
    data_series = data_series.fitted(about.features, features, where)
    if len(data_series.values) < length:
        raise UsageError(
            where, f"has {len(data_series.values)} steps, and a window has {length}", "give a longer series"
        )
    values = _standard(data_series.values, decoding).astype(dtype)
    return StateSource(values, dtype, decoding, length, _streams(values.nbytes, stream)), None


def _standard(values: Array, decoding: Decoding) -> Array:
    """Values (..., F) in the units of the data as z-scores, with their own statistics if the model knows none."""
    # A model without statistics has the mean 0 and the deviation 1 here.
    has_statistics = any(decoding.mean) or any(deviation != 1.0 for deviation in decoding.std)
    if has_statistics or decoding.curve is not None:
        return decoding.standard(values)
    statistics = Statistics.of(values.reshape(-1, values.shape[-1]))
    return statistics.normalize(values)


def _windows(
    data: Array, decoding: Decoding, windowed: Windowed | None, dtype: str, stream: bool | None, where: str | Path
) -> StateSource:
    """Windows (n, N, F) in the units of the data; of a transform with statistics of every window, in its units."""
    has = _has(where)
    if data.shape[1:] != decoding.shape or not len(data):
        expected = ", ".join(map(str, ("n", *decoding.shape)))
        raise UsageError(where, f"{has} shape {data.shape}", f"give windows ({expected}) or a series")
    if data.dtype.kind not in "fiu":
        raise UsageError(where, f"{has} the dtype {data.dtype}", "give numbers")
    require_finite(data, where)
    values = data if windowed is not None else _standard(np.asarray(data, np.float64), decoding).astype(dtype)
    return _rows_of(values, dtype, stream, decoding, where)


def _has(where: str | Path) -> str:
    """The verb for a file, or for the data."""
    return "has" if isinstance(where, Path) else "have"


def require_finite(data: Array, where: str | Path = "data", numbers: Sequence[int] | Array | None = None) -> None:
    """Raise an error that names the first sample with another value, by its place or in ``numbers``:
    :class:`InputError` if ``where`` is a file, :class:`UsageError` for an argument."""
    finite = np.isfinite(np.atleast_1d(data))
    if not finite.all():
        place = int(np.unravel_index(finite.argmin(), finite.shape)[0])
        what = f"NaN or infinite values, first in sample {place if numbers is None else numbers[place]}, counted from 0"
        raise (InputError if isinstance(where, Path) else UsageError)(
            where, f"{_has(where)} {what}", "give finite ones"
        )


def _require_own(transform: str | None, windowed: Windowed | None, decoding: Decoding) -> None:
    """Raise :class:`UsageError` for another transform than the model's."""
    model_transform = (LOG_VOLUME if decoding.curve else ZSCORE) if windowed is None else windowed.transform
    if transform not in (None, model_transform):
        raise UsageError("--transform", f"the model's is {model_transform}", "give this one, or leave it out")


def _transformed(
    series: Series, about: Diffused, decoding: Decoding, dtype: str, stream: bool | None, transform: str | None
) -> tuple[StateSource, Array | None]:
    """The windows of a series by the model's own transform, and the condition that their statistics give."""
    windowed = about.windowed
    assert windowed is not None
    if windowed.transform != OHLC_ATR and transform != windowed.transform:
        what = f"windows of this model are made by {windowed.transform}, whose code is not run because a file names it"
        raise UsageError("--transform", what, f"give `--transform {windowed.transform}`")
    windows, statistics = windows_of(windowed.transform, decoding.shape[0], series)
    if windows.shape[1:] != decoding.shape:
        raise UsageError("data", f"gives windows {windows.shape[1:]}, the model has {decoding.shape}", "give its data")
    name = None if about.condition is None else about.condition.statistic
    return _rows_of(windows.astype(dtype), dtype, stream, decoding), statistics.arrays.get(name) if name else None


def _condition(declared: Condition | None, values: Array | None, count: int, dtype: str) -> Array | None:
    """The condition (count, ...) for a network that takes one; raises :class:`UsageError` if it is missing or wrong."""
    if declared is None or not declared.taken:
        if values is not None and declared is None:
            raise UsageError("condition", "the model takes none", "leave it out")
        return None
    if values is None:
        fix = f"give the {declared.name} of every state, or the data and their transform"
        raise UsageError("condition", f"the model takes a condition with every state: {declared.name}", fix)
    array = np.asarray(values)
    if array.shape != (count, *declared.shape):
        what = f"has shape {array.shape}, and there are {count} states"
        raise UsageError("condition", what, f"give {(count, *declared.shape)}")
    if declared.classes is not None:
        if array.dtype.kind not in "iu":
            raise UsageError("condition", f"has the dtype {array.dtype}", "give labels, whole numbers")
        if array.min() < 0 or array.max() >= declared.classes:
            raise UsageError("condition", "has other labels than the model", f"give 0 to {declared.classes - 1}")
        return array.astype(np.int32)
    if (
        array.dtype.kind not in "fiu"
        or not np.isfinite(array).all()
        or (declared.kind == "positive" and array.min() <= 0)
    ):
        raise UsageError("condition", f"has invalid values of {declared.name}", f"give {declared.kind} finite numbers")
    return array.astype(dtype)


def _streams(size: int, stream: bool | None) -> bool:
    if stream is not None:
        return stream
    statistics = jax.local_devices()[0].memory_stats()  # None for a CPU
    memory = statistics.get("bytes_limit") if statistics else None
    if memory is None and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return memory is not None and size > memory * SHARE


def _arrays(path: str | PathLike[str], stream: bool | None) -> Array:
    """The array of an ``.npy`` file, mapped if it is streamed."""
    with data_file(path) as file, open(file, "rb") as opened, understood(".npy"):
        size = file.stat().st_size
        array: Array = (map_array if _streams(size, stream) else read_array)(opened, size, WITH_BOOLEANS)
        return array


def arrays_of(
    data: object, dtype: str, stream: bool | None, targets: Array | None, names: Mapping[str, bool]
) -> StateSource:
    """Samples with their ``targets``: an array (n, ...) or an ``.npy`` file; for a network of several inputs, a list of
    arrays, or a dictionary or an ``.npz`` file of them by name. Whole numbers stay so.

    ``names`` are those of the network's inputs, and whether it needs them; if empty, those of the data are.

    Raises :class:`UsageError` for other data, and :class:`InputError` for a file that cannot be read or is not finite.
    """
    several = f"arrays (n, ...) of {', '.join(names)}, or an .npz file of them"
    fix = f"give {several if len(names) > 1 else 'an array (n, ...) or an .npy file'}"
    where, keys = Path(data) if isinstance(data, (str, PathLike)) else "data", tuple[str, ...]()
    if isinstance(where, Path):
        if where.suffix != ".npy" and (where.suffix != ".npz" or len(names) == 1):
            raise UsageError(where, f"is not an {'.npy' if len(names) == 1 else '.npz'} file", fix)
        data = _arrays(where, stream) if where.suffix == ".npy" else _members(where)
    if isinstance(data, Mapping):
        if not names:  # in one order, so that a run is resumed whatever that of the data is
            keys = tuple(sorted(data))
            names = dict.fromkeys(keys, True)
        first = list(names)[: len(data)]  # only inputs at the end can be left out
        if wrong := sorted(set(data) - set(names)) or [name for name in first if name not in data]:
            what = "is missing" if wrong[0] in names else "is not an input of the model"
            raise UsageError((where, wrong[0]), what, fix)
        data = [data[name] for name in names if name in data]
    inputs: list[Any] = list(data) if isinstance(data, (list, tuple)) else [data]
    if names and not sum(names.values()) <= len(inputs) <= len(names):
        raise UsageError(where, f"{_has(where)} {len(inputs)} of {len(names)} inputs of the model", fix)
    labels: list[Any] = [("data", name) for name in names] if len(inputs) > 1 and names else ["data"] * len(inputs)
    arrays = [*zip(labels, inputs, strict=False), *([] if targets is None else [("targets", targets)])]
    for name, array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or not array.ndim:
            raise UsageError(name, "are not an array of numbers", fix)
        if not len(array):
            raise UsageError(name, f"are empty, of shape {array.shape}", fix)
        if len(array) != len(inputs[0]):
            raise UsageError(name, f"are {len(array)}, and there are {len(inputs[0])} samples", "give one for each")
        if array.dtype.kind in "iu" and max(abs(int(array.min())), abs(int(array.max()))) > MOST_INTEGER:
            raise UsageError(name, "have whole numbers of more than 32 bits", "give smaller ones")

    dtypes = [{"f": dtype, "b": "bool"}.get(array.dtype.kind, "int32") for array in inputs]
    source = _rows_of(inputs[0], dtypes[0], stream, where=where)
    for array in inputs[1:]:
        require_finite(array, where)
    if targets is not None:
        require_finite(targets, "targets")
        targets = targets.astype(dtype if targets.dtype.kind == "f" else np.int32)
    others = (array.astype(kind) for array, kind in zip(inputs[1:], dtypes[1:], strict=True))
    return replace(source, condition=targets, others=tuple(others), keys=keys)


def _members(path: Path) -> dict[str, Array]:
    with data_file(path) as file, opened_npz(file) as arrays:
        return {name: arrays.read(name, WITH_BOOLEANS) for name in arrays.files}


def _images(folder: Path, about: Diffused, dtype: str, stream: bool | None) -> tuple[StateSource, Array | None]:
    """The states of a folder of images, and the labels if the network takes some."""
    if not isinstance(about.decoding, Decoding) or len(about.decoding.shape) != 3:
        raise UsageError(folder, "is a folder, and states of this model are no images", "give an .npy file")
    pixels, labels = read_images(folder, about.decoding.shape)
    null = None if about.condition is None else about.condition.null
    if labels is not None and null is not None and int(null) in labels:
        what = f"has {labels.max() + 1} folders of classes, and the label {int(null)} means no class"
        raise UsageError(folder, what, "give fewer classes, or a model with more labels")
    states = np.asarray(about.decoding.encode(about.decoding.standard(pixels / 255.0)))
    return _rows_of(states, dtype, stream), labels if about.condition is not None else None


def _states(data: object, about: Diffused, dtype: str, stream: bool | None, where: str | Path) -> StateSource:
    fix = f"give an array of {about.state.name} (n, {', '.join(map(str, about.shape))})"
    if isinstance(data, (str, PathLike)):
        with data_file(data):
            raise Fault("is not an .npy file, and this model has no series", fix)
    if not isinstance(data, np.ndarray):
        raise UsageError("data", f"is a {type(data).__name__}, and this model has no series", fix)
    if data.shape[1:] != about.shape or not len(data):
        raise UsageError(where, f"{_has(where)} shape {data.shape}", fix)
    first = np.asarray(data[:FIRST])  # all would have to be read from a file
    pixels = len(about.shape) == 3 and BRIGHT < first.max() < np.inf and np.all(first == np.abs(np.rint(first)))
    if data.dtype.kind in "iub" or pixels:
        what = f"{_has(where)} whole numbers up to {first.max():.0f}, as pixels are"
        raise UsageError(where, what, "give floating-point states, those of images from -1 to 1, or a folder")
    return _rows_of(data, dtype, stream, where=where)


def _rows_of(
    data: Array, dtype: str, stream: bool | None, decoding: Decoding | None = None, where: str | Path = "data"
) -> StateSource:
    """States or windows that are the rows of an array; those that are streamed are examined when they are read."""
    if _streams(data.size * np.dtype(dtype).itemsize, stream):
        return StateSource(data, dtype, decoding, streamed=True, where=where)
    require_finite(data, where)
    return StateSource(np.asarray(data, dtype), dtype, decoding, where=where)
