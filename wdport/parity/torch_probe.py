"""Looking into a running PyTorch model: record what goes into and comes out of its modules, or answer for them.

Needs torch and numpy alone, and nothing of the module but its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from wdport.models.family import Array
from wdport.parity.calls import Call, Calls, leaves, shaped_like


def record(module: torch.nn.Module, inputs: Sequence[Array]) -> tuple[Array, dict[str, Call]]:
    """Run ``module`` in evaluation mode; its output, and every submodule's call in order of completion."""
    calls: dict[str, Call] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(_: torch.nn.Module, given: tuple[Any, ...], output: Any) -> None:
            if name in calls:
                raise RuntimeError(f"{name} is called twice in one pass")
            calls[name] = Call(_numpy(given), _arrays(output))

        return keep

    parts = [(name, part) for name, part in module.named_modules() if name]
    with _hooked(part.register_forward_hook(hook(name)) for name, part in parts):
        output = run(module, inputs)
    return output[0], calls


def isolate(module: torch.nn.Module, inputs: Sequence[Array], answers: Calls) -> tuple[Array, dict[str, Call]]:
    """Run ``module`` with the submodules of ``answers`` answered for.

    Each of them computes from its answer's inputs and hands on its answer's outputs. What comes back: the
    output, and per submodule the inputs that it would have been given and the outputs of its own computation.
    """
    calls: dict[str, Call] = {}

    def before(name: str) -> Callable[..., Any]:
        def feed(_: torch.nn.Module, given: tuple[Any, ...]) -> Any:
            calls[name] = Call(_numpy(given), ())
            return tuple(_tensor(value) for value in answers[name].inputs)

        return feed

    def after(name: str) -> Callable[..., Any]:
        def answer(_: torch.nn.Module, __: Any, output: Any) -> Any:
            calls[name] = Call(calls[name].inputs, _arrays(output))
            return shaped_like([_tensor(value) for value in answers[name].outputs], output)

        return answer

    parts = [(name, module.get_submodule(name)) for name in answers]
    with (
        _hooked(part.register_forward_pre_hook(before(name)) for name, part in parts),
        _hooked(part.register_forward_hook(after(name)) for name, part in parts),
    ):
        output = run(module, inputs)
    return output[0], calls


def run(module: torch.nn.Module, inputs: Sequence[Any]) -> tuple[Array, ...]:
    """The outputs of ``module`` for arrays (or lists of arrays), without gradients."""
    with torch.inference_mode():
        return _arrays(module(*(_tensor(value) for value in inputs)))


@contextmanager
def highest_precision() -> Iterator[str]:
    """Full float32 matrix products inside, whatever the program around has set; yields the setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield torch.get_float32_matmul_precision()
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _hooked(handles: Any) -> Iterator[None]:
    attached = list(handles)
    try:
        yield
    finally:
        for handle in attached:
            handle.remove()


def _arrays(output: Any) -> tuple[Array, ...]:
    return tuple(_numpy(leaf) for leaf in leaves(output))


def _numpy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return np.array(value.numpy(), copy=True)
    return type(value)(_numpy(item) for item in value) if isinstance(value, (list, tuple)) else value


def _tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value, copy=True))
    return [_tensor(item) for item in value] if isinstance(value, (list, tuple)) else value
