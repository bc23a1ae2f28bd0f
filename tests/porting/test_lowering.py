"""The lowered graph computes what PyTorch computes, or says which step has no counterpart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

from parity_tests.conformance.engine import BOUND as CONFORMANCE_BOUND
from parity_tests.conformance.engine import torch_side
from parity_tests.conformance.suite import PAIRS
from parity_tests.conformance.test_conformance import QUICK
from tests.porting import port_functions
from tests.porting.port_nets import NETS, Situation
from wdport.models.interface import Array
from wdport.models.keras_runtime import float64
from wdport.porting.graph import Graph, with_sources
from wdport.porting.lowering.comparison import Run, error_of, filled, outputs_of, tensors_of
from wdport.porting.lowering.interpreter import in_keras
from wdport.porting.lowering.keras_graph import KerasGraph
from wdport.porting.lowering.lower import GraphLowering, lower, register
from wdport.porting.outline.steps import is_layer
from wdport.porting.replay import replay
from wdport.porting.torch_run import fill
from wdport.porting.tracing import constructed, trace
from wdport.recording import nested
from wdport.recording.calls import cast
from wdport.recording.float64 import lifted
from wdport.recording.input_text import read_inputs
from wdport.recording.nested import to_array
from wdport.recording.torch_functions import highest_precision

SITUATIONS = {**NETS, **port_functions.RESULTS, **port_functions.LAYERS}

BOUND = 1e-10
"""The largest relative error."""

RUNS = ((0, 2), (1, 1))
"""Seed and batch size: a batch of one has the other sizes of every axis."""


def arrays_of(situation: Situation, seed: int, batch: int) -> dict[str, Array]:
    inputs = read_inputs(situation.inputs)
    return {spec.name: cast(spec.make(seed, batch, 1.0), float) for spec in inputs}


def run(module: torch.nn.Module, arrays: Mapping[str, Array]) -> list[torch.Tensor]:
    with highest_precision(), lifted(), torch.no_grad():
        return nested.tensors_of(module(*(torch.from_numpy(array.copy()) for array in arrays.values())))


def lowering_of(situation: Situation) -> tuple[torch.nn.Module, GraphLowering, list[Run]]:
    with lifted(), constructed() as construction:
        module = situation.build()
    module = module.double().eval()
    buffers = construction(module)
    fill(module, 7)
    arrays, others = (arrays_of(situation, *run) for run in RUNS)
    graph = trace(module, list(arrays), list(arrays.values()), is_layer)
    other = trace(module, list(others), list(others.values()), is_layer)
    runs = []
    for graph_, arrays_ in ((graph, arrays), (other, others)):
        values = replay(graph_, module, arrays_).items()
        runs.append((arrays_, {source: to_array(tensor) for source, tensor in values}))
    register()
    lowering = GraphLowering(with_sources(graph, True), runs[0][1], buffers, with_sources(other, True))
    lowering.run()
    return module, lowering, runs


def errors(module: torch.nn.Module, graph: Graph, keras_graph: KerasGraph, runs: Sequence[Run]) -> list[float]:
    """The relative error of every output in Keras, for every run."""
    result = []
    with float64():
        model = filled(keras_graph, graph, tensors_of(module, keras_graph), runs[0])
        for one in runs:
            outputs = outputs_of(model, graph, one)
            # Steps without a counterpart may be random.
            expected = run(module, one[0]) if keras_graph.hole is None else [
                torch.from_numpy(one[1][tensor.source]) for tensor in graph.root.outputs]  # fmt: skip
            pairs = zip(outputs, expected, keras_graph.outputs, strict=True)
            result += [error_of(np.asarray(output), in_keras(tensor.numpy(), placed))
                       for output, tensor, placed in pairs]  # fmt: skip
    return result


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter:UserWarning")
@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.filterwarnings("ignore:size_average and reduce:UserWarning")
@pytest.mark.parametrize("name", SITUATIONS)
def test_the_lowered_graph_computes_the_same_or_has_the_hole(name: str) -> None:
    situation = SITUATIONS[name]
    module, lowering, runs = lowering_of(situation)
    graph, keras_graph = lowering.graph, lowering.result
    if keras_graph.hole is not None:
        assert situation.hole, keras_graph.hole.what
        assert situation.hole in f"{keras_graph.hole.node.name} {keras_graph.hole.what}"
    else:
        assert not situation.hole
    if keras_graph.refused is None:
        # What stands beside a hole is computed, too.
        assert max(errors(module, graph, keras_graph, runs), default=np.inf) <= BOUND


NOT_LOWERED = {
    "linear under spectral_norm, folded", "conv2d under spectral_norm, folded",  # holes
    "lstm, three lengths", "bidirectional_lstm, three lengths",  # packed sequences
    "packed, attn_mask: True is blocked", "packed, causal", "packed, key_padding_mask: True is left out",  # NumPy
    "batch_norm, momentum 0.1: the mean after a step",  # training
}  # fmt: skip


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in PAIRS if name not in NOT_LOWERED
])  # fmt: skip
def test_the_layers_of_the_conformance_suite_are_lowered(name: str) -> None:
    reference = torch_side(PAIRS[name])
    module, arrays = reference.module["m"], {f"x{index}": array for index, array in enumerate(reference.inputs)}
    graph = trace(module, list(arrays), list(arrays.values()), is_layer)
    values = {source: tensor.detach().numpy() for source, tensor in replay(graph, module, arrays).items()}
    lowered = lower(graph, values)
    assert lowered.hole is None
    assert max(errors(module, graph, lowered, [(arrays, values)])) <= CONFORMANCE_BOUND
