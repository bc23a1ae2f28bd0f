"""The counterparts in Keras of layers and functions of torch, with the arguments that they need and the installed
release's defaults.

The names are an explicit list, not looked up: ``torch.select`` and ``keras.ops.select`` only share the name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from types import MappingProxyType
from typing import Annotated, Any

from wdport.base.shared_types import about
from wdport.mapping.kinds import CATALOGUE, FUNCTIONS, KINDS
from wdport.mapping.kinds.kind import (
    Atom,
    Axes,
    Counterpart,
    FindCounterpart,
    KerasCall,
    Kind,
    Settings,
    TorchCall,
    keras_axis,
    keras_group,
    keras_order,
    keras_permutation,
    layer,
)
from wdport.mapping.kinds.resizing import PADDING_ORDER, padding
from wdport.porting.functions import canonical, dims
from wdport.porting.graph import Slice, TracedTensor, numbers
from wdport.porting.outline.axes import AxisMove, text
from wdport.porting.outline.expressions import index as index_text
from wdport.porting.settings import equal, parameters, short

_EMPTY = inspect.Parameter.empty

# A bare number would not show which setting it is, as in Softmax(1).
_FIRST_BY_NAME = ("axis", "epsilon", "max_value", "negative_slope", "alpha", "approximate", "keepdims", "data_format",
                  "alpha_initializer", "dim")  # fmt: skip
"""First arguments that are written by name."""


def call_text(call: KerasCall) -> str:
    """A call as source text, without arguments that equal Keras's defaults: ``Conv2D(16, 3, strides=2)``."""
    declared, words = defaults(call.name), []
    for position, (key, default) in enumerate(declared.items()):
        if key not in call.arguments:
            continue
        value = call.arguments[key]
        if default is _EMPTY or (position == 0 and key not in _FIRST_BY_NAME):
            words.append(_value_text(value, key))
        elif not equal(value, default):
            words.append(f"{key}={_value_text(value, key)}")
    words += [f"{key}={_value_text(value, key)}" for key, value in call.arguments.items() if key not in declared]
    name = call.name.removeprefix("layers.")
    return f"{name}({', '.join(words)})" if words or name != call.name else name


@dataclass(frozen=True)
class Default:
    """An argument whose default in Keras differs from PyTorch's."""

    layer: Annotated[str, about("The Keras layer.")]
    argument: Annotated[str, about("Name of the layer's argument.")]
    keras: Annotated[object, about("Default of the argument.")]
    setting: Annotated[str, about("Name of the corresponding hyper-parameter in PyTorch.")]
    torch: Annotated[object, about("Default of the hyper-parameter.")]
    needed: Annotated[object, about("Required value of the argument.")]

    def __str__(self) -> str:
        torch_text = "" if self.setting == self.argument else self.setting
        if not equal(self.torch, self.needed):
            torch_text = f"{self.setting} {short(self.torch)}"
        suffix = f" ({torch_text})" if torch_text else ""
        return f"{self.layer}: {self.argument} is {short(self.keras)} by default, here {short(self.needed)}{suffix}"


def differing(torch_class: str, settings: Settings, call: KerasCall) -> Iterator[Default]:
    """Arguments whose default differs in Keras, if the layer has PyTorch's default, which its code does not show."""
    torch, keras = parameters(torch_class) if torch_class else {}, defaults(call.name)
    for key, value in call.arguments.items():
        if isinstance(value, KerasCall):
            yield from differing(torch_class, settings, value)
        setting, default = call.origin.get(key, ""), keras.get(key, _EMPTY)
        if setting not in torch or default is _EMPTY or torch[setting] is _EMPTY or equal(value, default):
            continue
        if equal(settings.get(setting), torch[setting]):
            yield Default(call.name.removeprefix("layers."), key, default, setting, torch[setting], value)


def exists(name: str) -> bool:
    return find_symbol(name) is not None


def find_symbol(name: str) -> Any:
    """The layer's class or the function; ``None`` if the installed Keras does not have it."""
    import keras

    attribute: Any = keras
    for part in name.split("."):
        attribute = getattr(attribute, part, None)
    return attribute


