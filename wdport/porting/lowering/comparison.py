"""Compare a lowered graph with PyTorch, step by step, in float64; a step without a counterpart has PyTorch's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from wdport.compare.measure import relative_l2
from wdport.models.interface import Array
from wdport.models.keras_runtime import float64, set_variable, unfilled, variables_by_path
from wdport.porting.graph import Graph, Node, TensorSource
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.interpreter import Interpreter, in_keras, plan_of
from wdport.porting.lowering.keras_graph import KerasGraph

BOUND = 1e-9
"""Largest relative error of a step in float64, after all those before it."""

ROUNDING = 1e-13
"""Largest difference of values that rounding explains: those of a model are around one."""

Run = tuple[Mapping[str, Array], Mapping[TensorSource, Any]]
"""The inputs of a run by name, and the values of PyTorch's tensors in it."""


def tensors_of(module: Any, graph: KerasGraph) -> dict[str, Array]:
    """The tensors of a module's state_dict, and the buffers beside them that are variables of the port."""
    tensors = {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}
    return tensors | {name: module.get_buffer(name).numpy() for name in graph.variables if name not in tensors}


def filled(graph: KerasGraph, torch: Graph, tensors: Mapping[str, Array], run: Run) -> Interpreter:
    """The lowered graph as a Keras model with the weights of PyTorch's."""
    with unfilled():
        model = Interpreter(graph, {name: array.shape for name, array in tensors.items()})
        outputs_of(model, torch, run)
    if graph.rows:
        variables = variables_by_path(model)
        plan = plan_of(graph, torch, tensors, {path: tuple(one.shape) for path, one in variables.items()})
        for path, array in plan.apply(lambda name: tensors[name.removeprefix("model.")], rounded=False):
            set_variable(variables[path], array)
    return model


def outputs_of(model: Interpreter, torch: Graph, run: Run) -> list[Any]:
    """The outputs of a run; steps without a counterpart return PyTorch's values."""
    inputs, values = run
    model.supplied = supplied(model.graph, torch, values)
    return list(model([np.transpose(inputs[name], placed.order) for name, placed in model.graph.inputs.items()]))


def supplied(graph: KerasGraph, torch: Graph, values: Mapping[TensorSource, Any]) -> dict[int, Any]:
    """What PyTorch computes for the steps without a counterpart, by the step."""
    return {
        serial: _converted([values[tensor.source] for tensor in torch.nodes[hole.node.serial].outputs]
                           if hole.constant is None else [graph.constants[hole.constant]])
        for serial, hole in graph.holes.items()
    }  # fmt: skip


def _converted(values: Sequence[Any]) -> Any:
    arrays = [tuple(map(keras.ops.convert_to_tensor, (array.real, array.imag))) if np.iscomplexobj(array)
              else keras.ops.convert_to_tensor(array) for array in map(np.asarray, values)]  # fmt: skip
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def first_difference(lowering: GraphLowering, module: Any, runs: Sequence[Run]) -> Node | None:
    """The first step whose output differs from PyTorch's in one of the runs."""
    nodes: list[Node] = []
    with float64():
        tensors = tensors_of(module, lowering.result)
        model = filled(lowering.result, lowering.graph, tensors, runs[0])
        for run in runs:
            outputs_of(model, lowering.graph, run)
            nodes += [lowering.graph.nodes[source.node] for source, placed in lowering.places.items()
                      if source.kind == "node" and placed.value.kind == "step" and source in run[1]
                      and not is_equal(model.value(placed), run[1][source], placed)]  # fmt: skip
    return min(nodes, key=lambda node: node.serial, default=None)


def is_equal(computed: Any, value: Any, placed: Any) -> bool:
    """Whether a tensor of the port is that of PyTorch."""
    expected = np.asarray(value)
    if np.iscomplexobj(expected):
        return all(is_equal(part, array, placed)
                   for part, array in zip(computed, (expected.real, expected.imag), strict=True))  # fmt: skip
    candidate, reference = np.asarray(computed), in_keras(expected, placed)
    # What should be zero is what rounding leaves.
    is_rounding = (candidate.shape == reference.shape and reference.dtype.kind == candidate.dtype.kind == "f"
                   and bool(np.all(np.abs(candidate - reference) <= ROUNDING)))  # fmt: skip
    return is_rounding or error_of(candidate, reference) <= BOUND


def error_of(candidate: Array, reference: Array) -> float:
    """Relative error; infinite if shapes, integers, infinities or the places of NaN differ."""
    if candidate.shape != reference.shape or (candidate.dtype.kind == "f") != (reference.dtype.kind == "f"):
        return float("inf")
    if reference.dtype.kind != "f":
        return 0.0 if np.array_equal(candidate, reference) else float("inf")
    missing = np.isnan(reference)
    if not np.array_equal(np.isnan(candidate), missing):
        return float("inf")
    return relative_l2(candidate[~missing], reference[~missing])
