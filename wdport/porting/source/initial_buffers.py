"""What the buffers of a new port hold: what the constructors of the PyTorch model compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wdport.models.interface import Array
from wdport.models.keras_runtime import float64
from wdport.porting.graph import TensorSource
from wdport.porting.lowering.comparison import is_equal
from wdport.porting.lowering.interpreter import Interpreter
from wdport.porting.lowering.keras_graph import KerasGraph, KerasValue, Start
from wdport.porting.lowering.lower import GraphLowering
from wdport.porting.source.scopes import step_values

MOST_STEPS = 6
"""Steps of a formula that is written as one expression."""


def starts_of(lowering: GraphLowering) -> Mapping[str, Start]:
    """The start of every buffer that is a variable, by path."""
    starts = {}
    for path in lowering.result.variables:
        values = lowering.values.get(TensorSource("buffer", path))
        # The statistics of a norm are drawn before the trace.
        if values is not None and not lowering.graph.modules[path.rpartition(".")[0]].torch:
            starts[path] = _start(lowering, path, np.asarray(values))
    return starts


def _start(lowering: GraphLowering, path: str, values: Array) -> Start:
    start = Start(values)
    formula = None if isinstance(start.constant, float) else lowering.formula(path)
    if formula is None or _count(formula, formula.outputs[0].value) > MOST_STEPS:
        return start
    with float64(), np.errstate(invalid="ignore"):
        (computed,) = Interpreter(formula, {})([])
        equal = is_equal(computed, values, formula.outputs[0])
    return Start(values, formula) if equal else start


def _count(graph: KerasGraph, value: KerasValue) -> int:
    """The number of steps of a value as one expression, in which a step that is read twice stands twice."""
    if value.kind != "step":
        return 0
    return 1 + sum(_count(graph, inner) for inner in step_values(graph.steps[value.step]))
