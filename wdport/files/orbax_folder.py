"""A model's variables as an Orbax checkpoint, the format of JAX's libraries: a nested dictionary by variable path.

Orbax (``pip install wdport[orbax]``) writes and reads it. It takes all arrays at once, so the whole model is in memory.
The checkpoint is the item ``default`` of the folder, and the manifest a file next to it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from wdport.base.errors import MachineError, MisfitError
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.tensor import NUMPY
from wdport.files.manifest_seal import CONVERT_AGAIN, MANIFEST
from wdport.files.safetensors_writer import PlannedTensor
from wdport.models.interface import Array

ITEM: Final = "default"
_SIXTEEN: Final = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


def require_orbax(path: Path) -> None:
    """Raise :class:`MachineError` if Orbax is not installed."""
    try:
        # find_spec imports the parent package, and raises if even that is missing.
        installed = importlib.util.find_spec("orbax.checkpoint") is not None
    except ModuleNotFoundError:
        installed = False
    if not installed:
        raise MachineError(path, "an Orbax checkpoint needs orbax-checkpoint", "install wdport[orbax]")


class OrbaxWriter:
    """Collects variables, in ascending pieces, and writes all of them to ``folder`` at the end."""

    def __init__(self, folder: Path, entries: Sequence[PlannedTensor]) -> None:
        self._folder = folder
        for entry in entries:
            if not entry.nbytes:
                what = f"has the shape {entry.shape}, but Orbax does not store empty arrays"
                raise MisfitError(entry.name, what, "write a folder of safetensors shards")
        self._arrays = {entry.name: np.empty(entry.shape, NUMPY[entry.dtype]) for entry in entries}
        self._dtypes = {entry.name: entry.dtype for entry in entries}

    def write_at(self, name: str, start: int, data: memoryview) -> None:
        """Store bytes of the variable ``name``, which begin at its byte ``start``."""
        self._arrays[name].reshape(-1).view(np.uint8)[start : start + len(data)] = data

    def finish(self, manifest: str) -> None:
        """Write and sync the checkpoint and the manifest."""
        import orbax.checkpoint as ocp

        typed = {
            name: array.view(_SIXTEEN.get(self._dtypes[name], array.dtype)) for name, array in self._arrays.items()
        }
        with ocp.PyTreeCheckpointer() as checkpointer:
            # Orbax refuses relative paths.
            checkpointer.save(self._folder.resolve() / ITEM, nested(typed))
        (self._folder / MANIFEST).write_text(manifest, encoding="utf-8")
        for parent, _, names in os.walk(self._folder):
            for name in names:
                _sync(Path(parent, name))
            _sync(Path(parent))

    def close(self) -> None:
        self._arrays.clear()


def nested(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return nested dictionaries, one level for every part of a path; raises :class:`MisfitError` if a variable's path
    is a prefix of another one."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *parents, last = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise MisfitError(path, "is below another variable", "write a folder of safetensors shards")
        if last in node:
            raise MisfitError(path, "is above another variable", "write a folder of safetensors shards")
        node[last] = array
    return tree


def read_orbax(folder: Path, entries: Sequence[PlannedTensor]) -> dict[str, tuple[Array, str]]:
    """Return every variable's stored bits and dtype, by path; raises :class:`Fault`."""
    import orbax.checkpoint as ocp

    try:
        with ocp.PyTreeCheckpointer() as checkpointer:
            tree = checkpointer.restore(folder.resolve() / ITEM)
    except (ValueError, KeyError, OSError) as error:
        raise Fault(f"Orbax cannot read it ({type(error).__name__})", CONVERT_AGAIN) from None
    arrays: dict[str, tuple[Array, str]] = {}
    for entry in entries:
        value: Any = tree
        for part in entry.name.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            raise Fault("is missing", CONVERT_AGAIN, entry.name)
        # Orbax may return an array without axes as a Python number, which has no dtype.
        array = np.asarray(value, _SIXTEEN.get(entry.dtype, NUMPY[entry.dtype]) if np.ndim(value) == 0 else None)
        arrays[entry.name] = (array.view(np.uint16) if array.dtype == _SIXTEEN["bfloat16"] else array, array.dtype.name)
    return arrays


def is_partly_ours(folder: Path) -> bool:
    """Return whether a folder contains only what this writer writes, complete or not."""
    return all(name == MANIFEST or name.startswith(ITEM) for name in os.listdir(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
