"""Calls of modules that no output of a network depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Collection, Mapping, Sequence

import numpy as np

from .calls import Calls, Outputs, layer_of
from .nested import leaves, tensors_of
from .runs import isolate, run
from .torch_functions import functions
from .watching import watched

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from .shared_types import Compute, Given, Nested


def unused_calls(
    module: Module, inputs: Sequence[Nested], outputs: Outputs, calls: Calls, names: Collection[str]
) -> list[str]:
    """Those of the ``calls`` of these submodules that no output of ``module`` depends on: no function of torch leads
    from a call to an output, or out of torch, and other numbers in place of its outputs change no output, bit for bit.
    ``outputs`` and ``calls`` are of the same inputs."""
    used, unused = _used_calls(module, inputs, names), []
    for name, call in calls.items():
        if layer_of(name) in names and name not in used and all(a.dtype.kind == "f" for a in leaves(call.outputs)):
            others = tuple(1.0 - 2.0 * output for output in call.outputs)
            changed, _ = isolate(module, inputs, {name: replace(call, outputs=others)})
            if len(changed) == len(outputs) and all(
                np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
                for one, other in zip(changed, outputs, strict=True)
            ):
                unused.append(name)
    return unused


_ABOUT = {"size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size",
                 "is_floating_point", "is_complex", "is_contiguous", "__len__", "untyped_storage"}  # fmt: skip
"""Methods of a tensor that tell nothing of its values."""

_ABOUT_FIELDS = {"shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout", "is_leaf", "grad_fn",
                        "itemsize", "is_nested", "is_sparse", "is_quantized", "is_meta"}  # fmt: skip


_BY_VALUES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount", "repeat_interleave"}
"""Functions whose outputs have sizes that values determine, as those of an index of booleans are."""


def _used_calls(module: Module, inputs: Sequence[Nested], names: Collection[str]) -> set[str]:
    """The calls of these submodules from which functions of torch lead to an output of ``module``, or out of torch,
    such as to a number that the code compares. Tensors that share memory count as one."""
    import torch

    marks: dict[int, tuple[Tensor, frozenset[str]]] = {}  # by memory, with a tensor that keeps it
    used: set[str] = set()

    def memory(tensor: Tensor) -> int:
        return int(tensor.untyped_storage()._cdata)

    def marked(value: object) -> frozenset[str]:
        memories = map(memory, tensors_of(value))
        return frozenset().union(*(marks[place][1] for place in memories if place in marks))

    def mark(value: object, called: frozenset[str]) -> None:
        for tensor in tensors_of(value):
            first, before = marks.get(memory(tensor), (tensor, frozenset[str]()))
            marks[memory(tensor)] = first, before | called

    def follow(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        called = marked([*args, *kwargs.values()])
        result = function(*args, **kwargs)
        if called:
            name = getattr(function, "__name__", "")
            field_name = getattr(getattr(function, "__self__", None), "__name__", "") if name == "__get__" else ""
            about = name in _ABOUT or field_name in _ABOUT_FIELDS
            results = tensors_of(args[:1] if result is None else result)
            mark(results, called)
            index = name == "__getitem__" and any(not tensor.dtype.is_floating_point for tensor in tensors_of(args[1:]))
            if index or name in _BY_VALUES or not (results or about):
                used.update(called)
        return result

    def keep(name: str, _: str, __: Module, compute: Compute, arguments: Given) -> object:
        output = compute(*arguments)
        with torch._C.DisableTorchFunction():
            mark(output, frozenset({name}))
        return output

    parts = {name: part for name, part in module.named_modules() if name in names}
    with functions(follow), watched(parts, keep):
        run(module, inputs)  # which converts the outputs to arrays, so that they leave torch
    return used
