"""Samples block by block in, one finished file out: `.npz`, `.npy`, `.csv` or `.parquet`, named when complete.

Blocks pass one at a time, so memory does not depend on the number of samples; equal samples give equal bytes.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from wdport.errors import InternalError, MachineError, UsageError
from wdport.files.atomic import whole_file
from wdport.files.target import Target
from wdport.files.writable import require_writable
from wdport.model import Array

Block = Mapping[str, Array]
"""Arrays by name: states (b, C, F) and, where they are decoded, what they are decoded to (b, N, F)."""

Blocks = Callable[[], Iterable[Block]]
"""All blocks from the first, every time that it is called."""

Write = Callable[[IO[bytes], int, Blocks], None]

ROWS = 1 << 16
"""About as many rows of a table are written at a time."""

FORMATS = (".npz", ".npy", ".csv", ".parquet")


def samples_target(path: Path, inputs: Mapping[str, Path], force: bool) -> Target:
    """Where samples go that are drawn from ``inputs``; raises an error where they cannot."""
    if path.suffix not in FORMATS:
        raise UsageError(path, "unknown output format", f"end the name in {', '.join(FORMATS)}")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise MachineError(path, "writing it needs pyarrow, which is not installed", "install wdport[parquet]")
    require_writable(path, inputs, force)
    return Target(path, path.suffix[1:])


def write_samples(target: Target, count: int, blocks: Blocks, steps: Mapping[str, str] | None = None) -> int:
    """Write ``count`` samples; the size of the file in bytes.

    ``.npz`` holds every array by its name. The others hold the last one, which is decoded where there is such a thing:
    ``.npy`` (n, N, F); ``.csv`` and ``.parquet`` a row per sample and step with a column per feature,
    which is the last axis; other axes are steps, one after another. ``steps`` is what
    a step of each array is called in a table, where it is not "step". Raises :class:`MachineError` if the machine
    refuses; no temporary file is left then.
    """
    csv, parquet = (partial(table, steps=steps or {}) for table in (_csv, _parquet))
    write: dict[str, Write] = {"npz": _npz, "npy": _npy, "csv": csv, "parquet": parquet}
    with whole_file(target.path) as file:
        write[target.format](file, count, blocks)
    return target.path.stat().st_size


def first_samples(blocks: Blocks, count: int) -> Array:
    """The first ``count`` of the last array; all if there are fewer."""
    found: list[Array] = []
    for array in _main(blocks):
        found.append(array)
        if sum(map(len, found)) >= count:
            break
    return np.concatenate(found)[:count]


def _npz(file: IO[bytes], count: int, blocks: Blocks) -> None:
    names = list(next(iter(blocks())))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                _array(member, count, (block[name] for block in blocks()))


def _npy(file: IO[bytes], count: int, blocks: Blocks) -> None:
    _array(file, count, _main(blocks))


def _array(file: IO[bytes], count: int, arrays: Iterable[Array]) -> None:
    """One array in numpy's own format, made of ``arrays`` along the first axis."""
    written = 0
    for array in arrays:
        if not written:
            header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False,
                      "shape": (count, *array.shape[1:])}  # fmt: skip
            np.lib.format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(array).tobytes())
        written += len(array)
    if written != count:
        raise InternalError("samples", f"{written} of {count} were written", "report this")


def _csv(file: IO[bytes], count: int, blocks: Blocks, steps: Mapping[str, str]) -> None:
    for i, (names, columns) in enumerate(_tables(blocks, steps)):
        if i == 0:
            file.write((",".join(names) + "\n").encode())
        digits = "%.9g" if columns[-1].dtype == np.float32 else "%.17g"
        kinds = [digits if column.dtype.kind == "f" else "%d" for column in columns]
        np.savetxt(file, np.column_stack([column.astype(np.float64) for column in columns]), kinds, ",")


def _parquet(file: IO[bytes], count: int, blocks: Blocks, steps: Mapping[str, str]) -> None:
    import pyarrow  # type: ignore[import-not-found, unused-ignore]
    import pyarrow.parquet  # type: ignore[import-not-found, unused-ignore]

    writer = None
    for names, columns in _tables(blocks, steps):
        table = pyarrow.table(dict(zip(names, columns, strict=True)))
        writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _main(blocks: Blocks) -> Iterator[Array]:
    for block in blocks():
        yield block[list(block)[-1]]


def _tables(blocks: Blocks, steps: Mapping[str, str]) -> Iterator[tuple[list[str], list[Array]]]:
    """Column names and columns of every block: sample, place within it, and the features."""
    start, place = 0, steps.get(list(next(iter(blocks())))[-1], "step")
    for array in _regrouped(_main(blocks)):
        count, length, features = len(array), prod(array.shape[1:-1]), array.shape[-1]
        names = ["sample", place, *(f"feature_{i}" for i in range(1, features + 1))]
        sample = np.repeat(np.arange(start, start + count, dtype=np.int64), length)
        where = np.tile(np.arange(length, dtype=np.int32), count)
        yield names, [sample, where, *np.ascontiguousarray(array.reshape(-1, features).T)]
        start += count


def _regrouped(arrays: Iterable[Array]) -> Iterator[Array]:
    """The same samples, always so many at a time: a file's bytes do not depend on how they were drawn."""
    waiting: list[Array] = []
    for array in arrays:
        waiting.append(array)
        size = max(1, ROWS // array.shape[1])
        if sum(map(len, waiting)) >= size:
            joined = np.concatenate(waiting)
            whole = len(joined) - len(joined) % size
            yield from (joined[begin : begin + size] for begin in range(0, whole, size))
            waiting = [joined[whole:]] if whole < len(joined) else []
    if waiting:
        yield np.concatenate(waiting)
