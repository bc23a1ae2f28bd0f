"""The counterpart of a function of torch in Keras: that of its layer, or a function of ``keras.ops``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from wdport.porting.outline.axes import Axes, Move, text
from wdport.porting.outline.counterparts import LAYERS, Counterpart, Given, resizing
from wdport.porting.outline.events import Seen, Slice
from wdport.porting.outline.expressions import index as written
from wdport.porting.outline.functions import canonical
from wdport.porting.outline.layout import keras_group, keras_order, moved
from wdport.porting.outline.operations import operation

_ACTIVATIONS: Mapping[str, str] = MappingProxyType({
    "relu": "ReLU", "relu6": "ReLU6", "leaky_relu": "LeakyReLU", "elu": "ELU", "celu": "CELU", "selu": "SELU",
    "gelu": "GELU", "silu": "SiLU", "hardswish": "Hardswish", "sigmoid": "Sigmoid", "hardsigmoid": "Hardsigmoid",
    "tanh": "Tanh", "hardtanh": "Hardtanh", "mish": "Mish", "softplus": "Softplus", "softsign": "Softsign",
    "logsigmoid": "LogSigmoid", "log_sigmoid": "LogSigmoid", "tanhshrink": "Tanhshrink", "softshrink": "Softshrink",
    "hardshrink": "Hardshrink", "threshold": "Threshold", "softmax": "Softmax", "log_softmax": "LogSoftmax",
    "softmin": "Softmin", "glu": "GLU", "dropout": "Dropout", "pixel_shuffle": "PixelShuffle",
    "pixel_unshuffle": "PixelUnshuffle", "interpolate": "Upsample", "dropout1d": "Dropout1d",
    "dropout2d": "Dropout2d", "dropout3d": "Dropout3d", "alpha_dropout": "AlphaDropout",
    **{f"{which}_pool{n}d": f"{which.title()}Pool{n}d" for which in ("max", "avg") for n in (1, 2, 3)},
    **{f"adaptive_{which}_pool{n}d": f"Adaptive{which.title()}Pool{n}d" for which in ("max", "avg") for n in (1, 2, 3)},
})  # fmt: skip

WEIGHTED: Mapping[str, str] = MappingProxyType({
    "linear": "Linear", "embedding": "Embedding", "layer_norm": "LayerNorm", "rms_norm": "RMSNorm",
    "group_norm": "GroupNorm", "batch_norm": "BatchNorm2d", "instance_norm": "InstanceNorm2d", "prelu": "PReLU",
    **{f"conv{n}d": f"Conv{n}d" for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": f"ConvTranspose{n}d" for n in (1, 2, 3)},
})  # fmt: skip
"""Functions with weight arguments, and the equivalent layer."""

_SILENT = frozenset((
    "add", "sub", "mul", "div", "rsub", "rdiv", "neg", "pow", "rpow", "gt", "lt", "ge", "le", "eq", "ne",
    "logical_and", "logical_or", "logical_not", "getitem", "setitem", "matmul", "rmatmul", "floor_divide",
))  # fmt: skip
"""Operators that are the same in Keras."""


def counterpart(name: str, told: Mapping[str, Any], given: Given) -> tuple[Counterpart, str]:
    """The counterpart of a function in Keras, and its text, which may be ""."""
    function = canonical(name)
    if function == "pad":
        found = _pad(told, given)
    elif function in WEIGHTED or function in _ACTIVATIONS:
        owner = WEIGHTED.get(function) or _ACTIVATIONS[function]
        found = LAYERS[owner](owner, {**_settings(function, told), **_plain(told)}, given)
    elif function in _SILENT:
        return Counterpart(), _picked(told, given) if function == "getitem" else ""
    else:
        found = operation(function, told, given)
    if function == "dropout" and told.get("training", True):
        found = replace(found, notes=(*found.notes, "training is true: it drops values in inference, too"))
    return found, " -> ".join(map(str, found.calls)) or found.move


def layer_of(function: str) -> str:
    """The class in ``torch.nn`` that is equivalent to a function; "" for none."""
    return WEIGHTED.get(function) or _ACTIVATIONS.get(function, "")


def _plain(told: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that are not tensors; for tensors, whether they are given."""
    return {key: isinstance(value, Seen) or value for key, value in told.items() if key not in ("input", "more")}


def _settings(function: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters determined by a function's weights and defaults."""
    weight = told.get("weight")
    shape = tuple(map(int, weight.shape)) if isinstance(weight, Seen) else ()
    groups = int(told.get("groups", 1))
    if function.startswith("conv_transpose"):
        return {"in_channels": shape[0], "out_channels": shape[1] * groups, "kernel_size": shape[2:]}
    if function.startswith("conv"):
        return {"in_channels": shape[1] * groups, "out_channels": shape[0], "kernel_size": shape[2:]}
    if function == "linear":
        return {"out_features": shape[0], "in_features": shape[1]}
    if function == "embedding":
        return {"num_embeddings": shape[0], "embedding_dim": shape[1]}
    if function == "prelu":
        return {"num_parameters": shape[0] if shape else 1}
    affine = weight is not None
    found: dict[str, dict[str, Any]] = {
        "layer_norm": {"eps": 1e-5, "elementwise_affine": affine, "bias": told.get("bias") is not None},
        "rms_norm": {"eps": None, "elementwise_affine": affine},
        "group_norm": {"eps": 1e-5, "affine": affine},
        "batch_norm": {"eps": 1e-5, "affine": affine, "track_running_stats": not told.get("training", False)},
        "instance_norm": {"eps": 1e-5, "affine": affine},
        "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    }
    return found.get(function, {})


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
