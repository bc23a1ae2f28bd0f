"""What h5py reads of an HDF5 file, in the words of our own reader."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from wdport.files.hdf5.structure import read_hdf5

Facts = dict[str, tuple[str, tuple[int, ...], bytes, dict[str, Any]]]
"""Path -> dtype, shape, bytes and attributes; a group has none of the first three."""


def by_h5py(raw: bytes) -> Facts:
    facts: Facts = {}

    def visit(name: str, found: h5py.Group | h5py.Dataset) -> None:
        attributes = {key: _plain(value) for key, value in found.attrs.items()}
        if isinstance(found, h5py.Group):
            facts[name] = ("", (), b"", attributes)
        else:
            facts[name] = (found.dtype.str, found.shape, np.asarray(found[()]).tobytes(), attributes)

    with h5py.File(io.BytesIO(raw)) as file:
        visit("", file)
        file.visititems(visit)
    return facts


def by_us(raw: bytes) -> Facts:
    def read(offset: int, count: int) -> bytes:
        assert 0 <= offset <= offset + count <= len(raw)
        return raw[offset : offset + count]

    contents = read_hdf5(read, len(raw))
    facts: Facts = {path: ("", (), b"", dict(attributes)) for path, attributes in contents.groups.items()}
    for path, found in contents.datasets.items():
        data = read(found.offset, found.nbytes)
        assert path == found.path
        assert path not in facts
        facts[path] = (found.dtype.str, found.shape, data, dict(found.attributes))
    return facts


def tree(items: Mapping[str, Any], attributes: Mapping[str, Mapping[str, Any]] | None = None) -> bytes:
    """An HDF5 file with these arrays by path (None makes a group) and these attributes, in the order given."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for path, value in items.items():
            if value is None:
                file.require_group(path)
            else:
                file.create_dataset(path, data=value)
        for path, values in (attributes or {}).items():
            for name, value in values.items():
                file[path or "/"].attrs[name] = value
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, np.bytes_):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value
