"""Run a lowered graph in Keras, before any source is written."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from wdport.mapping.kinds.kind import KerasCall
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.rows import Table
from wdport.mapping.table import parse_table
from wdport.models.interface import Array
from wdport.porting.graph import Graph, Slice
from wdport.porting.lowering import helpers
from wdport.porting.lowering.keras_graph import (
    FloatDtype,
    FloatLimit,
    Indices,
    KerasGraph,
    KerasSize,
    KerasStep,
    KerasValue,
    Placed,
    rows_besides,
)
from wdport.porting.outline.counterparts import find_symbol

_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
    "//": operator.floordiv, "%": operator.mod, "@": operator.matmul, ">": operator.gt, "<": operator.lt,
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    "int*": lambda size, factor: int(size * factor),
}  # fmt: skip


def make_layer(call: KerasCall) -> Any:
    """The layer of a call, with inner layers."""
    arguments = {
        key: make_layer(value) if isinstance(value, KerasCall) else value for key, value in call.arguments.items()
    }
    return find_symbol(call.name)(**arguments)


class Interpreter(keras.Model):  # type: ignore[misc]
    """A Keras model that computes a lowered graph; its inputs are positional, in the graph's order.

    Attributes:
        results: the output of every step of the last call.
        supplied: the outputs of the steps without a counterpart, by the step.
    """

    def __init__(self, graph: KerasGraph, shapes: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self.graph = graph
        self.results: dict[int, Any] = {}
        self.supplied: dict[int, Any] = {}
        for name, layer in graph.layers.items():
            setattr(self, name, make_layer(layer.call))
        for path, name in graph.variables.items():
            setattr(self, name, self.add_weight(shape=tuple(shapes[path]), name=name))

    def call(self, inputs: Sequence[Any]) -> list[Any]:
        arrays = dict(zip(self.graph.inputs, inputs, strict=True))
        results: list[Any] = []
        for step in self.graph.steps:
            results.append(self._run(step, results, arrays))
        self.results = dict(enumerate(results))
        return [self._get(placed.value, results, arrays) for placed in self.graph.outputs]

    def value(self, placed: Placed) -> Any:
        """A tensor of the last call; ``None`` for an input."""
        return None if placed.value.kind == "input" else self._get(placed.value, list(self.results.values()), {})

    def _get(self, value: KerasValue, results: Sequence[Any], arrays: Mapping[str, Any]) -> Any:
        if value.kind == "input":
            return arrays[value.name]
        if value.kind == "variable" and value.name in self.graph.aliases:
            alias = self.graph.aliases[value.name]
            layer = next(layer for layer in self.graph.layers.values() if layer.torch == alias.torch and layer.kind)
            return getattr(getattr(self, layer.name), alias.variable)
        if value.kind == "variable":
            return getattr(self, value.name).value
        if value.kind == "constant":
            array = self.graph.constants[value.step]
            return keras.ops.convert_to_tensor(array, dtype=_float() if array.dtype.kind == "f" else None)
        result = results[value.step]
        return result if value.index is None else result[value.index]

    def _run(self, step: KerasStep, results: Sequence[Any], arrays: Mapping[str, Any]) -> Any:
        def resolved(value: Any) -> Any:
            if isinstance(value, KerasValue):
                return self._get(value, results, arrays)
            if isinstance(value, KerasSize):
                if value.tensor is not None:
                    return keras.ops.shape(self._get(value.tensor, results, arrays))[value.axis]
                operands = [resolved(operand) for operand in value.operands]
                if value.operator == "math.sqrt":
                    return math.sqrt(operands[0])
                return -operands[0] if len(operands) == 1 else _OPERATORS[value.operator](*operands)
            if isinstance(value, Indices):
                return tuple(map(resolved, value.items))
            if isinstance(value, Slice):
                return slice(*map(resolved, (value.start, value.stop, value.step)))
            if isinstance(value, FloatDtype):
                return _float()
            if isinstance(value, FloatLimit):
                return helpers.float_limit(value.name, _float())  # type: ignore[no-untyped-call]
            return tuple(map(resolved, value)) if isinstance(value, tuple) else value

        args, kwargs = resolved(step.args), {key: resolved(value) for key, value in step.kwargs.items()}
        if step.call == "hole":
            return self.supplied[step.serial]
        if step.call == "layer":
            return getattr(self, step.layer)(*args, **kwargs)
        if step.call == "index":
            return args[0][args[1][0] if isinstance(args[0], list) else args[1]]
        if step.call in _OPERATORS:
            return _OPERATORS[step.call](*args)
        if step.call.startswith("helpers."):
            return getattr(helpers, step.call.removeprefix("helpers."))(*args, **kwargs)
        return find_symbol(step.call)(*args, **kwargs)


def _float() -> str:
    return str(keras.config.dtype_policy().compute_dtype)


ROOT = "model"
"""What a table calls the model itself, whose tensors have no path before their names."""


def table_of(graph: KerasGraph, torch: Graph) -> Table:
    """The table that the lowering implies: every tensor of the state_dict is used, tied or dropped."""
    rows = [*graph.rows, *rows_besides(graph, torch)]
    layers, ties = ([row for row in rows if key in row] for key in ("kind", "same_as"))
    tensors = [row for row in rows if "rule" in row or "drop" in row]

    def text(rows: Sequence[Mapping[str, str]]) -> str:
        fields = [{key: rooted(value) if key in ("torch", "same_as") else value for key, value in row.items()}
                  for row in rows]  # fmt: skip
        return ", ".join(f"{{{', '.join(f'{key}: {quoted(value)}' for key, value in row.items())}}}" for row in fields)

    sections = [f"layers: [{text(layers)}]"] if layers else []
    sections += [f"tensors: [{text(tensors)}]"] if tensors else []
    sections += [f"tied: [{text(ties)}]"] if ties else []
    return parse_table(f"{{format: 2, {', '.join(sections)}}}".encode(), "lowered")


def quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def rooted(name: str) -> str:
    return f"{ROOT}.{name}" if name else ROOT


def plan_of(
    graph: KerasGraph, torch: Graph, state: Mapping[str, Array], variables: Mapping[str, Sequence[int]]
) -> Plan:
    """How the tensors of a PyTorch model fill the variables; raises ``ValueError`` if they do not."""
    shapes = {rooted(name): tuple(array.shape) for name, array in state.items()}
    plan = make_plan(table_of(graph, torch), shapes, {path: tuple(shape) for path, shape in variables.items()}, {})
    if not isinstance(plan, Plan):
        raise ValueError(str(plan))
    return plan


def in_keras(array: Any, placed: Placed) -> Array:
    """A tensor of PyTorch's run in the layout of the port."""
    return np.transpose(np.asarray(array), placed.order)
