"""The lowered graph computes what PyTorch computes, or says which step has no counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from parity_tests.conformance.engine import float64
from tests.porting import port_functions
from tests.porting.port_nets import NETS, Situation
from wdport import recorder
from wdport.keras_runtime import set_variable, unfilled, variables_by_path
from wdport.model import Array
from wdport.porting.graph import Graph
from wdport.porting.lowering.interpreter import Interpreter, in_keras, plan_of
from wdport.porting.lowering.keras_graph import KerasGraph
from wdport.porting.lowering.lower import lower
from wdport.porting.outline.steps import is_layer
from wdport.porting.replay import replay
from wdport.porting.torch_run import fill
from wdport.porting.tracing import constructed, trace

SITUATIONS = {**NETS, **port_functions.RESULTS, **port_functions.LAYERS}

BOUND = 1e-10
"""The largest relative error."""

RUNS = ((0, 2), (1, 1))
"""Seed and batch size: a batch of one has the other sizes of every axis."""


def arrays_of(situation: Situation, seed: int, batch: int) -> dict[str, Array]:
    inputs = recorder.read_inputs(situation.inputs)
    return {spec.name: recorder.cast(spec.make(seed, batch, 1.0), float) for spec in inputs}


def run(module: torch.nn.Module, arrays: Mapping[str, Array]) -> list[torch.Tensor]:
    with recorder.highest_precision(), recorder.lifted(), torch.no_grad():
        return recorder.tensors_of(module(*(torch.from_numpy(array.copy()) for array in arrays.values())))


def lowered(situation: Situation) -> tuple[torch.nn.Module, Graph, KerasGraph]:
    with recorder.lifted(), constructed() as construction:
        module = situation.build()
    module = module.double().eval()
    buffers = construction(module)
    fill(module, 7)
    arrays, others = (arrays_of(situation, *run) for run in RUNS)
    graph = trace(module, list(arrays), list(arrays.values()), is_layer)
    other = trace(module, list(others), list(others.values()), is_layer)
    values = {source: tensor.detach().numpy() for source, tensor in replay(graph, module, arrays).items()}
    return module, graph, lower(graph, values, buffers, other)


def error_of(a: Any, b: Array) -> float:
    a = np.asarray(a)
    if a.shape != b.shape:
        return float("inf")
    if b.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else float("inf")
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-300))


def errors(situation: Situation, module: torch.nn.Module, graph: Graph, keras_graph: KerasGraph) -> list[float]:
    """The relative error of every output in Keras, for every run."""
    state = {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}
    state |= {name: module.get_buffer(name).numpy() for name in keras_graph.variables if name not in state}
    result = []
    with float64():
        with unfilled():
            model = Interpreter(keras_graph, {name: array.shape for name, array in state.items()})
            arrays = arrays_of(situation, *RUNS[0])
            model([np.transpose(arrays[name], placed.order) for name, placed in keras_graph.inputs.items()])
        variables = variables_by_path(model)
        if keras_graph.rows:
            plan = plan_of(keras_graph, graph, state, {path: tuple(one.shape) for path, one in variables.items()})
            for path, array in plan.apply(lambda name: state[name.removeprefix("model.")], rounded=False):
                set_variable(variables[path], array)
        for seed, batch in RUNS:
            arrays = arrays_of(situation, seed, batch)
            outputs = model([np.transpose(arrays[name], placed.order) for name, placed in keras_graph.inputs.items()])
            pairs = zip(outputs, run(module, arrays), keras_graph.outputs, strict=True)
            result += [error_of(output, in_keras(tensor.numpy(), placed)) for output, tensor, placed in pairs]
    return result


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter:UserWarning")
@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("name", SITUATIONS)
def test_the_lowered_graph_computes_the_same_or_has_the_hole(name: str) -> None:
    situation = SITUATIONS[name]
    module, graph, keras_graph = lowered(situation)
    if keras_graph.hole is not None:
        assert situation.hole, keras_graph.hole.what
        assert situation.hole in f"{keras_graph.hole.node.name} {keras_graph.hole.what}"
        return
    assert not situation.hole
    assert max(errors(situation, module, graph, keras_graph), default=np.inf) <= BOUND
