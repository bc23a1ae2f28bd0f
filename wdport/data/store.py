"""Blocks of an array go in, one at a time; a finished `.npy` file comes out, mapped and read-only.

The blocks are written, not mapped: on a full disk a mapped page kills the process with SIGBUS.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wdport.errors import InternalError, MachineError, UsageError
from wdport.files.writable import require_writable

Array = NDArray[Any]

_TEMPORARY: Final = ".wdport-tmp.npy"


def check_output(output: Path, source: Path | None) -> None:
    """Raise :class:`UsageError` where no array may be written over or beside what is there."""
    if output.suffix != ".npy":
        raise UsageError(output, "is no name for an array file", "give a file name that ends in .npy")
    require_writable(output, {"source": source} if source else None, option=None)


def write_npy(output: Path, shape: tuple[int, ...], dtype: DTypeLike, blocks: Iterable[Array]) -> Array:
    """Write ``blocks``, which follow one another along the first axis, as one array of ``shape`` and map it.

    Until all is written and synced the file has a temporary name, and an older one stays as it is. Raises
    :class:`MachineError` if the machine refuses; whatever is raised, no temporary file is left. One left by a
    process that was killed is removed by the next to write the same file.
    """
    _clear_leftovers(output)
    temporary = output.with_name(f".{output.name}.{os.getpid()}{_TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
            np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
            written = 0
            for block in blocks:
                file.write(np.ascontiguousarray(block, dtype).data)
                written += len(block)
            if written != shape[0]:
                raise InternalError(output, f"{written} of {shape[0]} windows were written", "report this")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, output)
        mapped: Array = np.load(output, mmap_mode="r", allow_pickle=False)
        return mapped
    except OSError as error:
        fix = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the folder and its disk"
        raise MachineError(output, f"could not be written ({error.strerror or error})", fix) from error
    finally:
        temporary.unlink(missing_ok=True)


def _clear_leftovers(output: Path) -> None:
    """Remove temporary files of processes that died while writing ``output``."""
    for file in output.parent.iterdir():
        owner = file.name.removeprefix(f".{output.name}.").removesuffix(_TEMPORARY)
        ours = file.name == f".{output.name}.{owner}{_TEMPORARY}" and owner.isdigit()
        if ours and not Path(f"/proc/{owner}").exists():
            file.unlink(missing_ok=True)
