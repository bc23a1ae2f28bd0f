"""Read a block of samples from its file and check it against its number of rows and the other blocks."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib.npyio import NpzFile

from wdport.checkpoint.faults import Fault
from wdport.data.arrays import understood
from wdport.errors import InputError
from wdport.model import Array

Layout = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape of one sample and dtype, by the name of the array."""


def layout_of(block: Mapping[str, Array]) -> Layout:
    """The layout of a block's arrays."""
    return {name: (array.shape[1:], array.dtype.name) for name, array in block.items()}


def unsound(block: Mapping[str, Array]) -> int:
    """The number of samples of a block with a value that is not finite."""
    rows = [np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in block.values()]
    return int(np.count_nonzero(~np.logical_and.reduce(rows)))


def read_block(file: IO[bytes], path: Path, rows: int, layout: Layout, fix: str) -> dict[str, Array]:
    """The arrays in ``file``, ``rows`` long each; raises :class:`InputError` unless they have this ``layout``."""
    try:
        with understood(".npz"):
            block = _arrays(file)
    except Fault as fault:
        raise InputError(path, fault.what, fix) from None
    for name, array in block.items():
        if array.dtype.kind != "f" or array.shape[:1] != (rows,):
            raise InputError(path, f"holds {name} of {array.dtype.name} {array.shape} for {rows} samples", fix)
    held = layout_of(block)
    for name, expected in layout.items():
        if held.get(name) != expected:
            what = f"holds {_described(held, name)} where this run has {_described(layout, name)}"
            raise InputError(path, what, fix)
    return block


def _arrays(file: IO[bytes]) -> dict[str, Array]:
    archive = np.load(file, allow_pickle=False)
    if not isinstance(archive, NpzFile) or archive.zip is None or not archive.files:
        raise Fault("holds no arrays")
    with archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.zip.infolist()):
            raise Fault("is compressed")
        return {name: np.asarray(archive[name]) for name in archive.files}


def _described(layout: Layout, name: str) -> str:
    if name not in layout:
        return f"no {name}"
    shape, dtype = layout[name]
    return f"{name} of {dtype} {shape}"
