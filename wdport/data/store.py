"""Write the blocks of an array, one at a time, to a `.npy` file, and map it read-only.

The blocks are written, not mapped: on a full disk a mapped page kills the process with SIGBUS.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from wdport.errors import InternalError, UsageError
from wdport.files.atomic import machine_error, whole_file
from wdport.files.writable import OutputPath, writable
from wdport.model import Array


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
