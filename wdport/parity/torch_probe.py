"""Looking into a running PyTorch model: record what goes into and comes out of its modules.

Needs torch and numpy alone, and nothing of the module but its names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Call:
    """One module's call: its inputs (arrays, or lists of arrays) and its outputs."""

    inputs: tuple[Any, ...]
    outputs: tuple[Array, ...]


def record(module: torch.nn.Module, inputs: Sequence[Array]) -> tuple[Array, dict[str, Call]]:
    """Run ``module`` in evaluation mode; its output, and every submodule's call in order of completion."""
    calls: dict[str, Call] = {}
    handles = []
    for name, part in module.named_modules():
        if name:
            handles.append(part.register_forward_hook(_keep(name, calls)))
    try:
        output = run(module, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return output[0], calls


def _keep(name: str, calls: dict[str, Call]) -> Any:
    def hook(_: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if name in calls:
            raise RuntimeError(f"{name} is called twice in one pass")
        calls[name] = Call(tuple(_numpy(value) for value in inputs), tuple(_leaves(output)))

    return hook


def run(module: torch.nn.Module, inputs: Sequence[Any]) -> list[Array]:
    """The outputs of ``module`` for arrays (or lists of arrays), without gradients."""
    with torch.inference_mode():
        return _leaves(module(*(_tensor(value) for value in inputs)))


@contextmanager
def highest_precision() -> Iterator[str]:
    """Full float32 matrix products inside, whatever the program around has set; yields the setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield torch.get_float32_matmul_precision()
    finally:
        torch.set_float32_matmul_precision(before)


def _leaves(output: Any) -> list[Array]:
    return [np.array(leaf.numpy(), copy=True) for leaf in (output if isinstance(output, (list, tuple)) else [output])]


def _numpy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return np.array(value.numpy(), copy=True)
    return [_numpy(item) for item in value] if isinstance(value, (list, tuple)) else value


def _tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value, copy=True))
    return [_tensor(item) for item in value] if isinstance(value, (list, tuple)) else value
