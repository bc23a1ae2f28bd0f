"""Runs a pair: weights drawn in PyTorch, moved by the kind's own rules, both sides compared as verify compares them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any
from zlib import crc32

import keras
import numpy as np
import torch

from wdport.compare.calls import Case
from wdport.compare.candidate import Candidate
from wdport.compare.engine import compare
from wdport.compare.layouts import Layout
from wdport.compare.layouts import axes as layout
from wdport.compare.pairs import Pair as Layers
from wdport.compare.probe import CallArguments, Compute, intercepted
from wdport.compare.reference import Live
from wdport.compare.setting_values import Setting
from wdport.compare.settings import compare_pair
from wdport.mapping.axes import parse_rule
from wdport.mapping.names import NamePattern
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.rearrange import apply_rule
from wdport.mapping.rows import Table, TapRow
from wdport.mapping.table import parse_table
from wdport.models.interface import Array, Signature
from wdport.models.interface import Port as Output
from wdport.models.keras_runtime import (
    float64,
    layers_by_path,
    set_variable,
    unfilled,
    variables_by_path,
)

from .layers import Cut, Twin
from .pair import OF_THE_PAIR, Pair, State

BOUND = 1e-12
"""Relative L2 error of equal layers. Float64 rounds at 1.1e-16, and no sum here has more than some 100 terms."""


class NoPlanError(Exception):
    """The kind's rules do not make the layer's variables of the module's tensors."""


@dataclass(frozen=True)
class Outcome:
    """What came of a pair.

    Attributes:
        pair: the pair.
        error: relative L2 error of the Keras layer's output; infinite where its shape is another.
        mutants: the same of every mutant.
        alarms: hyper-parameters that ``wdport verify`` would say differ, though they do not.
        named: mutants whose wrong hyper-parameter ``wdport verify`` would name before it computes anything.
    """

    pair: Pair
    error: float
    mutants: Mapping[str, float]
    alarms: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    @property
    def survivors(self) -> tuple[str, ...]:
        """Mutants that the comparison does not tell from the right layer."""
        return tuple(name for name, error in self.mutants.items() if not error > BOUND)

    @property
    def passed(self) -> bool:
        return self.error <= BOUND and bool(self.mutants) and not self.survivors and not self.alarms


@dataclass(frozen=True)
class Reference:
    """The PyTorch side of a pair: its module, the tensors of a checkpoint, inputs and output in float64, and the shapes
    of what the module of the table's row is given and makes."""

    module: torch.nn.Module
    state: Mapping[str, Array]
    inputs: Sequence[Array]
    output: Array
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def run(pair: Pair) -> Outcome:
    """Compare the pair and every mutant of it."""
    reference = torch_side(pair)
    error, told = compared(pair, reference, {})
    alarms = tuple(each.text for each in told if each.level == "differs")
    mutants, named = {}, []
    for name, changes in pair.mutants.items():
        own = {key: value for key, value in changes.items() if key in OF_THE_PAIR}
        mutant = replace(pair, **own)
        given = replace(reference, state=stored(mutant, reference.module)) if "state" in own else reference
        try:
            mutants[name], now = compared(mutant, given, {k: v for k, v in changes.items() if k not in own})
        except NoPlanError as error:
            fix = "let the mutant have the shapes of the layer's variables, or state what Keras lacks in absent.py"
            raise NoPlanError(f"{error}, with the mutant {name!r}: {fix}") from error
        named += [name] if {each.text for each in now} - {each.text for each in told} else []
    return Outcome(pair, error, mutants, alarms, tuple(named))


def torch_side(pair: Pair) -> Reference:
    """The module with random weights, running statistics among them, and what it computes."""
    seed = crc32(pair.name.encode())
    torch.manual_seed(seed)
    module = torch.nn.ModuleDict({"m": pair.torch()}).double()
    randomise(module)
    state = stored(pair, module)
    inputs = draw(pair, seed)
    seen: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    row = module.get_submodule(f"m{pair.at[0]}")
    hook = row.register_forward_hook(lambda _, given, made: seen.append((shape(given[0]), shape(first(made)))))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using padding='same' with even kernel", UserWarning)
        output = first(module["m"](*map(torch.tensor, inputs)))
    hook.remove()
    if output.dtype != torch.float64:
        raise AssertionError(f"{pair.name}: PyTorch computes in {output.dtype}")
    return Reference(module, state, inputs, output.numpy(), seen[-1])


