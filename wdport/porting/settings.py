"""The hyper-parameters of a PyTorch layer by name, and the text of its constructor."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_overloads

from wdport.mapping.kinds import MODULES
from wdport.mapping.kinds.kind import Settings

if TYPE_CHECKING:
    import torch

_EMPTY = inspect.Parameter.empty

_RENAMED: Mapping[str, str] = MappingProxyType({"NonDynamicallyQuantizableLinear": "Linear"})
"""Classes that are treated as another class."""

_SHAPES = ("unflattened_size", "target_shape", "newshape", "shape")
_LISTS = ("normalized_shape", "axes", "axis", "dims")
"""Arguments without one value per axis: tuples of the first are always written in full, those of the second unless they
have one element."""

_SILENT = ("device", "dtype", "inplace", "init", "_weight", "_freeze", "sparse", "scale_grad_by_freq")
"""Parameters that do not affect inference."""


def torch_class(module: torch.nn.Module | type[torch.nn.Module]) -> str:
    """The class of ``torch.nn`` whose ``forward`` a module or a class runs, such as ``Conv2d``; "" if there is none."""
    kind = module if isinstance(module, type) else type(module)
    for base in kind.__mro__:
        if base.__module__.startswith("torch.nn.modules") and base.__name__ != "Module":
            # A subclass with its own forward may compute anything.
            inherits_forward = kind.forward is getattr(base, "forward", None)
            return _RENAMED.get(base.__name__, base.__name__) if inherits_forward else ""
    return ""


def settings_of(module: torch.nn.Module) -> dict[str, Any]:
    name = torch_class(module)
    settings = {key: _plain(getattr(module, key)) for key in parameters(name, type(module)) if hasattr(module, key)}
    return {**settings, **(MODULES[name].settings(module) if name in MODULES else {})}


def parameters(name: str, kind: type | None = None) -> Mapping[str, object]:
    """The parameters of a constructor with their defaults."""
    import torch

    owner = getattr(torch.nn, name, kind)
    if owner is None:
        return {}
    stated = _signature(owner)
    overloads = [] if stated else get_overloads(getattr(owner, "__init__"))
    for overload in overloads:  # of *args and **kwargs, which the constructor hands on to its base class
        base = {key: default for key, default in _signature(owner.__base__).items() if default is not _EMPTY}
        stated |= {key: default for key, default in {**_signature(overload), **base}.items() if key != "self"}
    return stated


def _signature(function: Any) -> dict[str, object]:
    """The parameters of a function other than ``*args`` and ``**kwargs``, with their defaults."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    listed = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in listed if parameter.kind not in variadic}


def _plain(value: object) -> object:
    import torch

    if isinstance(value, torch.Tensor):
        return True
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_plain(element) for element in value)
    return str(value)


def torch_text(name: str, settings: Settings) -> str:
    """The constructor as source text: ``Conv2d(3, 64, 3, stride=2)``."""
    words, by_name = [], False
    for position, (key, default) in enumerate(parameters(name).items()):
        if key in _SILENT or key not in settings:
            continue
        value = settings[key]
        if key == "bias" and value is None:
            # A norm without scale and shift has no bias either, whatever its argument.
            value = False in (settings.get("affine"), settings.get("elementwise_affine"))
        if default is _EMPTY and not by_name:
            words.append(short(value, key))
            continue
        by_name = True
        absent = key == "bias" and not default and value is False
        absent |= key in ("kdim", "vdim") and value == settings.get("embed_dim")
        # A pooling layer stores its kernel size as the stride if none is given.
        follows = key == "stride" and default is None and value == settings.get("kernel_size")
        if not equal(value, default) and not absent and not follows:
            words.append(short(value, key) if position == 0 else f"{key}={short(value, key)}")
    return f"{name}({', '.join(words)})"


def short(value: object, name: str = "") -> str:
    """The value of the argument ``name`` as source text: ``3`` for ``(3, 3)`` unless it is a shape, ``1e-05`` for a
    float."""
    if isinstance(value, (tuple, list)):
        uniform = bool(value) and isinstance(value[0], int) and len(set(value)) == 1 and name not in _SHAPES
        if uniform and (len(value) == 1 or name not in _LISTS):
            return short(value[0])
        listed = ", ".join(short(element, "shape") for element in value)
        return f"({listed},)" if len(value) == 1 else f"({listed})"
    if isinstance(value, str):
        return f'"{value}"'
    # `g` drops the `.0` of a whole number, and repr keeps the digits that `g` would round.
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else f"{value!r}"
    return str(value)


def equal(a: object, b: object) -> bool:
    """Whether two values mean the same; a number is equivalent to that number for every axis."""
    return a == b or _collapsed(a) == _collapsed(b)


def _collapsed(value: object) -> object:
    if isinstance(value, (tuple, list)) and value and len({repr(element) for element in value}) == 1:
        return value[0]
    return value


def parametrised(module: torch.nn.Module) -> list[str]:
    """Notes on weights that are computed from others, which the layer's text does not show."""
    notes = []
    for name, transforms in getattr(module, "parametrizations", {}).items():
        kinds = ", ".join(type(part).__name__.strip("_") for part in transforms)
        folded = "Spectral" in kinds
        notes.append(f"{name} is parametrised ({kinds}): " + (
            "fold it first (torch.nn.utils.parametrize.remove_parametrizations)" if folded
            else "the row reads the stored tensors" if "WeightNorm" in kinds
            else "store the weight itself"))  # fmt: skip
    if any(name.endswith("_g") for name, _ in module.named_parameters(recurse=False)):
        notes.append("its weight is stored by weight_norm, which the row reads")
    return notes
