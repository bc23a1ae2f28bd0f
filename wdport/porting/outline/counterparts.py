"""The counterparts in Keras of layers and functions of torch, by the kinds of the catalogue and by ``keras.ops``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from wdport.mapping.kinds import CATALOGUE, FUNCTIONS, KINDS, Kind
from wdport.mapping.kinds.counterpart import Counterpart, FindCounterpart, Settings, TorchCall, layer
from wdport.mapping.kinds.image_axes import Axes, keras_group, keras_order, keras_permutation
from wdport.mapping.kinds.resizing import PADDING_ORDER, padding
from wdport.porting.outline.axes import Move, text
from wdport.porting.outline.events import Slice, TracedTensor
from wdport.porting.outline.expressions import index as index_text
from wdport.porting.outline.functions import canonical
from wdport.porting.outline.keras_calls import call_text
from wdport.porting.outline.operations import operation
from wdport.porting.outline.settings import parameters


def finder(kind: Kind) -> FindCounterpart | None:
    """The function that finds the counterpart of a module of this kind; ``None`` for a container."""
    declared = kind.call
    if declared is None:
        return None

    def find(name: str, settings: Settings, call: TorchCall) -> Counterpart:
        if callable(declared):
            counterpart = declared(name, settings, call)
        else:
            values = {key: _setting_value(name, settings, setting) for key, setting in declared.arguments.items()}
            counterpart = Counterpart((layer(declared.layer, values, **declared.arguments),))
        if counterpart.partial is not None:
            *notes, rest = counterpart.notes
            counterpart = replace(counterpart, notes=(*notes, f"{call_text(counterpart.partial)}{rest}"))
        return replace(counterpart, kind=counterpart.kind or (kind.name if kind.name in KINDS else ""))

    return find


def _setting_value(name: str, settings: Settings, setting: str) -> object:
    """A hyper-parameter, or PyTorch's default if a function's call does not state it."""
    return settings[setting] if setting in settings else parameters(name)[setting]


LAYERS: Mapping[str, FindCounterpart] = MappingProxyType({
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
        counterpart = LAYERS[module](module, _settings(function, arguments), call)
    elif function in _SILENT:
        return Counterpart(), _picked(arguments, call) if function == "getitem" else ""
    else:
        counterpart = operation(function, arguments, call)
    return counterpart, " -> ".join(map(call_text, counterpart.calls)) or counterpart.move


def layer_of(function: str) -> str:
    """The class in ``torch.nn`` that is equivalent to a function; "" for none."""
    return FUNCTIONS[function].module if function in FUNCTIONS else ""


def _settings(function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters of the equivalent layer: a function's arguments (for tensors, whether they are given), and
    those that its weights and defaults determine."""
    weight = arguments.get("weight")
    shape = tuple(map(int, weight.shape)) if isinstance(weight, TracedTensor) else ()
    plain = {
        key: isinstance(value, TracedTensor) or value
        for key, value in arguments.items()
        if key not in ("input", "more")
    }
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


def of_move(move: Move) -> tuple[str, tuple[str, ...]]:
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
