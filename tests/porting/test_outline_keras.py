"""What the outline says of Keras, held against the conformance suite and against the installed Keras.

Every pair of `parity_tests/conformance` is a PyTorch layer and a Keras twin that compute the same. The outline knows
nothing of them: the layers that it names are built with the arguments that it names, and run in the twin's place.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import torch
from torch import nn

from parity_tests.conformance import suite
from parity_tests.conformance.engine import BOUND, compared, float64, torch_side
from parity_tests.conformance.layers import Cell, Masked, Ordered, Stack, Started, Twin
from parity_tests.conformance.pair import LAST, Pair
from parity_tests.conformance.test_conformance import QUICK
from tests.porting.replay import replayed
from tests.porting.test_outline import INPUTS
from wdport.mapping.kinds.kind import Counterpart, KerasCall, TorchCall, keras_permutation
from wdport.porting.graph import TracedTensor, with_sources
from wdport.porting.outline.axes import image, named
from wdport.porting.outline.counterparts import LAYERS, defaults, differing, find_symbol, operation
from wdport.porting.outline.flow import AxisFlow
from wdport.porting.outline.steps import Steps
from wdport.porting.settings import parameters, settings_of, torch_class
from wdport.recording.input_text import parse_input


def of(pair: Pair) -> tuple[nn.Module, Counterpart]:
    """The layer of a pair and what the outline says of it, on inputs with channels first where it has spatial axes."""
    module = torch_side(pair).module["m"]
    part = next(each for each in module.modules() if torch_class(each) in LAYERS)
    shape, name = pair.input[0], torch_class(part)
    axes = image(shape) if pair.axes.startswith("b c ") or pair.channels_first else named(shape)
    given = TorchCall(shape, axes)
    return part, LAYERS[name](name, settings_of(part), given)


def make(call: KerasCall) -> Any:
    """The layer, or a function of only the tensor."""
    arguments = {key: make(value) if isinstance(value, KerasCall) else value for key, value in call.arguments.items()}
    found = find_symbol(call.name)
    return found(**arguments) if call.name.startswith("layers.") else lambda x: found(x, **arguments)


class Chain(Twin):
    """The calls of an outline, one behind the other."""

    def __init__(self, calls: tuple[KerasCall, ...]) -> None:
        super().__init__()
        self.steps = [make(call) for call in calls]

    def call(self, x: Any) -> Any:
        for step in self.steps:
            x = step(x)
        return x


def with_outline(pair: Pair, found: Counterpart) -> Pair:
    """The pair with the outline's layers in place of its own."""
    calls, kind = found.calls, pair.kind
    pair = replace(pair, axes=LAST[len(pair.input[0]) - 2]) if pair.channels_first else pair
    twin = pair.keras.func if isinstance(pair.keras, partial) else pair.keras
    given = dict(pair.keras.keywords) if isinstance(pair.keras, partial) else {}
    first = partial(make, calls[0])
    if twin in (Started, Cell):
        return replace(pair, keras=partial(twin, lambda: Held(first()), *pair.keras.args[1:], **given))
    if twin is Masked:
        return replace(pair, keras=partial(Masked, first, *pair.keras.args[1:]))
    if twin is Ordered or (isinstance(twin, type) and issubclass(twin, Ordered)):
        own = {key: value for key, value in given.items() if key in ("mask", "causal")}
        return replace(pair, keras=partial(Ordered, first, **own))
    if len(calls) > 1 and "<layer>" in pair.at[1]:
        return replace(pair, keras=partial(Stack, first, len(calls)))
    if kind in ("", "activation", "dropout", "flatten") or len(calls) > 1 or not calls[0].name.startswith("layers."):
        own_layer = next((at for at, call in enumerate(calls) if call.name.startswith(WITH_WEIGHTS)), 0)
        return replace(pair, keras=lambda: Chain(calls), at=(pair.at[0], f"/steps/{own_layer}"))
    return replace(pair, keras=first, at=(pair.at[0], ""))


WITH_WEIGHTS = ("layers.Conv", "layers.Depth", "layers.MaxP", "layers.Average")


class Held(Twin):
    """A layer that keeps its place in a twin that asks for its units."""

    def __new__(cls, layer: Any) -> Any:
        return layer


def names(make: Any) -> Iterator[tuple[str, Mapping[str, Any], tuple[Any, ...]]]:
    """Keras's own layers within what makes a twin, and what they are told."""
    if isinstance(make, partial):
        if isinstance(make.func, type) and make.func.__module__.startswith("keras."):
            yield make.func.__name__, make.keywords, make.args
        for each in (make.func, *make.args, *make.keywords.values()):
            yield from names(each)
    elif isinstance(make, type) and make.__module__.startswith("keras."):
        yield make.__name__, {}, ()


