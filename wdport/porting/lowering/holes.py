"""Steps without a counterpart: each becomes the call of a method, whose body is left to the reader of the port."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from wdport.porting.functions import PARAMETERS, canonical
from wdport.porting.graph import CodePlace, Node, Size, Slice, TracedTensor
from wdport.porting.lowering.keras_graph import (
    MOST_NUMBERS,
    Hole,
    KerasSize,
    KerasValue,
    Placed,
    identity,
    snake,
    unused,
)
from wdport.porting.lowering.rules import NotTrustedError
from wdport.porting.replay import find_function


def lower_as_hole(lowering: Any, node: Node, what: str) -> list[Placed]:
    """Call a method with all that a step reads; its outputs have the shapes of the trace and PyTorch's layout."""
    call = _Call(lowering)
    name, text = call.layer(node) if node.module is not None else call.function(node)
    places = ", ".join(f"{key} {tuple(map(int, shape))}" for key, shape in call.shapes.items())
    outputs = ", ".join(str(tuple(map(int, tensor.shape))) for tensor in node.outputs)
    complex_ = any(tensor.kind == "complex" for tensor in (*node.inputs, *node.outputs))
    notes = "; complex numbers are a tuple of a real and an imaginary part" if complex_ else ""
    hole = Hole(node, what, name, tuple(call.values), text, f"{places} -> {outputs}{notes}",
                example=call.example)  # fmt: skip
    value = lowering.emit("hole", *call.values.values())
    lowering.result.holes[value.step] = hole
    several = len(node.outputs) > 1
    return [lowering.placed(KerasValue("step", step=value.step, index=index if several else None), output)
            for index, output in enumerate(node.outputs)]  # fmt: skip


def line_of(place: CodePlace | None) -> str:
    """A place as ``file.py:12``; "" if it is not known."""
    return f"{Path(place.file).name}:{place.line}" if place is not None else ""


def program_of(hole: Hole) -> str:
    """A program of PyTorch that computes the step alone; "" if its call has no text that Python reads."""
    place = line_of(hole.node.place)
    # An assignment returns nothing.
    first = next(iter(hole.example), "")
    step = [f"result = {hole.text}"] if hole.method != "assigned" else [hole.text, f"result = {first}"]
    lines = [f'"""{hole.text}{f" at {place}" if place else ""}: {hole.what}."""', "", "import torch", "",
             *(f"{name} = {text}" for name, text in hole.example.items()), *step, "print(result)", ""]  # fmt: skip
    program = "\n".join(lines)
    try:
        compile(program, place, "exec")
    except SyntaxError:
        return ""
    return program if hole.constant is None else ""


def _example(tensor: TracedTensor) -> str:
    """An expression of PyTorch for a random tensor of the same shape and dtype."""
    shape = ", ".join(map(str, map(int, tensor.shape))) or "()"
    if tensor.kind in ("float", "complex"):
        plain = tensor.dtype in ("float32", "float64")
        return f"torch.randn({shape}{'' if plain else f', dtype=torch.{tensor.dtype}'})"
    listed = tuple(map(int, tensor.shape))
    return f"torch.randint(0, 2, {listed}, dtype=torch.{tensor.dtype})"


