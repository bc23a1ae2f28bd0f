"""How Keras models take their inputs: by name in dictionaries, in any nesting, and by the parameters of a `call`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from wdport.base.errors import MisfitError
from wdport.models.keras_inputs import model_arguments, state_inputs, symbolic_inputs
from wdport.recording.input_text import parse_inputs
from wdport.recording.inputs import given

SIZES = {"a": 2, "b": 3, "c": 4}


def functional(arrange: Callable[[dict[str, Any]], Any]) -> keras.Model:
    """A model that returns a sum for each of its inputs a, b and c, of 2, 3 and 4 values."""
    inputs = {name: keras.Input((size,), name=name) for name, size in SIZES.items()}
    return keras.Model(arrange(inputs), [keras.ops.sum(inputs[name], -1) for name in SIZES])


class Arguments(keras.Model):
    def call(self, b: Any, a: Any, mask: Any = None, c: Any = None) -> Any:
        return [keras.ops.sum(each, -1) for each in (a, b, c) if each is not None]


class Dictionary(keras.Model):
    def call(self, inputs: Any) -> Any:
        return [keras.ops.sum(inputs[name], -1) for name in SIZES]


def built() -> keras.Model:
    model = Dictionary()
    model({name: np.zeros((1, size)) for name, size in SIZES.items()})
    return model


MODELS: dict[str, Callable[[], keras.Model]] = {
    "a dictionary": lambda: functional(lambda each: {name: each[name] for name in "cab"}),
    "a nested dictionary": lambda: functional(lambda each: {"x": {"c": each["c"], "a": each["a"]}, "y": [each["b"]]}),
    "a list": lambda: functional(lambda each: [each[name] for name in "cab"]),
    "parameters": Arguments,
    "a dictionary of a subclass": built,
}
STATED = {"a nested dictionary": ("b: n=1 3", "x.c: n 4", "a: n 2")}


@pytest.mark.parametrize("kind", MODELS)
def test_inputs_are_found_by_their_names(kind: str) -> None:
    model, inputs = MODELS[kind](), parse_inputs(STATED.get(kind, ("b: n=1 3", "c: n 4", "a: n 2")))
    if kind == "a nested dictionary":  # whose list has no names
        inputs = parse_inputs(["y: n=1 3", "x.c: n 4", "x.a: n 2"])
    state_inputs(model, inputs)
    arrays = [np.full(spec.shape(1), 1.0) for spec in inputs]
    assert [float(total[0]) for total in model(*model_arguments(model, arrays))] == [2.0, 3.0, 4.0]
    if shapes := [tensor.shape[1:] for tensor in symbolic_inputs(model)]:
        assert shapes == [(3,), (4,), (2,)]


@pytest.mark.parametrize("kind", ["a dictionary", "a nested dictionary", "a dictionary of a subclass"])
def test_names_of_no_part_are_refused(kind: str) -> None:
    model = MODELS[kind]()
    state_inputs(model, parse_inputs(["a: n=1 2", "b: n 3", "d: n 4"]))
    with pytest.raises(MisfitError, match=r"takes the inputs .*, and those stated are a, b, d"):
        model_arguments(model, [np.zeros((1, size)) for size in SIZES.values()])


def test_an_optional_input_is_left_out_wherever_it_stands() -> None:
    model, inputs = Arguments(), parse_inputs(["c?: n=1 4", "a: n 2", "b: n 3"])
    state_inputs(model, inputs)
    arrays = [np.ones(spec.shape(1)) for spec in given(inputs, 2)]
    assert [float(total[0]) for total in model(*model_arguments(model, arrays))] == [2.0, 3.0]