LAYOUT = {"data_format", "axis", "shared_axes", "padding"}
TRAINING = {"training", "dropout"}

PAIRS = {name: pair for name, pair in suite.PAIRS.items() if not pair.no_outline}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.full)
    for name, pair in PAIRS.items() if not pair.in_words
])  # fmt: skip
def test_the_layers_that_are_named_compute_the_same(name: str) -> None:
    pair = PAIRS[name]
    _, found = of(pair)
    assert found.calls, (
        f"the outline says only {found.notes}: if no calls of layers compute it, state why in `in_words`"
    )
    error, alarms = compared(with_outline(pair, found), torch_side(pair), {})
    assert error <= BOUND, f"{found.calls} compute something else: correct the kind's `call`"
    assert not [each for each in alarms if each.level == "differs"]


@pytest.mark.parametrize("name", list(PAIRS))
def test_the_layers_are_those_of_the_pair(name: str) -> None:
    """Class, kind and arguments, wherever the twin states one and it is not a matter of the layout."""
    pair = PAIRS[name]
    _, found = of(pair)
    if pair.kind:
        assert found.kind == pair.kind
    for own, told, args in names(pair.keras):
        calls = [each for call in found.calls for each in flat(call) if each.name == f"layers.{own}"]
        if own in ("Identity", "Dense", "Flatten") and not calls:
            continue
        assert calls or pair.in_words, (
            f"the outline writes {found.calls} where the pair has {own}: correct the kind's `call`, or state in the "
            "pair why there are no such calls (`in_words`) or why it is no example for the outline (`no_outline`)"
        )
        for call in calls[:1]:
            first = dict(zip(defaults(call.name), args, strict=False))
            for key, value in {**first, **told}.items():
                if key not in LAYOUT | TRAINING:
                    assert np.array_equal(np.ravel(call.arguments.get(key, defaults(call.name).get(key))),
                                          np.ravel(value)) or same(call.arguments.get(key), value), key  # fmt: skip


def same(a: object, b: object) -> bool:
    return len(set(np.ravel(np.asarray(a, object)).tolist())) == 1 and np.all(np.asarray(a) == np.asarray(b))


def flat(call: KerasCall) -> Iterator[KerasCall]:
    yield call
    for value in call.arguments.values():
        if isinstance(value, KerasCall):
            yield from flat(value)


@pytest.mark.parametrize("absent", [each for each in suite.ABSENT if each.how == "refuses"], ids=lambda each: each.name)
def test_what_keras_does_not_have_is_said(absent: Any) -> None:
    module = absent.pair.torch()
    given = TorchCall(absent.pair.input[0], image(absent.pair.input[0]) if absent.pair.axes else None)
    found = LAYERS[torch_class(module)](torch_class(module), settings_of(module), given)
    if "padding_mode" in absent.name:
        assert [call.name for call in found.calls] == ["ops.pad", "layers.Conv2D"]
        return
    assert found.calls == ()
    assert found.notes


@pytest.mark.parametrize("module", [
    nn.LayerNorm(4), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.LeakyReLU(), nn.ELU(), nn.Conv2d(2, 3, 3),
    nn.Linear(2, 3), nn.MaxPool2d(2), nn.LSTM(2, 3), nn.GRU(2, 3), nn.RNN(2, 3), nn.MultiheadAttention(4, 2),
    nn.Dropout(), nn.GLU(), nn.ReLU(),
], ids=torch_class)  # fmt: skip
def test_defaults_are_those_of_the_installed_keras(module: nn.Module) -> None:
    """An argument is told to differ exactly where both constructors' defaults do."""
    name, settings = torch_class(module), settings_of(module)
    found = LAYERS[name](name, settings, TorchCall((2, 4, 6, 6), None))
    told = {(each.argument, each.keras) for call in found.calls for each in differing(name, settings, call)}
    for call in found.calls:
        room, _, own = call.name.partition(".")
        known = inspect.signature(getattr(getattr(keras, room), own)).parameters
        for argument, setting in call.origin.items():
            default = known[argument].default
            theirs = parameters(name)[setting]
            if setting == "momentum":
                theirs = 1 - theirs  # type: ignore[operator]
            if setting == "eps" and theirs is None:
                theirs = float(np.finfo("float32").eps)
            expected = theirs is not inspect.Parameter.empty and np.any(np.ravel(theirs) != np.ravel(default))
            expected = expected and not (setting == "stride" and theirs is None)
            assert ((argument, default) in told) == bool(expected), argument
    assert {"LayerNorm": {("epsilon", 1e-3)}, "LeakyReLU": {("negative_slope", 0.3)}, "Linear": set()}.get(
        name, told
    ) == told