@cache
def defaults(name: str) -> Mapping[str, object]:
    """The arguments of a layer or a function, without the tensor, and their defaults."""
    function = find_symbol(name)
    if function is None:
        return {}
    named = [parameter for parameter in inspect.signature(function).parameters.values()
             if parameter.kind is not parameter.VAR_KEYWORD]  # fmt: skip
    return {parameter.name: parameter.default for parameter in (named if name.startswith("layers.") else named[1:])}


def _value_text(value: object, name: str) -> str:
    return call_text(value) if isinstance(value, KerasCall) else short(value, name)


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
    "repeat": ("tile", {}), "one_hot": ("one_hot", {}), "topk": ("top_k", {"k": ("k", 1)}), "norm": ("norm", {}),
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
    # With correction 0 both divide by n.
    if function in ("var", "std", "median"):
        if function == "median" or arguments.get("correction", 1) not in (0, False):
            return Counterpart((), tuple(notes))
        notes = []
    if function in ("max", "min") and "dim" in arguments and 1 in call.used:
        notes.append(f"its indices are read: ops.arg{function} in Keras")
    values = {key: arguments.get(torch_name, usual) for key, (torch_name, usual) in more.items()}
    keras: dict[str, object] = {key: value for key, value in values.items() if isinstance(value, (int, float, tuple))}
    if isinstance(order := keras.get("order"), float) and order % 1 == 0:
        keras["order"] = int(order)  # Keras takes no 2.0
    if function == "norm" and arguments.get("p", "fro") not in ("fro", None):
        keras["ord"] = arguments["p"]
    if function in _DIVIDING:
        keras["indices_or_sections"] = _sections(function, arguments, call)
    along = _along(function, arguments, call)
    if function == "topk" and along.pop("axis", -1) in (-1, len(call.shape) - 1):
        notes = []
    return Counterpart((KerasCall(f"ops.{name}", keras | along),), tuple(notes))


