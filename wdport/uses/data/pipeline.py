"""Compute the coefficients (n, C, F) of the z-scored windows of a data file, and write them block by block.

The blocks are written, not mapped: on a full disk a mapped page kills the process with SIGBUS.

The transform is an argument: any object with ``length``, ``coefficients`` and ``decompose``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from wdport.base.errors import InternalError, UsageError
from wdport.base.options import PathText
from wdport.files.atomic import machine_error, whole_file
from wdport.files.outputs import OutputPath, writable
from wdport.models.interface import Array
from wdport.uses.data.series import Series, read_series, sliding_windows
from wdport.uses.data.statistics import Statistics


def array_output(output: Path, source: Path | None) -> OutputPath:
    """Return the file as an output; raises :class:`UsageError` if the array may not be written to this path."""
    if output.suffix != ".npy":
        raise UsageError(output, "is not the name of an array file", "give a file name that ends in .npy")
    return writable(output, {"source": source} if source else None, option=None)


def write_npy(output: OutputPath, shape: tuple[int, ...], dtype: DTypeLike, blocks: Iterable[Array]) -> Array:
    """Write ``blocks``, consecutive along the first axis, as one array of ``shape`` and map it.

    The file is written completely or not at all (:func:`wdport.files.atomic.replacing`). Raises :class:`MachineError`
    if writing fails.
    """
    with whole_file(output) as file:
        descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        written = 0
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)
            written += len(block)
        if written != shape[0]:
            raise InternalError(output.path, f"{written} of {shape[0]} windows were written", "report this")
    try:
        mapped: Array = np.load(output.path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise machine_error(output.path, error) from error
    return mapped


class Transform(Protocol):
    """The interface of a linear transform of windows."""

    @property
    def length(self) -> int:
        """N, samples per window."""

    @property
    def coefficients(self) -> int:
        """C, coefficients per window and feature."""

    def decompose(self, x: Array, /) -> ArrayLike:
        """Transform windows (b, N, F) to coefficients (b, C, F)."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Coefficients (n, C, F), read-only, with their statistics and the features' names.

    ``statistics`` is None if the series was not normalized. ``dropped`` names the file's columns without numbers. Two
    datasets are equal only if they are the same object.
    """

    coefficients: Array
    statistics: Statistics | None
    names: tuple[str, ...]
    dropped: tuple[str, ...] = ()


def transform_dataset(
    source: PathText | Series | Array,
    transform: Transform,
    *,
    columns: Sequence[str] | None = None,
    key: str | None = None,
    normalize: bool | Statistics = True,
    stride: int = 1,
    dtype: DTypeLike = "float32",
    memory: int | None = None,
    output: PathText | None = None,
) -> Dataset:
    """Read a series, z-score it, divide it into windows and transform them.

    Args:
        source: a data file (see :func:`wdport.uses.data.read_series`), a series or an array (T, F).
        transform: maps windows of ``transform.length`` steps to ``transform.coefficients`` coefficients.
        columns: names of the features, in the desired order; all by default.
        key: name of the array in a ``.npz`` or ``.mat`` file with several arrays.
        normalize: z-score with the series' own statistics (True), with given ones, or not at all (False).
        stride: steps from one window to the next.
        dtype: dtype of the transform's input and of the coefficients, float32 or float64. All steps before the
            transform use float64.
        memory: bytes that the coefficients may take. If they need more, they are computed in chunks of windows, where
            input and coefficients of a chunk together take at most this, and ``output`` is required. The memory of the
            series and of the transform itself is not included.
        output: an ``.npy`` file for the coefficients, replaced if it exists; the result is memory-mapped from it.
            The file gets its name only when it is complete, and no temporary file is ever left behind.

    Returns:
        A :class:`Dataset`: the coefficients, the statistics and the names of the features.

    All chunks have the same shape, so a jitted transform is compiled once. The result equals that of a single call
    bit for bit if the transform's result for a window does not depend on the batch. The result of a matrix product may
    depend on it (by a relative difference of 1e-6).

    Raises:
        InputError: the file cannot be read; see :func:`wdport.uses.data.read_series`.
        UsageError: an argument is invalid, or the transform returns a different shape or a less precise dtype.
        MachineError: reading or writing fails.
    """
    kind = _dtype(dtype)
    path = Path(source) if isinstance(source, str | PathLike) else None
    target = None if output is None else array_output(Path(output), path)
    series = _series(source, columns, key)
    statistics = normalize if isinstance(normalize, Statistics) else Statistics.of(series.values) if normalize else None
    values = series.values if statistics is None else statistics.normalize(series.values)
    windows = sliding_windows(_cast(values, kind), transform.length, stride)
    shape = (len(windows), transform.coefficients, windows.shape[2])
    chunk = _chunk(windows, shape, memory)
    if chunk < shape[0] and target is None:
        what = f"of {memory} bytes is less than the coefficients need ({prod(shape) * kind.itemsize})"
        raise UsageError("memory", what, "name an .npy file with output")
    blocks = _blocks(windows, transform, shape, chunk)
    if target is not None:
        coefficients = write_npy(target, shape, kind, blocks)
    else:
        # Read-only, as the memory-mapped result is.
        coefficients = next(blocks).view()
        coefficients.flags.writeable = False
    return Dataset(coefficients, statistics, series.names, series.dropped)


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind not in (np.float32, np.float64):
        raise UsageError("dtype", f"unsupported dtype {dtype}", "use float32 or float64")
    return kind


def _series(source: PathText | Series | Array, columns: Sequence[str] | None, key: str | None) -> Series:
    if isinstance(source, str | PathLike):
        return read_series(source, columns=columns, key=key)
    if key is not None:
        raise UsageError(("key", key), "requires a file", "leave it out")
    series = source if isinstance(source, Series) else Series.of(source)
    return series if columns is None else series.choose(columns)


def _cast(values: Array, kind: np.dtype[Any]) -> Array:
    # NumPy warns of an overflow, which is refused with an error below.
    with np.errstate(over="ignore"):
        cast = values.astype(kind)
    if not np.isfinite(cast).all():
        what = f"{kind} cannot hold values of up to {np.abs(values).max():.3g}"
        raise UsageError("dtype", what, "normalize them, or use float64")
    return cast


def _chunk(windows: Array, shape: tuple[int, ...], memory: int | None) -> int:
    """Return how many windows to transform at once: all of them if the coefficients fit into ``memory``."""
    count, coefficients, features = shape
    if memory is None or prod(shape) * windows.itemsize <= memory:
        return count
    one = (int(windows.shape[1]) + coefficients) * features * int(windows.itemsize)
    if memory < one:
        raise UsageError("memory", f"of {memory} bytes cannot hold one window", f"give at least {one}")
    return memory // one


def _blocks(windows: Array, transform: Transform, shape: tuple[int, ...], chunk: int) -> Iterator[Array]:
    """Yield the coefficients, up to ``chunk`` windows at a time; all chunks have the same length."""
    for start in range(0, shape[0], chunk):
        stop = min(start + chunk, shape[0])
        # The last chunk begins earlier, so that all have one shape; what it repeats is cut off below.
        block = np.asarray(transform.decompose(np.ascontiguousarray(windows[stop - chunk : stop])))
        if block.shape != (chunk, *shape[1:]):
            what = f"returns shape {block.shape}, expected {(chunk, *shape[1:])}"
            raise UsageError("transform", what, "check its coefficients and decompose")
        if block.dtype.kind != "f" or block.dtype.itemsize < windows.itemsize:
            fix = f"let it compute in {windows.dtype} (JAX: x64), or choose a less precise dtype"
            raise UsageError("transform", f"computes in {block.dtype}, expected {windows.dtype}", fix)
        yield block[start - stop :].astype(windows.dtype, copy=False)
