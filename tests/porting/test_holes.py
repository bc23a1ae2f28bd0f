"""The source with methods for steps without a counterpart: with what PyTorch computes for them, it is equal."""

from __future__ import annotations

import sys
from itertools import cycle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.porting.test_lowering import BOUND, SITUATIONS, lowering_of
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import parse_table
from wdport.models.keras_runtime import float64, set_variable, variables_by_path
from wdport.porting.lowering.comparison import error_of, supplied, tensors_of
from wdport.porting.lowering.interpreter import in_keras
from wdport.porting.source.write import HoleMethod, input_shape, write_source
from wdport.porting.table_text import sections, table_text

HOLES = {
    "an LSTM with a projection": ["lstm(x, weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0)"],
    "a norm without a batch": ["conv2d(x, weight, bias)", "instance_norm2d(x)"],
    "unpooling": ["max_pool2d(x)", "max_unpool2d(x, indices)"],
    "many numbers of no formula": ["numbers()"],
    "complex numbers": ["view_as_complex(x)"],
    "a window of the size of the image": ["avg_pool2d(x, kernel_size, kernel_size2)"],
    "a size rounded up": ["part(x)"],
    "descending": ["sort(x)", "argsort(x)"],
    "mean and variance": ["var_mean(x)"],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HOLES)
def test_what_stands_beside_a_hole_is_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, lowering, runs = lowering_of(SITUATIONS[name])
    graph, inputs = lowering.result, lowering.result.inputs
    source = write_source(lowering, [input_shape(one, [False] * len(one.shape)) for one in inputs.values()], "net")
    signatures = [f"{method.name}({', '.join(method.holes[0].parameters)})" for method in source.methods]
    assert signatures == HOLES[name]
    code = ModuleType("net_source")
    monkeypatch.setitem(sys.modules, code.__name__, code)
    exec(compile(source.text, "net_source.py", "exec"), code.__dict__)
    with pytest.raises(NotImplementedError, match="-> "):
        code.build()
    serials = {id(hole): serial for serial, hole in graph.holes.items()}
    current: list[Any] = []

    def fill(method: HoleMethod) -> None:
        def values(*_: Any) -> Any:
            return next(current[0][method.name])

        monkeypatch.setattr(getattr(code, method.class_.name), method.name, values)

    for method in source.methods:
        fill(method)
    with float64():
        model = None
        for run in runs:
            values = supplied(graph, lowering.graph, run[1])
            # Keras may call the model more than once when it is built.
            current[:] = [{method.name: cycle([values[serials[id(hole)]] for hole in method.holes])
                           for method in source.methods}]  # fmt: skip
            arrays = [np.transpose(run[0][key], placed.order) for key, placed in inputs.items()]
            if model is None:
                model = code.build()
                _move(module, graph, source.rows, model)
            outputs = model(arrays[0] if len(arrays) == 1 else tuple(arrays))
            listed = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            for placed, tensor, output in zip(graph.outputs, lowering.graph.root.outputs, listed, strict=True):
                assert error_of(np.asarray(output), in_keras(run[1][tensor.source], placed)) <= BOUND


def _move(module: Any, graph: Any, rows: Any, model: Any) -> None:
    """Fill the model with the module's weights, as the table says."""
    variables = variables_by_path(model)
    if not variables:
        return
    tensors = tensors_of(module, graph)
    table = parse_table(table_text(tuple(sections(rows)), "", "net:build", ()).encode(), "the table")
    shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
    plan = make_plan(table, {name: array.shape for name, array in tensors.items()}, shapes, {})
    assert isinstance(plan, Plan), plan
    for path, array in plan.apply(tensors.__getitem__, rounded=False):
        set_variable(variables[path], array)
