"""The tensors of a module under all of their names, and random shifts of its biases."""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Collection, Iterator, Mapping

import numpy as np

from .nested import to_array

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from .shared_types import Array


BIAS_SEED = 7


def named_tensors(module: Module) -> dict[str, Tensor]:
    """Every parameter and buffer under each of its names: ``named_parameters`` has a shared one only once."""
    return {
        f"{path}.{name}".lstrip("."): tensor
        for path, part in module.named_modules(remove_duplicate=False)
        for name, tensor in (*part._parameters.items(), *part._buffers.items())
        if tensor is not None
    }


def memory_of(tensor: Tensor) -> object:
    """What is equal for two tensors that share all their memory."""
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) if tensor.numel() else id(tensor)


def memories(tensors: Mapping[str, Tensor], names: Collection[str]) -> set[object]:
    """The memory of these tensors, see :func:`memory_of`; names that are none are left out."""
    return {memory_of(tensors[name]) for name in names if name in tensors}


CONSTANT_WITHIN = 1e-6
"""Values that differ by less than this count as equal. Zeros hide whatever they multiply, and ones hide an order."""


def bias_shift(name: str, values: Array, seed: int = BIAS_SEED) -> Array:
    """The N(0, 0.2^2) shift in float32 for the parameter of this name, divided by the root of a matrix's fan-in; no
    value changes its sign, since a parameter may be a width or an epsilon."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    fan = values[0].size if values.size > max(values.shape, default=1) else 1
    shift = rng.normal(0.0, 0.2 / fan**0.5, values.shape)
    return np.asarray(np.where((values + shift) * values < 0.0, -shift, shift), np.float32)


def bias_shifts(module: Module, carried: Mapping[str, str] = MappingProxyType({})) -> dict[str, Array]:
    """The shift of every floating-point parameter that is a number, a vector of any rank or constant, such as the
    zeros of a residual scale or of a convolution, and of constant buffers among the ``carried`` tensors, by name.

    Tensors that share memory, or that :func:`build` is told to be one, get the same shift.
    """
    import torch

    tensors, shifts, first = named_tensors(module), {}, {}
    held = memories(tensors, carried)
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.numel()):
            continue
        vector = tensor.numel() == max(tensor.shape, default=1)
        constant = float(tensor.detach().max() - tensor.detach().min()) <= CONSTANT_WITHIN
        parameter = isinstance(tensor, torch.nn.Parameter)
        if (vector or constant) if parameter else (constant and memory_of(tensor) in held):
            one = memory_of(tensors.get(carried.get(name, name), tensor))
            if one not in first:
                first[one] = bias_shift(name, to_array(tensor))
            shifts[name] = first[one]
    return shifts


@contextmanager
def moved_biases(modules: Mapping[str, Module], shifts: Mapping[str, Array]) -> Iterator[None]:
    """Inside, the shifts are added to both modules' tensors in float32, and then converted to float64."""
    import torch

    originals: dict[int, tuple[Tensor, Tensor]] = {}
    single, double = (named_tensors(modules[dtype]) for dtype in ("float32", "float64"))
    for name, shift in shifts.items():
        if id(single[name]) not in originals:  # a shared one is shifted once
            # The shifted values get new memory: the originals are put back.
            for tensor in (single[name], double[name]):
                originals.setdefault(id(tensor), (tensor, tensor.data))
            single[name].data = single[name].data + torch.from_numpy(shift)
        double[name].data = single[name].data.double()
    try:
        yield
    finally:
        for tensor, data in originals.values():
            tensor.data = data
