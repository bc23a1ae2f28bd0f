"""Functions of torch with a counterpart in ``keras.ops``: elementwise, along an axis, and for splitting tensors.

The names are an explicit list, not looked up: ``torch.select`` and ``keras.ops.select`` only share the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from wdport.mapping.kinds.counterpart import Counterpart, KerasCall, TorchCall
from wdport.mapping.kinds.image_axes import Atom, keras_axis, keras_permutation
from wdport.porting.outline.functions import dims, numbers
from wdport.porting.outline.keras_calls import exists

_SAME = (
    "abs", "argmax", "argmin", "argsort", "ceil", "cos", "cosh", "cumprod", "cumsum", "einsum", "erf", "exp", "expm1",
    "flip", "floor", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "logaddexp", "logsumexp", "max",
    "maximum", "mean", "min", "minimum", "ones_like", "outer", "prod", "reciprocal", "round", "rsqrt", "sign", "sin",
    "sinh", "sqrt", "square", "stack", "sum", "tan", "tril", "triu", "trunc", "where", "zeros_like", "any", "all",
    "floor_divide",
)  # fmt: skip

_OTHERS: Mapping[str, tuple[str, Mapping[str, tuple[str, object]]]] = MappingProxyType({
    "amax": ("max", {}), "amin": ("min", {}), "unbind": ("unstack", {}), "gather": ("take_along_axis", {}),
    "index_select": ("take", {}), "expand": ("broadcast_to", {}), "masked_fill": ("where", {}),
    "cat": ("concatenate", {}), "chunk": ("split", {}), "split": ("split", {}), "tensor_split": ("split", {}),
    "scaled_dot_product_attention": ("dot_product_attention", {"is_causal": ("is_causal", False),
                                                               "scale": ("scale", None)}),
    "clamp": ("clip", {"x_min": ("min", None), "x_max": ("max", None)}), "var": ("var", {}), "std": ("std", {}),
    "normalize": ("normalize", {"order": ("p", 2), "epsilon": ("eps", 1e-12)}), "median": ("median", {}),
    "roll": ("roll", {"shift": ("shifts", 0)}), "repeat_interleave": ("repeat", {"repeats": ("repeats", 1)}),
    "repeat": ("tile", {}), "one_hot": ("one_hot", {}), "topk": ("top_k", {}), "norm": ("norm", {}),
})  # fmt: skip
"""Names of ``keras.ops``, and its arguments by PyTorch's name and default."""

_NOTES: Mapping[str, str] = MappingProxyType({
    "var": "PyTorch divides by n - 1, ops.var by n: multiply it by n / (n - 1)",
    "std": "PyTorch divides by n - 1, ops.std by n: multiply it by sqrt(n / (n - 1))",
    "median": "PyTorch takes the lower of two middle values, ops.median their mean",
    "masked_fill": "masked_fill is ops.where(mask, value, x)",
    "scaled_dot_product_attention": "PyTorch's axes are b n t d, those of keras.ops b t n d; masks mean the same",
    "topk": "ops.top_k is along the last axis",
})  # fmt: skip

_DIVIDING = ("chunk", "split", "tensor_split")


def operation(function: str, arguments: Mapping[str, Any], call: TorchCall) -> Counterpart:
    """The function of ``keras.ops``, with the axis in Keras's layout; empty if none is known."""
    name, more = _OTHERS.get(function, (function, {}))
    if (function not in _SAME and function not in _OTHERS) or not exists(f"ops.{name}"):
        return Counterpart()
    notes = [_NOTES[function]] if function in _NOTES else []
    if function in ("var", "std", "median"):
        if function == "median" or arguments.get("correction", 1) not in (0, False):
            return Counterpart((), tuple(notes))
        notes = []
    if function in ("max", "min") and "dim" in arguments and 1 in call.used:
        notes.append(f"its indices are read: ops.arg{function} in Keras")
    keras: dict[str, object] = {}
    for key, (torch_name, usual) in more.items():
        value = arguments.get(torch_name, usual)
        if isinstance(value, (int, float, tuple)):
            keras[key] = value
    if isinstance(order := keras.get("order"), float) and order % 1 == 0:
        keras["order"] = int(order)  # Keras takes no 2.0
    if function == "norm" and arguments.get("p", "fro") not in ("fro", None):
        keras["ord"] = arguments["p"]
    if function in _DIVIDING:
        keras["indices_or_sections"] = _sections(function, arguments, call)
    return Counterpart((KerasCall(f"ops.{name}", keras | _along(function, arguments, call)),), tuple(notes))


def _along(function: str, arguments: Mapping[str, Any], call: TorchCall) -> dict[str, object]:
    """The axis of a function, in Keras's layout."""
    rank = len(call.shape)
    if function == "stack":
        position = (dims(arguments.get("dim", 0), rank + 1) or [0])[0]
        call_axes = call.axes or ()
        order = keras_permutation((*call_axes[:position], (Atom("n", 2),), *call_axes[position:]))
        return {"axis": position if order is None else order.index(position)}
    torch = dims(arguments.get("dim", arguments.get("dims")), rank)
    if not torch and function in ("cat", "unbind", *_DIVIDING):
        torch = [0]
    if not torch:
        return {}
    keras = [keras_axis(call.axes, index) for index in torch]
    axes = [index - rank if index == rank - 1 else index for index in torch]
    axes = [old if new is None else new for old, new in zip(axes, keras, strict=True)]
    axis: dict[str, object] = {"axis": axes[0] if len(axes) == 1 else tuple(axes)}
    return axis | ({"keepdims": True} if arguments.get("keepdim") is True else {})


def _sections(function: str, arguments: Mapping[str, Any], call: TorchCall) -> object:
    """The sections for Keras, a number of parts or the split positions; ``torch.split`` takes sizes."""
    rank, dim = len(call.shape), (dims(arguments.get("dim"), len(call.shape)) or [0])[0]
    size = int(call.shape[dim]) if rank else 0
    if function == "split":
        sizes = numbers(arguments.get("split_size_or_sections"))
        if len(sizes) == 1:
            sizes = [min(sizes[0], size - start) for start in range(0, size, sizes[0])]
    elif function == "chunk":
        chunk = -(-size // int(arguments.get("chunks", 1)))
        sizes = [min(chunk, size - start) for start in range(0, size, chunk)]
    else:
        places = arguments.get("indices_or_sections")
        return int(places) if isinstance(places, int) else tuple(numbers(places))
    if len(set(sizes)) == 1:
        return len(sizes)
    return tuple(accumulate(sizes[:-1]))