class _Call:
    """The text of a call; its tensors and sizes are the arguments of the method, by name."""

    def __init__(self, lowering: Any) -> None:
        self.lowering = lowering
        self.values: dict[str, KerasValue | KerasSize] = {}
        self.shapes: dict[str, Sequence[int]] = {}
        self.example: dict[str, str] = {}

    def function(self, node: Node) -> tuple[str, str]:
        """The method's name, and the call of a function."""
        names = parameter_names(node.name)
        position = iter([*names, *([names[-1] if names else "x"] * len(node.args))])
        args = [self._text(next(position), value) for value in node.args]
        name, public = canonical(node.name), re.sub(r"^torch\.functional\.", "torch.", node.name)
        if name in ("getitem", "setitem"):
            text = f"{args[0]}[{args[1].strip('()') or args[1]}]" + (f" = {args[2]}" if len(args) > 2 else "")
            return ("part" if name == "getitem" else "assigned"), text
        usual = defaults_of(find_function(node.name))
        args += [
            f"{key}={self._text(key, value)}" for key, value in node.kwargs.items() if value != usual.get(key, ...)
        ]
        return name, f"{public}({', '.join(args)})"

    def layer(self, node: Node) -> tuple[str, str]:
        """The method's name, and the call of a layer, whose weights are arguments of the method too."""
        module = node.module
        assert module is not None
        args = [f"{key}={self._text(key, value)}" for key, value in node.kwargs.items() if value is not None]
        usual = defaults_of(getattr(torch.nn, module.torch, None)) if module.torch else {}
        settings = ", ".join(
            f"{key}={value!r}" for key, value in module.settings.items() if value != usual.get(key, ...)
        )
        kind = f"torch.nn.{module.torch}" if module.torch else module.type
        prefix = f"{module.path}." if module.path else ""
        for path in self.lowering.graph.tensors:
            if path.startswith(prefix) and self.lowering.is_variable(path):
                self.example.pop(self._text(path.removeprefix(prefix).replace(".", "_"), self.lowering.held(path)))
        return snake(kind), f"{kind}({settings})({', '.join(args)})"

    def _text(self, name: str, value: Any) -> str:
        if isinstance(value, TracedTensor):
            return self._tensor(name, value)
        if isinstance(value, Size) and value.expression is not None:
            size = self.lowering.size(value)
            if not isinstance(size, KerasSize):
                return str(size)
            name = self._argument(name, size)
            self.example[name] = str(int(value))
            return name
        if isinstance(value, Slice):
            limits = ["" if limit is None else self._text("size", limit) for limit in (value.start, value.stop)]
            return ":".join([*limits, *([] if value.step is None else [self._text("size", value.step)])])
        if isinstance(value, tuple):
            inner = [self._text(name, item) for item in value]
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        if isinstance(value, Mapping):
            return ", ".join(f"{key}={self._text(key, item)}" for key, item in value.items())
        if value is ...:
            return "..."
        return value if isinstance(value, str) and value.startswith(("torch.", "<")) else repr(value)

    def _tensor(self, name: str, tensor: TracedTensor) -> str:
        if tensor.source.kind == "constant" and math.prod(map(int, tensor.shape)) > MOST_NUMBERS:
            return f"a constant of shape {tuple(map(int, tensor.shape))}"
        if tensor.kind == "complex":
            placed = self.lowering.place(tensor)
            if placed.order != identity(len(tensor.shape)):
                raise NotTrustedError(f"{name} has complex numbers in another layout")
            value = placed.value
        else:
            value = self.lowering.plain(tensor)
        name = self._argument(name, value)
        self.shapes[name], self.example[name] = tensor.shape, _example(tensor)
        return name

    def _argument(self, name: str, value: KerasValue | KerasSize) -> str:
        name = _RENAMED.get(name, re.sub(r"\W", "_", name)) or "x"
        name = unused(name, self.values)
        self.values[name] = value
        return name


_RENAMED = {"input": "x", "self": "x"}


@cache
def defaults_of(function: Any) -> Mapping[str, Any]:
    """The defaults of a function or a class of torch that is written in Python."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {key: one.default for key, one in parameters.items() if one.default is not inspect.Parameter.empty}


@cache
def parameter_names(name: str) -> tuple[str, ...]:
    """The parameters of a function of torch, as far as they are known."""
    if (names := PARAMETERS.get(canonical(name))) is not None:
        return names
    function, short = find_function(name), name.rpartition(".")[2]
    try:
        parameters = inspect.signature(function).parameters.values()
        return tuple(one.name for one in parameters if one.kind is not inspect.Parameter.VAR_POSITIONAL) or ("input",)
    except ValueError:
        pass
    # The first line of the documentation of a compiled function is its signature.
    for candidate in (getattr(torch, canonical(name), None), function):
        if (match := re.match(rf"\s*{re.escape(short.rstrip('_'))}\(([^)]*)\)", candidate.__doc__ or "")) is not None:
            stated = [part.partition("=")[0].strip(" *") for part in match.group(1).split(",")]
            stated = [part for part in stated if part.isidentifier()]
            return tuple(stated if candidate is not function or "Tensor" not in name else ["input", *stated])
    return ("input",)
