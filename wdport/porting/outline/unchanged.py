"""Functions of torch that do not change a tensor, which an outline omits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from wdport.porting.outline.events import Slice, TracedTensor
from wdport.porting.outline.functions import numbers

_IDENTITIES = frozenset((
    "contiguous", "detach", "data", "alias", "requires_grad_", "cpu", "cuda", "pin_memory", "view_as_real_",
    "share_memory_", "to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "bool", "clone",
    "__copy__", "__deepcopy__", "_to_copy", "identity", "real",
))  # fmt: skip
"""Functions that do not change a tensor if its shape and its kind stay the same."""

_NEUTRAL: Mapping[str, float] = {
    **dict.fromkeys(("mul", "__mul__", "__rmul__", "div", "__truediv__", "true_divide", "mul_", "div_"), 1.0),
    **dict.fromkeys(("add", "__add__", "__radd__", "sub", "__sub__", "add_", "sub_"), 0.0),
}
"""The number with which an arithmetic function does not change a tensor."""


def kind_of(tensor: torch.Tensor) -> str:
    """The kind of a tensor's values: float, int, bool or complex."""
    if tensor.dtype.is_complex:
        return "complex"
    return "float" if tensor.dtype.is_floating_point else "bool" if tensor.dtype == torch.bool else "int"


def is_identity(short: str, inputs: Sequence[TracedTensor], output: torch.Tensor, arguments: object) -> bool:
    """Whether a function returns its input unchanged, such as a cast to the same dtype or a full slice."""
    if not inputs or inputs[0].shape != tuple(output.shape) or inputs[0].kind != kind_of(output):
        return False
    if short in _IDENTITIES:
        return True
    if short in _NEUTRAL and isinstance(arguments, tuple) and len(arguments[0]) == 2 and not arguments[1]:
        other = arguments[0][1]
        return isinstance(other, (int, float)) and not isinstance(other, bool) and other == _NEUTRAL[short]
    shape = tuple(output.shape)
    if short == "pad" and isinstance(arguments, tuple):
        return not any(numbers([arguments[0][1:2], arguments[1].get("pad", ())]))
    if short in ("view", "reshape", "expand", "expand_as", "view_as", "flatten", "broadcast_to", "squeeze"):
        return bool(shape)
    if short == "__getitem__":
        index = arguments[0][1] if isinstance(arguments, tuple) else None
        items = index if isinstance(index, tuple) else (index,)
        return all(item is ... or (isinstance(item, Slice) and item.step in (None, 1)) for item in items)
    return False
