"""Runs a traced model again, call by call, from nothing but its trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from wdport.porting.outline.functions import Event, Slice, TensorSource, Trace, TracedTensor
from wdport.porting.outline.steps import is_layer, needed
from wdport.porting.outline.trace import trace
from wdport.recorder import CASES, build_alone, lifted, parse_inputs

Values = dict[TensorSource, torch.Tensor]


def replayed(target: str, inputs: Sequence[str]) -> tuple[torch.nn.Module, Trace, Values, list[np.ndarray]]:
    """The model, its trace, what every call that the outputs need gives when it is run again, and the inputs."""
    told = parse_inputs(inputs)
    module, _ = build_alone(target)
    arrays = [each.make(0, CASES[0].batch, 1.0) for each in told]
    run = trace(module, [each.name for each in told], arrays, is_layer)
    kept = needed(run)
    values: Values = {
        TensorSource("input", each.name): torch.tensor(array) for each, array in zip(told, arrays, strict=True)
    }
    with torch.no_grad(), lifted():
        for event in run.events:
            if event.serial in kept and (event.module is None or event.is_layer):
                replay(event, values, module)
    return module, run, values, arrays


def replay(event: Event, values: dict[TensorSource, torch.Tensor], module: torch.nn.Module) -> None:
    """One call, its outputs put among the values."""

    def given(value: Any) -> Any:
        if isinstance(value, TracedTensor):
            return stored(value.source)
        if isinstance(value, dict):
            return {key: given(item) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(given(item) for item in value)
        if isinstance(value, Slice):
            return slice(given(value.start), given(value.stop), given(value.step))
        if isinstance(value, str) and value.startswith("torch."):
            return getattr(torch, value.removeprefix("torch."))
        return None if isinstance(value, str) and value in ("cpu", "strided") else value

    def stored(source: TensorSource) -> torch.Tensor:
        if source.kind in ("parameter", "buffer"):
            return module.get_parameter(source.name) if source.kind == "parameter" else module.get_buffer(source.name)
        return values[source]

    if event.module is not None:
        output = event.module(**given(dict(event.kwargs)))
    else:
        function = found(event.name)
        args, kwargs = given(event.args), given(dict(event.kwargs))
        if event.name.endswith("_"):  # in place: the values before it must stay
            args = (args[0].clone(), *args[1:])
        output = function(*args, **kwargs)
        output = args[0] if event.name.endswith("__setitem__") else output
    for seen, value in zip(event.outputs, tensors(output), strict=True):
        values[seen.source] = value


def found(name: str) -> Any:
    value: Any = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value if callable(value) else lambda x: value.__get__(x)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
