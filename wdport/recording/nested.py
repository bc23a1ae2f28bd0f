"""Tensors and arrays in nested lists, tuples, dictionaries and dataclasses."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Iterator
from weakref import WeakValueDictionary

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from .shared_types import Array, Nested


def tensors_of(value: object) -> list[Tensor]:
    """The tensors of nested lists, tuples, dictionaries and dataclasses, in order."""
    import torch

    return [leaf for _, leaf in named_leaves(value, torch.is_tensor)]


def named_leaves(value: object, is_leaf: Callable[[object], bool]) -> list[tuple[str, Any]]:
    """The leaves of nested lists, tuples, dictionaries and dataclasses, in order, by their keys and numbers, such as
    "hidden.0"; a part of one leaf needs no number."""
    if is_leaf(value):
        return [("", value)]
    value = by_name(value)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    named: list[tuple[str, Any]] = []
    for key, item in items:
        inner = named_leaves(item, is_leaf)
        named += [(f"{key}.{name}" if len(inner) > 1 else str(key), leaf) for name, leaf in inner]
    return named


def by_name(value: object) -> object:
    """A dataclass as a dictionary, without fields that are None."""
    if isinstance(value, dict) or not is_dataclass(value) or isinstance(value, type):
        return value
    named = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: item for name, item in named.items() if item is not None}


def has_names(value: object) -> bool:
    """Whether a dictionary or a dataclass is among nested lists and tuples."""
    value = by_name(value)
    return isinstance(value, dict) or (isinstance(value, (list, tuple)) and any(map(has_names, value)))


def fill_tensors(value: object, tensors: Iterator[Tensor]) -> object:
    """``value`` with each of its tensors replaced by the next of ``tensors``."""
    import torch

    if isinstance(named := by_name(value), dict) and not isinstance(value, dict):
        filled: Any = value
        return replace(filled, **{name: fill_tensors(item, tensors) for name, item in named.items()})
    if isinstance(value, dict):
        return type(value)((key, fill_tensors(item, tensors)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        items: list[Any] = [fill_tensors(item, tensors) for item in value]
        # A named tuple takes its items as separate arguments.
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, torch.Tensor):
        tensor = next(tensors)
        # What a module rounds to 16 bits is recorded in more.
        return tensor.to(value.dtype) if value.dtype in (torch.bfloat16, torch.float16) else tensor
    return value


def nested_arrays(value: object) -> Nested:
    """Copies of the tensors of a value, in lists as it nests them."""
    if isinstance(value, (list, tuple)):
        return [nested_arrays(item) for item in value if tensors_of(item)]
    arrays = [to_array(tensor) for tensor in tensors_of(value)]
    return arrays if isinstance(value, dict) else arrays[0]


def as_array(tensor: Tensor) -> Array:
    """A tensor's values, with its memory where NumPy has the dtype."""
    import torch

    tensor = tensor.detach().cpu()
    # NumPy has no bfloat16; nothing else is to be computed in 16 bits.
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()


def to_array(tensor: Tensor) -> Array:
    """A copy of a tensor's values, in C order. A layer's output is the next one's input, so calls share copies; none
    may be changed."""
    values = as_array(tensor)
    key = (tensor.data_ptr(), values.shape, values.dtype.str)
    cached = _COPIES.get(key)
    bits = f"u{values.itemsize}"
    # The bits are compared, since NaN differs from itself; the 16 bytes of a complex128 have no integer dtype.
    if cached is None or values.itemsize > 8 or not np.array_equal(cached.view(bits), values.view(bits)):
        cached = _COPIES[key] = np.array(values, copy=True, order="C")
    return cached


_COPIES: WeakValueDictionary[tuple[object, ...], Array] = WeakValueDictionary()
"""Copies that are in use, by the address of their tensor, which another tensor may have meanwhile."""


def as_tensor(value: Any) -> Any:
    """Arrays as tensors with copies of their values, in lists as they are nested; anything else as it is."""
    import torch

    if isinstance(value, np.ndarray):
        # A copy, since from_numpy shares memory and modules may change their inputs.
        return torch.from_numpy(np.array(value, copy=True))
    return [as_tensor(item) for item in value] if isinstance(value, (list, tuple)) else value


def leaves(value: object) -> list[Any]:
    """The arrays of a nested list or tuple, in order."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, (list, tuple)) else [value]