def randomise(module: torch.nn.Module) -> None:
    """Draw all weights and running statistics."""
    with torch.no_grad():
        for name, tensor in module.eval().state_dict().items():
            if tensor.is_floating_point() and not name.endswith(("._u", "._v")):
                drawn = torch.randn(tensor.shape, dtype=tensor.dtype) * 0.5
                positive = name.endswith(("var", "weight_g", "original0"))
                tensor.copy_(drawn.abs() + 0.5 if positive else drawn)


def stored(pair: Pair, module: torch.nn.Module) -> Mapping[str, Array]:
    """The tensors that a checkpoint of the module has."""
    state: State = pair.state(module) if pair.state else module.state_dict()
    return {name: tensor.detach().numpy().copy() for name, tensor in state.items()}


def draw(pair: Pair, seed: int) -> list[Array]:
    """The arguments of the module; one array several times where the pair says so."""
    rng = np.random.default_rng(seed)
    arrays = [
        rng.integers(0, pair.below, shape) if pair.below else pair.scale * rng.standard_normal(shape)
        for shape in pair.shapes
    ]
    return [arrays[at] for at in pair.arrays]


def compared(pair: Pair, reference: Reference, changes: Mapping[str, Any]) -> tuple[float, list[Setting]]:
    """The relative error of the Keras layer with these arguments changed, and what ``verify`` says of its settings."""
    wanted = laid_out(reference.output, pair.out or pair.axes, pair.sizes)
    inputs = [laid_out(array, pair.axes) for array in reference.inputs]
    with float64(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation doesn't accept a copy keyword", DeprecationWarning)
        with unfilled():
            layer = pair.keras(**changes)
            port = Port(layer)
            port(*inputs)  # Keras makes variables when a layer is first called
        fill(pair, reference.state, port)
        rows = {path: each for path, each in layers_by_path(port).items() if at_row(pair, path)}
        with intercepted(rows, shaped := Shaped()):
            output = first(port(*inputs))
        if output.dtype != "float64":
            raise AssertionError(f"{pair.name}: Keras computes in {output.dtype}")
        error = inf if output.shape != wanted.shape else largest_error(pair, reference, port)
        rows = {} if isinstance(layer, Cut) else rows
        told = [each for path in rows for each in settings(pair, reference, rows[path], shaped.given.get(path, ()))]
    return error, told


def largest_error(pair: Pair, reference: Reference, port: Port) -> float:
    """The largest float64 error that verify's engine finds."""
    module, inputs = Whole(reference.module["m"], pair), reference.inputs
    end = NamePattern("end")
    table = Table(pair.name, "", "", "", None, (), (TapRow(0, end, end),))
    output = Output("output", "" if pair.sizes else (pair.out or pair.axes).removeprefix("..."))
    candidate = Candidate({"float64": port}, table, LaidOut((), (output,), layout=pair.axes), eager=True)
    live = Live({"float64": module, "float32": module}, lambda *_: inputs)
    comparison = compare(live, candidate, [Float64(0, len(inputs[0]), 1.0)])
    taps = comparison.taps.values()
    return max(max(each.isolated, each.cumulative, each.inputs, each.conditioned) for each in taps)


@dataclass(frozen=True)
class Float64(Case):
    """A case in float64 alone."""

    @property
    def numerics(self) -> bool:
        return False


@dataclass(frozen=True)
class LaidOut(Signature):
    """Inputs that all have one layout."""

    layout: str = ""

    def in_port(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(laid_out(array, self.layout) for array in inputs)


class Whole(torch.nn.Module):
    """A network of the module alone, whose state it does not give. A network states no sizes of its output's axes, so
    an output that needs them is already in the layout of the port."""

    def __init__(self, module: torch.nn.Module, pair: Pair) -> None:
        super().__init__()
        self.m, self.end, self.pair = module, torch.nn.Identity(), pair
        self.eval()

    def forward(self, *inputs: torch.Tensor) -> Any:
        output = first(self.m(*inputs))
        if self.pair.sizes:
            output = torch.from_numpy(laid_out(output.numpy(), self.pair.out, self.pair.sizes))
        return self.end(output)


class Shaped:
    """What answers calls by the layers themselves and keeps the shapes of what they are given first."""

    def __init__(self) -> None:
        self.given: dict[str, tuple[int, ...]] = {}

    def __call__(self, call: str, compute: Compute, arguments: CallArguments) -> object:
        self.given.setdefault(call, tuple(arguments.tensors[0].shape))
        return compute(arguments.tensors)


def at_row(pair: Pair, path: str) -> bool:
    """Whether this is the layer of the table's row, or one of its layers."""
    place = re.escape(f"k{pair.at[1]}").replace("<layer>", r"\d+")
    return re.fullmatch(place, path) is not None


def settings(pair: Pair, reference: Reference, layer: Any, given: tuple[int, ...]) -> list[Setting]:
    """What the row's module and layer were told differently. A row cannot name a layer of which something is cut off
    after it: its outputs have another size."""
    module = reference.module.get_submodule(f"m{pair.at[0]}")
    (fed, made), rule = reference.shapes, layout("... -> ..." if pair.axes in ("", "...") else pair.axes)
    if len(made) > 2 and getattr(layer, "data_format", "") == "channels_last":
        made = (made[0], *made[2:], made[1])
    layers = Layers(pair.kind, module, layer, Layout((rule,)), fed, given, made if len(made) == len(given) else ())
    return compare_pair(layers)[1]


class Port(Twin):
    """Holds a layer under the name that the table gives it."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.k, self.end = layer, keras.layers.Identity()

    def call(self, *inputs: Any) -> Any:
        given = inputs[0] if isinstance(inputs[0], tuple) else inputs
        return self.end(first(self.k(*given)))


def fill(pair: Pair, state: Mapping[str, Array], port: Port) -> None:
    """Move the tensors into the layer by a table of one row, and back; raises :class:`NoPlanError`."""
    targets = variables_by_path(port)
    if not pair.kind:
        if state or targets:
            raise NoPlanError(f"{pair.name}: weights need a kind")
        return
    row = f"torch: m{pair.at[0]}, keras: k{pair.at[1]}, kind: {pair.kind}" + (f", {pair.row}" if pair.row else "")
    table = parse_table(f"{{format: 2, layers: [{{{row}}}]}}".encode(), pair.name)
    shapes = {name: tuple(array.shape) for name, array in state.items()}
    plan = make_plan(table, shapes, {path: tuple(v.shape) for path, v in targets.items()}, {})
    if (state or targets) and not isinstance(plan, Plan):
        raise NoPlanError(f"{pair.name}: {plan}")
    if not isinstance(plan, Plan):
        return
    values = dict(plan.apply(state.__getitem__, rounded=False))
    back = dict(plan.invert(values.__getitem__))
    for name in (source for move in plan.moves if move.exact for source in move.sources):
        if not np.array_equal(back[name], state[name]):
            raise NoPlanError(f"{pair.name}: {name} does not come back from the layer")
    for path, array in values.items():
        set_variable(targets[path], array)
        if np.asarray(targets[path]).dtype != np.float64:
            raise AssertionError(f"{pair.name}: {path} is not kept in float64")


def laid_out(array: Array, text: str, sizes: Mapping[str, int] | None = None) -> Array:
    """An activation in Keras's layout."""
    if text in ("", "..."):
        return array
    rule = parse_rule(text, text)
    shape = rule.inverse().source_shape([array.shape], sizes)
    if shape is None:
        raise AssertionError(f"the layout {text} is not one of {array.shape}")
    return apply_rule(rule, [array], rule.sizes([array.shape], [shape], sizes))[0]


def shape(value: Any) -> tuple[int, ...]:
    """The shape of a tensor; nothing of packed sequences."""
    return tuple(getattr(value, "shape", ()))


def first(output: Any) -> Any:
    """The output itself, where a layer returns its state as well."""
    return output[0] if isinstance(output, (tuple, list)) else output
