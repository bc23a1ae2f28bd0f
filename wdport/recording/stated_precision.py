"""What a float32 module computes in float64, as its code states, and its outputs with only that in float64."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Callable, Collection, Mapping, Sequence

import numpy as np

from .calls import Outputs, cast
from .float64 import lifted
from .nested import tensors_of, to_array
from .runs import run
from .torch_functions import functions, highest_precision
from .watching import watched

if TYPE_CHECKING:
    from torch import Tensor
    from torch import dtype as Dtype
    from torch.nn import Module

    from .shared_types import Array, Compute, Given, Nested


def stated_float64(
    single: Module, inputs: Sequence[Nested], names: Collection[str] = ()
) -> dict[tuple[str, str], bool]:  # fmt: skip
    """What a float32 module computes in float64, as its code states: by call of these submodules, "" for the module
    itself, "fed" for what is computed before the call, and "made" for its outputs. True if the same code also states
    float32 for numbers that are float32 already."""
    import torch

    wide, narrow = (torch.float64, torch.complex128), (torch.float32, torch.complex64)
    marks: dict[int, tuple[Tensor, frozenset[Dtype]]] = {}
    places: dict[tuple[str, str], bool] = {}

    def watch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        name, arguments = getattr(function, "__name__", ""), tensors_of([*args, *kwargs.values()])
        result = function(*args, **kwargs)
        stated: set[Dtype] = set()
        stated.update(*(marks[id(tensor)][1] for tensor in arguments if id(tensor) in marks))
        results = tensors_of(args[:1] if result is None else result)
        if any(tensor.dtype in wide and tensor.numel() > 1 for tensor in results):
            stated.add(torch.float64)
        float32 = name == "float" or any(value is torch.float32 for value in (*args, *kwargs.values()))
        if float32 and arguments and arguments[0].dtype in narrow:
            stated.add(torch.float32)
        if stated:
            marks.update({id(tensor): (tensor, frozenset(stated)) for tensor in results})
        return result

    def keep(name: str, _: str, __: Module, compute: Compute, arguments: Given) -> object:
        fed = {id(tensor) for tensor in note(name, "fed", [*arguments])}
        outside = {key: marks.pop(key) for key in fed.intersection(marks)}
        output = compute(*arguments)
        marks.update(outside)
        for tensor in note(name, "made", output):
            marks.pop(id(tensor), None)
        return output

    def note(name: str, part: str, value: object) -> list[Tensor]:
        stated = [marks[id(tensor)][1] for tensor in tensors_of(value) if id(tensor) in marks]
        if any(torch.float64 in dtypes for dtypes in stated):
            places[name, part] = any(torch.float32 in dtypes for dtypes in stated)
        return tensors_of(value)

    parts = {name: part for name, part in single.named_modules() if not name or name in names}
    with functions(watch), watched(parts, keep):
        run(single, inputs)
    return places


def run_as_stated(modules: Mapping[str, Module], inputs: Sequence[Array]) -> Outputs:
    """The float64 outputs with those results rounded to float32 that the code of the float32 module makes of float64:
    both modules call the same functions in the same order."""
    import torch

    narrowing: set[int] = set()
    calls = itertools.count()

    def watch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        index, result = next(calls), function(*args, **kwargs)
        wide = any(tensor.dtype == torch.float64 for tensor in tensors_of([*args, *kwargs.values()]))
        if wide and isinstance(result, torch.Tensor) and result.dtype == torch.float32:
            narrowing.add(index)
        return result

    def rounded(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        index, result = next(calls), function(*args, **kwargs)
        return torch.from_numpy(cast(to_array(result), np.float32).astype(np.float64)) if index in narrowing else result

    with highest_precision(), functions(watch):
        run(modules["float32"], cast(tuple(inputs), np.float32))
    calls = itertools.count()
    with highest_precision(), lifted(), functions(rounded):
        return run(modules["float64"], inputs)
