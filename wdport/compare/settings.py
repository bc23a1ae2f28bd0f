"""Hyper-parameters of two layers that ought to be the same: what differs, in words.

They explain an error and never judge: a layer is right or wrong by what it computes. What one side does not state is
not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isclose
from typing import TYPE_CHECKING, Any

from wdport.compare.windows import differing
from wdport.mapping.kinds import KINDS, Compared
from wdport.model import KerasLayer

if TYPE_CHECKING:
    import torch

NEAR = 1e-5
"""Relative difference of numbers that are the same: 0.001 is kept as 0.0010000000475 in float32."""

_MISSING = object()

_EPSILONS = (2.0**-23, 2.0**-52)
"""``torch.finfo(dtype).eps`` of float32 and float64."""

_UNREAD = ("dropout", "p")
"""Rates of dropout: inference does not read them, so they explain nothing."""


def differences(
    kind: str, module: torch.nn.Module, layer: KerasLayer, given: Sequence[int] = (), made: Sequence[int] = ()
) -> list[str]:
    """What a PyTorch module and a Keras layer of this kind were told differently, such as "epsilon 0.001 where the
    reference has 1e-05".

    ``given`` is the shape of what the port's layer is given: paddings that are told differently may be the same on it.
    ``made`` is the shape that the reference makes of that.
    """
    windows = differing(module, layer, given, made) if given and has_windows(kind) else None
    found = [windows] if windows else []
    for each, theirs, ours in _pairs(kind, module, layer):
        check = None if windows is not None and each.how in ("padding", "ceil") else _CHECKS.get(each.how)
        if each.how == "zeros" and getattr(layer, "padding", "") == "valid":
            continue  # the port pads apart, or not at all, which the padding itself tells
        if check is not None and not check(theirs, ours, module):
            found.append(_told(each, theirs, ours))
    return found


def near_differences(kind: str, module: torch.nn.Module, layer: KerasLayer) -> dict[str, tuple[float, str]]:
    """Numbers that :func:`differences` takes for the same though they are not: by the layer's attribute, the
    reference's value and a sentence."""
    found = {}
    for each, theirs, ours in _pairs(kind, module, layer):
        if (
            each.how in ("equal", "epsilon")
            and isinstance(theirs, float)
            and theirs != ours
            and _equal(theirs, ours, module)
        ):
            found[each.keras] = (theirs, _told(each, repr(theirs), repr(ours)))
    return found


def _pairs(kind: str, module: torch.nn.Module, layer: KerasLayer) -> Iterator[tuple[Compared, object, object]]:
    """Hyper-parameters that both sides have."""
    for each in KINDS[kind].compared if kind in KINDS else ():
        if each.torch in _UNREAD:
            continue
        theirs = getattr(module, each.torch, _MISSING) if each.torch else None
        ours = getattr(layer, each.keras, _MISSING) if each.keras else None
        if theirs is not _MISSING and ours is not _MISSING:
            yield each, theirs, ours


def has_windows(kind: str) -> bool:
    """Whether a layer of this kind has windows, so that its settings set a size."""
    return kind in KINDS and any(each.keras == "padding" for each in KINDS[kind].compared)


def _told(each: Compared, theirs: object, ours: object) -> str:
    if not each.keras:
        return f"the reference has {each.torch} {_text(theirs)}, which the port's layer has no counterpart of"
    if not each.torch:
        return f"{each.keras} {_text(ours)}, which is not how the reference computes"
    name = each.keras if each.keras == each.torch else f"{each.keras} ({each.torch})"
    told = _text(theirs)
    if each.how == "present":
        told = f"no {each.torch}" if theirs is None or theirs is False else f"a {each.torch}"
    return f"{name} {_text(ours)} where the reference has {told}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (int, str, tuple, list)) or value is None:
        return str(value)
    return str(getattr(value, "__name__", type(value).__name__))


def _equal(theirs: object, ours: object, _: object) -> bool:
    if isinstance(theirs, (int, float)) and isinstance(ours, (int, float)):
        return isclose(theirs, ours, rel_tol=NEAR)
    return bool(theirs == ours)


def _epsilon(theirs: object, ours: object, module: object) -> bool:
    """None is the dtype's own, in the dtype of the reference or in that of the port."""
    return _equal(theirs, ours, module) if theirs is not None else any(_equal(own, ours, module) for own in _EPSILONS)


def _tuple(theirs: object, ours: object, _: object) -> bool:
    if ours is None:  # an output padding that Keras works out
        return not any(_all(theirs))
    first, second = _several(theirs), _several(ours)
    if len(first) != len(second):  # a (k, 1) window as one of one axis
        first, second = ([size for size in side if size != 1] for side in (first, second))
    return len(first) != len(second) or list(first) == list(second)


def _several(value: object) -> Sequence[object]:
    if isinstance(value, (tuple, list)):
        return value if len(set(value)) > 1 else value[:1]
    return [value]


def _padding(theirs: object, ours: object, module: torch.nn.Module) -> bool:
    """``valid`` pads nothing, ``same`` with a stride of one so much on both sides that the size stays."""
    if isinstance(theirs, str) or not isinstance(ours, str):
        return bool(theirs == ours)
    widths = _all(theirs)
    if ours == "valid":
        return not any(widths)
    if any(stride != 1 for stride in _all(getattr(module, "stride", 1))):
        return True  # depends on the size
    windows, dilations = _all(module.kernel_size), _all(getattr(module, "dilation", 1))
    count = max(map(len, (widths, windows, dilations)))
    rows = zip(*(_filled(each, count) for each in (widths, windows, dilations)), strict=True)
    return all(2 * width == dilation * (window - 1) for width, window, dilation in rows)


def _all(value: Any) -> list[int]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _filled(values: list[int], count: int) -> list[int]:
    return values * count if len(values) == 1 else values


def _counted(theirs: object, _: object, module: torch.nn.Module) -> bool:
    return not theirs or not any(_all(module.padding))


def _ceil(theirs: object, ours: object, _: object) -> bool:
    return not theirs or ours != "valid"


def _names(theirs: object, ours: object, _: object) -> bool:
    return not isinstance(theirs, str) or theirs == getattr(ours, "__name__", ours)


_CHECKS: Mapping[str, Callable[[object, object, torch.nn.Module], bool]] = {
    "equal": _equal,
    "epsilon": _epsilon,
    "tuple": _tuple,
    "padding": _padding,
    "zeros": lambda theirs, _, __: theirs == "zeros",
    "counted": _counted,
    "present": lambda theirs, ours, _: (theirs is not None and theirs is not False) == bool(ours),
    "none": lambda theirs, _, __: not theirs if not hasattr(theirs, "shape") else False,
    "true": lambda theirs, ours, __: bool(theirs if ours is None else ours),
    "ones": lambda theirs, _, __: set(_all(theirs)) == {1},
    "ceil": _ceil,
    "names": _names,
}
"""Momentum and the like, which inference does not read, are left out."""