def _along(function: str, arguments: Mapping[str, Any], call: TorchCall) -> dict[str, object]:
    """The axis of a function, in Keras's layout."""
    rank = len(call.shape)
    if function == "stack":
        # stack adds an axis, so an axis counted from the end is one further than in its inputs.
        position = (dims(arguments.get("dim", 0), rank + 1) or [0])[0]
        call_axes = call.axes or ()
        order = keras_permutation((*call_axes[:position], (Atom("n", 2),), *call_axes[position:]))
        return {"axis": position if order is None else order.index(position)}
    # Without `dim` most functions reduce all axes, these few take the first.
    torch = dims(arguments.get("dim", arguments.get("dims")), rank)
    if not torch and function in ("cat", "unbind", *_DIVIDING):
        torch = [0]
    if not torch:
        return {}
    keras = [keras_axis(call.axes, index) for index in torch]
    # The last axis is written as -1, which is right for any rank.
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
        # torch.chunk rounds the size up, so that it may return fewer chunks than requested.
        chunk = -(-size // int(arguments.get("chunks", 1)))
        sizes = [min(chunk, size - start) for start in range(0, size, chunk)]
    else:
        places = arguments.get("indices_or_sections")
        return int(places) if isinstance(places, int) else tuple(numbers(places))
    if len(set(sizes)) == 1:
        return len(sizes)
    return tuple(accumulate(sizes[:-1]))


def finder(kind: Kind) -> FindCounterpart | None:
    """The function that finds the counterpart of a module of this kind; ``None`` for a container."""
    declared = kind.call
    if declared is None:
        return None

    def find(name: str, settings: Settings, call: TorchCall) -> Counterpart:
        if callable(declared):
            counterpart = declared(name, settings, call)
        else:
            # A function's call does not state all of them.
            stated = {**parameters(name), **settings}
            values = {key: stated[setting] for key, setting in declared.arguments.items()}
            counterpart = Counterpart((layer(declared.layer, values, **declared.arguments),))
        if counterpart.partial is not None:
            *notes, rest = counterpart.notes
            counterpart = replace(counterpart, notes=(*notes, f"{call_text(counterpart.partial)}{rest}"))
        return replace(counterpart, kind=counterpart.kind or (kind.name if kind.name in KINDS else ""))

    return find


LAYERS: Mapping[str, FindCounterpart] = MappingProxyType({
    # Reversed, so that of two kinds with one class the first in the catalogue is kept.
    torch_class.short: find
    for kind in reversed(CATALOGUE) if (find := finder(kind)) is not None
    for torch_class in kind.torch if not torch_class.short.startswith("_")
})  # fmt: skip
"""Functions that find the counterpart of a module, by its class in ``torch.nn``; such a module is one step. Of a class
in several kinds, the first kind's function finds it."""

_SILENT = frozenset((
    "add", "sub", "mul", "div", "rsub", "rdiv", "neg", "pow", "rpow", "gt", "lt", "ge", "le", "eq", "ne",
    "logical_and", "logical_or", "logical_not", "getitem", "setitem", "matmul", "rmatmul", "floor_divide",
))  # fmt: skip
"""Operators that are the same in Keras."""


def of_function(name: str, arguments: Mapping[str, Any], call: TorchCall) -> tuple[Counterpart, str]:
    """The counterpart of a function in Keras, and its text, which may be ""."""
    function = canonical(name)
    if function == "pad":
        counterpart = _pad(arguments, call)
    elif function in FUNCTIONS:
        module = FUNCTIONS[function].module
        counterpart = LAYERS[module](module, function_settings(function, arguments), call)
    elif function in _SILENT:
        return Counterpart(), _picked(arguments, call) if function == "getitem" else ""
    else:
        counterpart = operation(function, arguments, call)
    return counterpart, " -> ".join(map(call_text, counterpart.calls)) or counterpart.move


def layer_of(function: str) -> str:
    """The class in ``torch.nn`` that is equivalent to a function; "" for none."""
    return FUNCTIONS[function].module if function in FUNCTIONS else ""


def function_settings(function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters of the equivalent layer: a function's arguments (for tensors, whether they are given), and
    those that its weights and defaults determine."""
    weight = arguments.get("weight")
    shape = tuple(map(int, weight.shape)) if isinstance(weight, TracedTensor) else ()
    plain = {key: isinstance(value, TracedTensor) or value for key, value in arguments.items()
             if key not in ("input", "more")}  # fmt: skip
    return {**FUNCTIONS[function].settings(shape, plain), **plain}


def _pad(arguments: Mapping[str, Any], call: TorchCall) -> Counterpart:
    rank = len(call.shape) - 2
    spatial = any(atom.space >= 0 for group in (call.axes or ())[2:] for atom in group)
    if not spatial or rank not in (1, 2, 3):
        return Counterpart((), (PADDING_ORDER,))
    mode, value = arguments.get("mode", "constant"), float(arguments.get("value") or 0.0)
    return padding(arguments.get("pad", ()), mode, value, rank)


def _picked(arguments: Mapping[str, Any], call: TorchCall) -> str:
    """The index of an image in Keras's layout; "" if it is the same."""
    index = arguments.get("index")
    items = list(index) if isinstance(index, tuple) else [index]
    order = keras_permutation(call.axes) if call.axes else None
    if order is None or any(item is None or item is ... or isinstance(item, (TracedTensor, tuple)) for item in items):
        return ""
    items += [Slice(None, None, None)] * (len(order) - len(items))
    return f"x[{index_text(tuple(items[axis] for axis in order), lambda _: '')}]"


def of_move(move: AxisMove) -> tuple[str, tuple[str, ...]]:
    """A rearrangement in Keras, where images have channels last, and notes on it."""
    before, after = keras_order(move.before), keras_order(move.after)
    if before == move.before and after == move.after:
        return "", ()
    if before == after:
        return "nothing: Keras's layout already", ()
    mixed = [group for group in move.after if keras_group(group) != group]
    plain: Axes = tuple(keras_group(group) if group in mixed else group for group in after)
    rule = f"{text(before)} -> {text(plain)}"
    if mixed:
        ours, theirs = (" ".join(a.name for a in group) for group in (mixed[0], keras_group(mixed[0])))
        return rule, (f"PyTorch's order is ({ours}), that of Flatten in Keras ({theirs})",)
    return rule, ()
