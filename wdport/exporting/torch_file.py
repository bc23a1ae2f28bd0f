"""Write tensors for PyTorch: as a safetensors file, or as a ``.pt`` file, which needs torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np

from wdport.checkpoint.dtypes import ITEMSIZE
from wdport.files.atomic import whole_file
from wdport.files.safetensors_file import Entry, header_bytes
from wdport.files.target import Needed, Target, file_target
from wdport.model import Array

SUFFIXES = (".safetensors", ".pt", ".pth")
_NEEDS = dict.fromkeys(SUFFIXES[1:], Needed("torch", "torch", "torch"))


def torch_target(path: Path, inputs: Mapping[str, Path], force: bool) -> Target:
    """Return the target; raises :class:`UsageError` or :class:`MachineError` if it cannot be written."""
    return file_target(path, SUFFIXES, inputs, force, needs=_NEEDS)


def write_tensors(target: Target, tensors: Mapping[str, Array]) -> int:
    """Write a state_dict under a temporary name, rename it and return the size in bytes.

    ``torch.load`` reads it with ``weights_only=True``. Raises :class:`MachineError` if writing fails.
    """
    with whole_file(target.output) as file:
        if target.format == "safetensors":
            _write_safetensors(file, tensors)
        else:
            file.write(_pickled(tensors))
        return file.tell()


def _write_safetensors(file: IO[bytes], tensors: Mapping[str, Array]) -> None:
    """Write one tensor after another, those with the largest item size first, so that all are aligned."""
    entries = [Entry(name, array.dtype.name, array.shape) for name, array in tensors.items()]
    entries.sort(key=lambda entry: (-ITEMSIZE[entry.dtype], entry.name))
    file.write(header_bytes(entries, {"format": "pt"}))
    for entry in entries:
        file.write(np.ascontiguousarray(tensors[entry.name]).reshape(-1).view(np.uint8).data)


def write_training(target: Target, tree: Mapping[str, Any]) -> int:
    """Write a training program's checkpoint as :func:`write_tensors` does: containers and numbers as they are, and
    tensors for arrays."""
    with whole_file(target.output) as file:
        file.write(_pickled(tree))
        return file.tell()


def _pickled(tree: Mapping[str, Any]) -> memoryview:
    import torch

    def tensor(array: Array) -> torch.Tensor:
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view("<u2").copy()).view(torch.bfloat16)
        return torch.from_numpy(array.copy())

    def converted(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return tensor(value)
        if isinstance(value, Counter):
            return value
        if isinstance(value, Mapping):
            return {key: converted(element) for key, element in value.items()}
        return type(value)(map(converted, value)) if isinstance(value, (list, tuple)) else value

    held = BytesIO()
    torch.save(converted(tree), held)
    return held.getbuffer()
