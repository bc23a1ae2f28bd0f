"""Every kind against PyTorch and Keras themselves: the same outputs, and the same state_dict back.

PyTorch computes in float64 from the float32 weights, Keras in float32. A wrong rule is off by the size of the output;
float32 is off by about the square root of the longest sum (100 terms here) times 6e-8, so 1e-5 of the largest output
leaves a factor of ten.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import torch

from wdport.mapping.arrays import Array, apply_rule
from wdport.mapping.axes import Rule
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import Table, parse_table

from .keras_paths import variables
from .kind_cases import CASES, NORMED, OTHER_RANKS, Case

NEAR = 1e-5
ALL = CASES | OTHER_RANKS | NORMED


def table_of(case: Case) -> Table:
    """The case's row in a table: usually the layer itself, sometimes one within it."""
    torch_name, keras_name, more = "m", "k", case.row
    if more.startswith("sub"):
        torch_name, keras_name, more = "m.fc", "k/_layers_1", more.removeprefix("sub").strip(" ,")
    elif more == "layers":
        keras_name, more = "k/rnn_<layer>", ""
    elif more == "cell":
        torch_name, keras_name, more = "m.cell", "k/inner", ""
    fields = f"torch: {torch_name}, keras: {keras_name}, kind: {case.kind}" + (f", {more}" if more else "")
    return parse_table(f"{{format: 2, layers: [{{{fields}}}]}}".encode(), "t.yaml")


def random_module(case: Case) -> torch.nn.Module:
    """The module with random parameters, biases, scales and running statistics among them."""
    torch.manual_seed(0)
    module = torch.nn.ModuleDict({"m": case.torch()})
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                drawn = torch.randn(tensor.shape) * 0.5
                tensor.copy_(drawn.abs() + 0.5 if name.endswith(("var", "weight_g", "original0")) else drawn)
    return module.eval()


def draw(case: Case) -> list[Array]:
    rng = np.random.default_rng(0)
    if case.integers:
        return [rng.integers(0, case.integers, shape) for shape in case.shapes]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in case.shapes]
    return [arrays[0]] * len(arrays) if len(set(case.shapes)) == 1 else arrays


def laid_out(rule: Rule, array: Array) -> Array:
    """An activation in Keras's layout, by the layout that the kind states."""
    shape = rule.inverse().source_shape([array.shape])
    assert shape is not None
    return apply_rule(rule, [array], rule.sizes([array.shape], [shape]))[0]


def layout(table: Table, case: Case, rank: int) -> Rule | None:
    """The stated layout of this rank: the likeliest, or for channels first the one that changes nothing."""
    rules = [r for tap in table.taps if not tap.implied for r in tap.axes]
    fitting = [rule for rule in rules if rule.source.any_axes or len(rule.source.groups) == rank]
    if case.first:
        fitting = [rule for rule in fitting if rule.source == rule.target]
        assert fitting
    return fitting[0] if fitting else None


def keras_layer(case: Case, inputs: list[Array]) -> tuple[Any, dict[str, Any]]:
    """The Keras layer, built, and its variables by path; those of a Sequential by position."""
    layer = case.keras()
    layer(*inputs)
    if isinstance(layer, keras.Sequential):
        found: dict[str, Any] = {}
        for at, each in enumerate(layer.layers):
            found |= variables(each, f"k/_layers_{at}")
        return layer, found
    return layer, variables(layer, "k")


def planned(case: Case, module: torch.nn.Module, targets: dict[str, Any]) -> Plan:
    sources = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    plan = make_plan(table_of(case), sources, {path: tuple(v.shape) for path, v in targets.items()}, {})
    assert isinstance(plan, Plan), plan
    return plan


def first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) else output


@pytest.mark.parametrize("name", ALL)
def test_outputs_are_equal_and_the_state_comes_back(name: str) -> None:
    case = ALL[name]
    module, inputs, table = random_module(case), draw(case), table_of(case)
    state = {key: tensor.numpy().copy() for key, tensor in module.state_dict().items()}
    if case.row.startswith("sub"):
        ours = [np.moveaxis(inputs[0], 1, -1)]
    else:
        rules = [layout(table, case, array.ndim) for array in inputs]
        ours = [array if rule is None else laid_out(rule, array) for rule, array in zip(rules, inputs, strict=True)]
    if case.whole:
        ours = [ours[0], ours[2], ours[1]]  # keras.layers.MultiHeadAttention takes query, value, key
    layer, targets = keras_layer(case, ours)
    plan = planned(case, module, targets)
    made = dict(plan.apply(state.__getitem__))
    assert made.keys() == targets.keys()
    for path, array in made.items():
        assert array.dtype == np.float32
        targets[path].assign(array)

    with torch.no_grad():
        exact = [torch.tensor(x) if case.integers else torch.tensor(x).double() for x in inputs]
        theirs = np.asarray(first(module.double()["m"](*exact)))
    if (rule := layout(table, case, theirs.ndim)) is not None and not case.row.startswith("sub"):
        theirs = laid_out(rule, theirs)
    got = np.asarray(first(layer(*ours)))
    assert got.shape == theirs.shape
    np.testing.assert_allclose(got, theirs, rtol=0, atol=NEAR * float(np.abs(theirs).max()))

    check_back(plan, state, made)


def check_back(plan: Plan, state: dict[str, Array], made: dict[str, Array]) -> None:
    """The inverse: every bit of a move of values; of arithmetic, sources that become the same variables again."""
    back = dict(plan.invert(made.__getitem__))
    assert back.keys() == state.keys() - plan.drops.keys()
    for move in plan.moves:
        sources = [back[source] for source in move.sources]
        if move.exact:
            assert [each.tobytes() for each in sources] == [state[source].tobytes() for source in move.sources]
            continue
        assert [each.shape for each in sources] == [state[source].shape for source in move.sources]
        again = move.apply(sources)
        for path, array in zip(move.targets, again, strict=True):
            # The sum of a value and zeros is that value; a norm is rounded once more.
            np.testing.assert_allclose(array, made[path], rtol=0 if move.combine == "sum" else 3e-7)


@pytest.mark.parametrize("name", ["lstm", "gru, two layers", "conv1d, old keys", "linear as a whole, new keys"])
def test_unrounded_arithmetic_is_exact_in_float64(name: str) -> None:
    """What the float64 gate is given: PyTorch's own float64 weights, to rounding in float64."""
    case = ALL[name]
    module, inputs, table = random_module(case), draw(case), table_of(case)
    rule = layout(table, case, inputs[0].ndim)
    _, targets = keras_layer(case, [inputs[0] if rule is None else laid_out(rule, inputs[0])])
    state = {key: tensor.numpy().copy() for key, tensor in module.state_dict().items()}
    plan = planned(case, module, targets)
    rounded, exact = (dict(plan.apply(state.__getitem__, rounded=flag)) for flag in (True, False))
    arithmetic = {path for move in plan.moves if not move.exact for path in move.targets}
    assert arithmetic or name.startswith("gru")
    for path, array in exact.items():
        assert array.dtype == (np.float64 if path in arithmetic else np.float32)
        assert np.array_equal(array.astype(np.float32), rounded[path])
    if "keys" in name:
        module.double()["m"](torch.tensor(inputs[0]).double())  # the old style makes the weight when it is called
        weight = np.asarray(module["m"].weight.detach())
        kernel = weight.T if weight.ndim == 2 else weight.transpose(2, 1, 0)
        np.testing.assert_allclose(exact["k/kernel"], kernel, rtol=1e-14)
