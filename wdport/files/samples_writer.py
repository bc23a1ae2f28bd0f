"""Write samples block by block to one file: `.npz`, `.npy`, `.csv` or `.parquet`, named when complete.

Blocks are written one at a time, so memory does not depend on the number of samples; equal samples give equal bytes.
"""

from __future__ import annotations

import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from wdport.base.errors import InternalError
from wdport.files.atomic import whole_file
from wdport.files.model_target import Needed, Target, file_target
from wdport.files.sealed_archive import sealed_archive
from wdport.models.interface import Array

Block = Mapping[str, Array]
"""Arrays by name: states (b, C, F) and, if they are decoded, decoded samples (b, N, F)."""

Blocks = Callable[[], Iterable[Block]]
"""Returns an iterator over all blocks from the first, at every call."""

Write = Callable[[IO[bytes], int, Blocks], None]


class Names(NamedTuple):
    """The name of a step of each array in a table, and the features' names; see :func:`write_samples`."""

    steps: Mapping[str, str]
    features: tuple[str, ...]

    def columns(self, array: str, features: int) -> list[str]:
        """Return the names of a table's columns, all different: sample, step within it, and each feature.

        A feature with the name of an earlier column gets the prefix ``feature_``.
        """
        first = ["sample", self.steps.get(array, "step")]
        if len(self.features) != features:
            return [*first, *(f"feature_{number}" for number in range(1, features + 1))]
        names = dict.fromkeys(first)
        for feature in self.features:
            name = feature
            while name in names:
                name = f"feature_{name}"
            names[name] = None
        return list(names)


ROWS = 1 << 16
"""Approximate number of rows of a table that are written at a time."""

FEATURES = "features"
"""The array of an archive with the names of the features."""

FORMATS = (".npz", ".npy", ".csv", ".parquet")


def samples_target(path: Path, inputs: Mapping[str, Path], force: bool) -> Target:
    """Return the target of samples drawn from ``inputs``; raises an error if it cannot be written."""
    return file_target(path, FORMATS, inputs, force, needs={".parquet": Needed("pyarrow", "pyarrow", "parquet")})


def write_samples(
    target: Target,
    count: int,
    blocks: Blocks,
    steps: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    beside: Mapping[str, Array] | None = None,
) -> int:
    """Write ``count`` samples and return the size of the file in bytes.

    ``.npz`` contains every array by its name, the names of the features, and the arrays ``beside`` them, such as the
    condition of every sample. The others contain the last one, the decoded one if the model decodes:
    ``.npy`` (n, N, F); ``.csv`` and ``.parquet`` have a row per sample and step with a column per feature,
    which is the last axis; other axes are flattened to steps. ``steps`` maps each array to its name for a step
    in a table, if it is not "step", and ``features`` are the names of the features, by default ``feature_1``,
    ``feature_2``, ... Raises :class:`MachineError` if writing fails; no temporary file is left then.
    """
    csv, parquet = (partial(table, names=Names(steps or {}, tuple(features))) for table in (_csv, _parquet))
    more = {**(beside or {}), **({FEATURES: np.array(features)} if features else {})}
    write: dict[str, Write] = {"npz": partial(_npz, beside=more), "npy": _npy, "csv": csv, "parquet": parquet}
    written = sealed_archive if target.format == "npz" else whole_file
    with written(target.output) as file:
        write[target.format](file, count, blocks)
    return target.path.stat().st_size


def first_samples(blocks: Blocks, count: int) -> Array:
    """Return the first ``count`` samples of the last array; all if there are fewer."""
    arrays: list[Array] = []
    for array in _main(blocks):
        arrays.append(array)
        if sum(map(len, arrays)) >= count:
            break
    return np.concatenate(arrays)[:count]


def _npz(file: IO[bytes], count: int, blocks: Blocks, beside: Mapping[str, Array]) -> None:
    names = list(next(iter(blocks())))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            # The size is not known in advance, and zipfile fails after 2 GiB of a member that was not announced as
            # large.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                _array(member, count, (block[name] for block in blocks()))
        for name, array in beside.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), (1, 0), allow_pickle=False)


def _npy(file: IO[bytes], count: int, blocks: Blocks) -> None:
    _array(file, count, _main(blocks))


def _array(file: IO[bytes], count: int, arrays: Iterable[Array]) -> None:
    """Write one array in numpy's format, the concatenation of ``arrays`` along the first axis."""
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


def _csv(file: IO[bytes], count: int, blocks: Blocks, names: Names) -> None:
    for i, (titles, columns) in enumerate(_tables(blocks, names)):
        if i == 0:
            file.write((",".join(map(csv_title, titles)) + "\n").encode())
        # The number of digits that restores every float32 or float64 exactly.
        digits = "%.9g" if columns[-1].dtype == np.float32 else "%.17g"
        kinds = [digits if column.dtype.kind == "f" else "%d" for column in columns]
        # float64 holds every float32, and every sample number below 2^53.
        np.savetxt(file, np.column_stack([column.astype(np.float64) for column in columns]), kinds, ",")


_PLAIN = re.compile(r"[\w .()/%°+-]+")


def csv_title(name: str) -> str:
    """Return a column's name for the header of a CSV file: in quotes unless it is plain.

    A name that begins like a formula (``=``, ``+``, ``-``, ``@``, in any width) gets a leading apostrophe, so that a
    spreadsheet treats it as text; quotes do not suffice.
    """
    # NFKC maps full-width signs such as U+FF1D to ASCII.
    title = f"'{name}" if unicodedata.normalize("NFKC", name[:1]) in tuple("=+-@") else name
    return title if _PLAIN.fullmatch(title) else '"' + title.replace('"', '""') + '"'


def _parquet(file: IO[bytes], count: int, blocks: Blocks, names: Names) -> None:
    import pyarrow
    import pyarrow.parquet

    writer = None
    for titles, columns in _tables(blocks, names):
        table = pyarrow.table(dict(zip(titles, columns, strict=True)))
        writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _main(blocks: Blocks) -> Iterator[Array]:
    for block in blocks():
        yield block[list(block)[-1]]


def _tables(blocks: Blocks, names: Names) -> Iterator[tuple[list[str], list[Array]]]:
    """Yield column names and columns of every block: sample, step within it, and the features."""
    start, last = 0, list(next(iter(blocks())))[-1]
    # Parquet compresses and encodes by row group, so the size of the blocks would show in the file.
    for array in _regrouped(_main(blocks)):
        count, length, features = len(array), prod(array.shape[1:-1]), array.shape[-1]
        sample = np.repeat(np.arange(start, start + count, dtype=np.int64), length)
        where = np.tile(np.arange(length, dtype=np.int32), count)
        yield names.columns(last, features), [sample, where, *np.ascontiguousarray(array.reshape(-1, features).T)]
        start += count


def _regrouped(arrays: Iterable[Array]) -> Iterator[Array]:
    """Yield the same samples in blocks of fixed size, so that a file's bytes do not depend on how they were drawn."""
    waiting: list[Array] = []
    for array in arrays:
        waiting.append(array)
        size = max(1, ROWS // array.shape[1])
        if sum(map(len, waiting)) >= size:
            joined = np.concatenate(waiting)
            complete = len(joined) - len(joined) % size
            yield from (joined[begin : begin + size] for begin in range(0, complete, size))
            waiting = [joined[complete:]] if complete < len(joined) else []
    if waiting:
        yield np.concatenate(waiting)
