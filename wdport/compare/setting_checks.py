"""Comparison of one hyper-parameter of two layers: whether two values agree, or the value expected in Keras.

Checks in :data:`ALIKE` decide whether two values mean the same. Those in :data:`EXPECTED` return the value that the
port's layer should have, or :data:`UNKNOWN` if it cannot be determined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wdport.compare.pairs import Pair, is_keras
from wdport.compare.setting_values import equal, named
from wdport.mapping.kinds import CATALOGUE

UNKNOWN = object()

FLOAT32_EPSILON = 2.0**-23
"""``torch.finfo(torch.float32).eps``, which an epsilon of None means."""

NORMS = tuple(
    {name for kind in CATALOGUE if any(check.keras == "axis" for check in kind.compared) for name in kind.keras}
)
"""Layers of Keras with an ``axis`` of features or channels."""


def _epsilon(theirs: object, ours: object, _: Pair) -> bool:
    return equal(FLOAT32_EPSILON if theirs is None else theirs, ours)


def _tuple(theirs: object, ours: object, pair: Pair) -> bool:
    if ours is None:  # an output padding that Keras works out
        return not any(every(theirs))
    if theirs is None:
        return True
    first, second = every(theirs), every(ours)
    if not isinstance(theirs, (tuple, list)) or not isinstance(ours, (tuple, list)):
        count = max(len(first), len(second))
        return _filled(first, count) == _filled(second, count)
    if len(first) > len(second):  # a (k, 1) window as one of one axis
        window = _filled(every(getattr(pair.module, "kernel_size", 1)), len(first))
        first = [size for size, window_size in zip(first, window, strict=True) if window_size != 1]
    return len(first) != len(second) or first == second


def every(value: Any) -> list[int]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _filled(values: list[int], count: int) -> list[int]:
    return values * count if len(values) == 1 else values


def _padding(theirs: object, ours: object, pair: Pair) -> bool:
    """Compare paddings: ``valid`` pads nothing, ``same`` with a stride of one pads both sides to keep the size."""
    module = pair.module
    if isinstance(theirs, str) or not isinstance(ours, str):
        return bool(theirs == ours)
    widths = every(theirs)
    if ours == "valid":
        return not any(widths) or pair.padded
    # settings.py compares these for the recorded size.
    if any(stride != 1 for stride in every(getattr(module, "stride", 1))):
        return True  # depends on the size
    windows, dilations = every(module.kernel_size), every(getattr(module, "dilation", 1))
    count = max(map(len, (widths, windows, dilations)))
    rows = zip(*(_filled(values, count) for values in (widths, windows, dilations)), strict=True)
    return all(2 * width == dilation * (window - 1) for width, window, dilation in rows)


def _zeros(theirs: object, _: object, pair: Pair) -> bool:
    """Compare the padding mode; a port that pads separately, or not at all, is compared by its padding."""
    return theirs == "zeros" or getattr(pair.layer, "padding", "") == "valid"


def _counted(theirs: object, ours: object, pair: Pair) -> bool:
    """Whether the mean includes padding: Keras never includes its own, and always what the port pads separately."""
    if ours == "valid":
        return bool(theirs) or not pair.padded
    return not theirs or not any(every(pair.module.padding))


def _names(theirs: object, ours: object, _: Pair) -> bool:
    return not isinstance(theirs, str) or theirs == named(ours)


def _time(theirs: object, _: object, pair: Pair) -> bool:
    """Time-first inputs stay so only if the port's layer is given the reference's input."""
    same_input = len(pair.fed) == 3 and pair.fed == pair.input_shape and pair.fed[0] != pair.fed[1]
    return theirs is not False or not same_input


ALIKE: Mapping[str, Callable[[object, object, Pair], bool]] = {
    "equal": equal,
    "epsilon": _epsilon,
    "tuple": _tuple,
    "padding": _padding,
    "zeros": _zeros,
    "counted": _counted,
    "present": lambda theirs, ours, _: (theirs is not None and theirs is not False) == bool(ours),
    "none": lambda theirs, _, __: not theirs if not hasattr(theirs, "shape") else False,
    "true": lambda theirs, ours, __: bool(theirs if ours is None else ours),
    "ones": lambda theirs, _, __: set(every(theirs)) == {1},
    "unit": lambda _, ours, __: set(every(ours)) <= {1},
    "ceil": lambda theirs, ours, _: not theirs or ours != "valid",
    "names": _names,
    "needed": lambda theirs, _, __: bool(theirs),
    "time": _time,
}


def _channels(_: object, ours: object, pair: Pair) -> object:
    """The channels axis: the axis that a norm keeps, or ``data_format`` of a layer with windows."""
    channels_axis = pair.channels()
    if channels_axis is None or pair.rank < 2:
        return UNKNOWN
    if isinstance(ours, str):
        words = {"channels_first": 1, "channels_last": pair.rank - 1}
        fitting = (word for word, axis in words.items() if axis == channels_axis and ours in words)
        return next(fitting, UNKNOWN)
    if not isinstance(ours, int) or not is_keras(pair.layer, *NORMS):
        return UNKNOWN
    return ours if ours % pair.rank == channels_axis else channels_axis


def _shape(theirs: object, ours: object, pair: Pair) -> object:
    """The port's axes that correspond to the last axes of PyTorch's layer."""
    if not is_keras(pair.layer, *NORMS) or not pair.rank:
        return UNKNOWN
    expected = pair.axes(range(-len(every(theirs)), 0))
    same = expected == tuple(sorted(axis % pair.rank for axis in every(ours)))
    return UNKNOWN if expected is None or same else list(expected)


def _shared(theirs: object, ours: object, pair: Pair) -> object:
    """All axes except the batch and the channels; a single slope for all values cannot be misplaced."""
    channels_axis = pair.channels()
    if channels_axis is None or theirs == 1 or not is_keras(pair.layer, "PReLU"):
        return UNKNOWN
    return [axis for axis in range(1, pair.rank) if axis != channels_axis] or (UNKNOWN if not ours else [])


def _instance(theirs: object, ours: object, pair: Pair) -> object:
    """A layer without a number of groups has one per channel."""
    return UNKNOWN if hasattr(pair.module, "num_groups") or ours == -1 else theirs


def _masked(_: object, ours: object, __: Pair) -> object:
    """A mask that later layers get; the reference's embedding makes none, whatever its ``padding_idx``."""
    return False if ours is True else UNKNOWN


def _flat(_: object, ours: object, pair: Pair) -> object:
    channels_axis = pair.channels()
    return "channels_last" if ours == "channels_first" and pair.rank > 2 and channels_axis == pair.rank - 1 else UNKNOWN


def _margins(theirs: object, ours: object, pair: Pair) -> object:
    """PyTorch lists (before, after) of the last axis first; a negative width crops."""
    widths = every(theirs)
    sign = -1 if is_keras(pair.layer, "Cropping1D", "Cropping2D", "Cropping3D") else 1
    pairs = [(sign * widths[index], sign * widths[index + 1]) for index in range(len(widths) - 2, -1, -2)]
    return pairs[0] if len(pairs) == 1 else tuple(pairs)


EXPECTED: Mapping[str, Callable[[object, object, Pair], object]] = {
    "complement": lambda theirs, ours, _: (
        1 - theirs if isinstance(theirs, float) and isinstance(ours, float) else UNKNOWN
    ),
    "channels": _channels,
    "shape": _shape,
    "shared": _shared,
    "instance": _instance,
    "masked": _masked,
    "flat": _flat,
    "margins": _margins,
}
