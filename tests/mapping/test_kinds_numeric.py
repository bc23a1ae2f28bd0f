"""Every kind against PyTorch and Keras themselves: the same outputs, and the same state_dict back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from parity_tests.conformance.engine import BOUND, Port, fill, first, float64, laid_out, torch_side
from parity_tests.conformance.pair import LAST, Pair
from parity_tests.conformance.test_conformance import QUICK
from wdport.mapping.kinds import KINDS
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import parse_table
from wdport.models.interface import Array
from wdport.models.keras_runtime import variables_by_path

from .kind_cases import MORE, PAIRS, suite


@pytest.mark.parametrize("name", PAIRS)
def test_outputs_are_equal_and_the_state_comes_back(name: str) -> None:
    pair = PAIRS[name]
    given = torch_side(pair)
    inputs = [laid_out(array, pair.axes) for array in given.inputs]
    with float64():
        port = Port(pair.keras())
        port(*inputs)  # Keras makes variables when a layer is first called
        fill(pair, given.state, port)
        ours = np.asarray(first(port(*inputs)))
    wanted = laid_out(given.output, pair.out or pair.axes)
    assert ours.shape == wanted.shape
    assert np.linalg.norm(ours - wanted) <= BOUND * np.linalg.norm(wanted)


def test_every_kind_of_the_catalogue_with_tensors_is_among_them() -> None:
    quick = {suite.PAIRS[name].kind for name in QUICK}
    assert {pair.kind for pair in PAIRS.values()} | quick >= {kind.name for kind in KINDS.values() if kind.parts}


def test_channels_last_is_the_likeliest_layout() -> None:
    for kind in KINDS.values():
        known = [str(rule) for rule in kind.axes]
        for last in {*LAST.values()} & {*known}:
            before, _, _ = last.partition(" -> ")
            assert all(known.index(last) < known.index(each) for each in known if each == f"{before} -> {before}")
    assert all(pair.axes in map(str, KINDS[pair.kind].axes) for pair in MORE if pair.axes and not pair.row)


def planned(pair: Pair, state: dict[str, Array]) -> Plan:
    given = torch_side(pair)
    port = Port(pair.keras())
    port(*(laid_out(array.astype(np.float32), pair.axes) for array in given.inputs))
    targets = {path: tuple(variable.shape) for path, variable in variables_by_path(port).items()}
    table = parse_table(f"{{format: 2, layers: [{{torch: m, keras: k{pair.at[1]}, kind: {pair.kind}}}]}}".encode(), "t")
    plan = make_plan(table, {name: array.shape for name, array in state.items()}, targets, {})
    assert isinstance(plan, Plan), plan
    return plan


@pytest.mark.parametrize("name", [
    "lstm", "gru, two layers", "conv1d, old keys under weight_norm", "linear, new keys, as a whole under weight_norm",
    "linear, old keys, over the inputs under weight_norm", "conv_transpose1d, new keys under weight_norm",
])  # fmt: skip
def test_arithmetic_is_rounded_once_or_not_at_all(name: str) -> None:
    """Unrounded it is what the float64 gate is given: PyTorch's own float64 weights, to rounding in float64."""
    pair = PAIRS[name]
    given = torch_side(pair)
    state = {key: array.astype(np.float32) for key, array in given.state.items()}
    plan = planned(pair, state)
    rounded, exact = (dict(plan.apply(state.__getitem__, rounded=flag)) for flag in (True, False))
    arithmetic = {path for move in plan.moves if not move.exact for path in move.targets}
    assert arithmetic or name.startswith("gru")
    for path, array in exact.items():
        assert array.dtype == (np.float64 if path in arithmetic else np.float32)
        assert rounded[path].dtype == np.float32
        assert np.array_equal(array.astype(np.float32), rounded[path])
    if "keys" in name:
        module = pair.torch().double()
        module.load_state_dict({key.removeprefix("m."): torch.tensor(array) for key, array in state.items()})
        module(torch.tensor(given.inputs[0]))  # the old style makes the weight when it is called
        weight = np.asarray(module.weight.detach())
        kernel = weight.T if weight.ndim == 2 else weight.transpose(2, 1, 0)
        np.testing.assert_allclose(exact["k/kernel"], kernel, rtol=1e-14)
    back = dict(plan.invert(rounded.__getitem__))
    assert {key: array.shape for key, array in back.items()} == {key: array.shape for key, array in state.items()}
    for move in (move for move in plan.moves if not move.exact):
        again = move.apply([back[source] for source in move.sources])
        for path, array in zip(move.targets, again, strict=True):
            # The sum of a value and zeros is that value; a norm is rounded once more.
            np.testing.assert_allclose(array, rounded[path], rtol=0 if move.combine == "sum" else 3e-7)