X = np.random.default_rng(0).standard_normal((3, 4, 6))
OPERATIONS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *((name, {}) for name in ("abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "isnan", "reciprocal", "round",
                              "sign", "sin", "sinh", "square", "tan", "tril", "triu", "trunc", "zeros_like")),
    *((name, {"dim": dim}) for name in ("sum", "mean", "prod", "amax", "amin", "argmax", "logsumexp", "cumsum",
                                        "cumprod", "argsort") for dim in (-1, 1)),
    ("mean", {"dim": (1, 2), "keepdim": True}), ("var", {"dim": 1, "correction": 0}),
    ("std", {"dim": -1, "correction": 0}),
    ("flip", {"dims": (1,)}), ("roll", {"shifts": 2, "dims": 1}), ("clamp", {"min": -0.5, "max": 0.7}),
    ("norm", {"dim": 1}), ("norm", {"p": 1, "dim": 1, "keepdim": True}),
    ("split", {"split_size_or_sections": 4, "dim": -1}),
    ("split", {"split_size_or_sections": (1, 5), "dim": -1}), ("chunk", {"chunks": 4, "dim": -1}),
    ("chunk", {"chunks": 3, "dim": 2}), ("unbind", {"dim": 1}),
    ("tensor_split", {"indices_or_sections": (1, 3), "dim": 1}),
    ("normalize", {}), ("normalize", {"p": 1, "dim": 1}), ("repeat_interleave", {"repeats": 2, "dim": 1}),
    ("topk", {"k": 2}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "told"), OPERATIONS, ids=lambda each: str(each))
def test_operations_compute_the_same(name: str, told: Mapping[str, Any]) -> None:
    spellings = {"tensor_split": {"indices_or_sections": "indices"}}.get(name, {})
    function = getattr(torch, name, None) or getattr(nn.functional, name)
    x = torch.tensor(X, dtype=torch.float32)
    wanted = function(x, **{spellings.get(key, key): value for key, value in told.items()})
    assumed = {"dim": 1, **told} if name == "normalize" else told  # torch's default, which a call need not state
    (call,) = operation(name, assumed, TorchCall(X.shape)).calls
    got = make(call)(X.astype("float32"))
    wanted, got = (list(each) if isinstance(each, (tuple, list)) else [each] for each in (wanted, got))
    assert len(wanted) == len(got)
    for a, b in zip(wanted, got, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-6)


def test_an_axis_that_keras_does_not_take_is_a_note() -> None:
    last, other = (operation("topk", {"k": 2, "dim": dim}, TorchCall(X.shape)) for dim in (2, 1))
    assert last.notes == ()
    assert other.notes == ("ops.top_k is along the last axis",)
    assert other.calls == last.calls


INCOMPLETE = {"einsum", "one_hot", "topk", "repeat", "expand", "masked_fill", "where", "scaled_dot_product_attention",
              "gather", "index_select", "dropout"}  # fmt: skip
"""Functions whose other arguments the outline leaves to the reader."""


@pytest.mark.parametrize(
    ("name", "least"), [("images", 13), ("patches", 30), ("sequences", 2), ("odd", 2), ("diffusing", 20)]
)
def test_functions_compute_the_same_where_images_have_their_channels_last(name: str, least: int) -> None:
    """Each function and each layer without weights of a whole model, run in Keras on PyTorch's values, with the axes
    where Keras has them."""
    _, graph, values, _ = replayed(f"tests.porting.nets:{name}", INPUTS[name])
    run = with_sources(graph)
    flow = AxisFlow(run, [parse_input(text) for text in INPUTS[name]])
    steps = Steps(run, flow)
    events = {number: run.nodes[serial] for serial, number in steps.numbers.items()}

    def there(seen: TracedTensor) -> Any:
        order = keras_permutation(flow.of(seen))
        array = values[seen.source].detach().numpy()
        return array if order is None else array.transpose(order)

    done = 0
    for step in steps.root().walk():
        event = events.get(step.number)
        if event is None or not step.keras or step.name in INCOMPLETE or (step.kind and step.kind not in PLAIN):
            continue
        if any(seen.source.kind in ("parameter", "buffer") for seen in event.inputs):
            continue  # weights, whose axes a rule moves
        given = [there(seen) for seen in event.inputs]
        with float64():
            made: Any = given[0] if len(given) == 1 else given
            for call in step.keras:
                made = make(call)(made)
        made = made if isinstance(made, (list, tuple)) else [made]
        for got, seen in zip(made, event.outputs, strict=False):
            np.testing.assert_allclose(np.asarray(got), there(seen), rtol=1e-12, atol=1e-12, err_msg=step.keras_text)
        done += 1
    assert done >= least


PLAIN = ("activation", *(f"{which}_pool{rank}d" for which in ("max", "avg") for rank in (1, 2, 3)))
