"""Runs a traced model again, call by call, from nothing but its graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from wdport.porting.graph import Graph
from wdport.porting.outline.steps import is_layer
from wdport.porting.replay import Values, replay
from wdport.porting.tracing import trace
from wdport.recording.cases import CASES
from wdport.recording.fitted_inputs import call_by_name
from wdport.recording.input_text import parse_inputs
from wdport.recording.user_model import build_alone


def replayed(target: str, inputs: Sequence[str]) -> tuple[torch.nn.Module, Graph, Values, list[np.ndarray]]:
    """The model, the graph of a run on other inputs, what every call gives when it is run again, and the inputs."""
    told = parse_inputs(inputs)
    module, _ = build_alone(target)
    call_by_name(module, told)
    names = [each.name for each in told]
    graph = trace(module, names, [each.make(1, CASES[0].batch, 1.0) for each in told], is_layer)
    arrays = [each.make(0, CASES[0].batch, 1.0) for each in told]
    return module, graph, replay(graph, module, dict(zip(names, arrays, strict=True))), arrays
