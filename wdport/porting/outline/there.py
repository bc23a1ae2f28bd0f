"""The counterpart of a function of torch in Keras: that of its layer, or a function of ``keras.ops``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wdport.mapping.kinds import FUNCTIONS
from wdport.porting.outline.axes import Axes, Move, text
from wdport.porting.outline.counterparts import LAYERS, Counterpart, Given, resizing
from wdport.porting.outline.events import Seen, Slice
from wdport.porting.outline.expressions import index as written
from wdport.porting.outline.functions import canonical
from wdport.porting.outline.layout import keras_group, keras_order, moved
from wdport.porting.outline.operations import operation

_SILENT = frozenset((
    "add", "sub", "mul", "div", "rsub", "rdiv", "neg", "pow", "rpow", "gt", "lt", "ge", "le", "eq", "ne",
    "logical_and", "logical_or", "logical_not", "getitem", "setitem", "matmul", "rmatmul", "floor_divide",
))  # fmt: skip
"""Operators that are the same in Keras."""

_DROPPING = ("dropout", "dropout1d", "dropout2d", "dropout3d")
"""Functions that drop values unless they are told not to."""


def counterpart(name: str, told: Mapping[str, Any], given: Given) -> tuple[Counterpart, str]:
    """The counterpart of a function in Keras, and its text, which may be ""."""
    function = canonical(name)
    if function == "pad":
        found = _pad(told, given)
    elif function in FUNCTIONS:
        owner = FUNCTIONS[function].module
        found = LAYERS[owner](owner, _settings(function, told), given)
    elif function in _SILENT:
        return Counterpart(), _picked(told, given) if function == "getitem" else ""
    else:
        found = operation(function, told, given)
    if function in _DROPPING and told.get("training", True):
        found = replace(found, notes=(*found.notes, "training is true: it drops values in inference, too"))
    return found, " -> ".join(map(str, found.calls)) or found.move


def layer_of(function: str) -> str:
    """The class in ``torch.nn`` that is equivalent to a function; "" for none."""
    return FUNCTIONS[function].module if function in FUNCTIONS else ""


def _settings(function: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters of the equivalent layer: a function's arguments (for tensors, whether they are given), and
    those that its weights and defaults determine."""
    weight = told.get("weight")
    shape = tuple(map(int, weight.shape)) if isinstance(weight, Seen) else ()
    plain = {key: isinstance(value, Seen) or value for key, value in told.items() if key not in ("input", "more")}
    return {**FUNCTIONS[function].settings(shape, plain), **plain}


def _pad(told: Mapping[str, Any], given: Given) -> Counterpart:
    rank = len(given.shape) - 2
    widths = told.get("pad", ())
    spatial = any(atom.space >= 0 for group in (given.axes or ())[2:] for atom in group)
    if not spatial or rank not in (1, 2, 3):
        return Counterpart("", (), (resizing.ORDER,))
    return resizing.padded(widths, told.get("mode", "constant"), float(told.get("value") or 0.0), rank)


def _picked(told: Mapping[str, Any], given: Given) -> str:
    """The index of an image in Keras's layout; "" if it is the same."""
    index = told.get("index")
    items = list(index) if isinstance(index, tuple) else [index]
    order = moved(given.axes) if given.axes else None
    if order is None or any(item is None or item is ... or isinstance(item, (Seen, tuple)) for item in items):
        return ""
    items += [Slice(None, None, None)] * (len(order) - len(items))
    return f"x[{written(tuple(items[at] for at in order), lambda _: '')}]"


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
        ours, theirs = (" ".join(a.name for a in each) for each in (mixed[0], keras_group(mixed[0])))
        return rule, (f"PyTorch's order is ({ours}), that of Flatten in Keras ({theirs})",)
    return rule, ()
