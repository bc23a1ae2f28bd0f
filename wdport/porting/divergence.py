"""Explain why a search stopped: the last layer that agrees, the first that does not, and probable causes.

The place is found from values: the first wrong layer has an input that occurs in PyTorch and an output that does not.
Its expected output is what PyTorch computes from the same value; settings, known forms and exact relations give the
cause.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, permutations
from typing import TYPE_CHECKING

import jax
import keras
import numpy as np

from wdport.base.errors import WdportError
from wdport.compare.calls import Call, layer_of, leaves
from wdport.compare.layouts import fed_in_port, in_port
from wdport.compare.measure import relative_l2
from wdport.compare.pairs import Pair
from wdport.compare.recognize import attention_difference, difference, forms
from wdport.compare.relations import arrangement, relations, same
from wdport.compare.setting_checks import every
from wdport.compare.setting_values import Setting
from wdport.compare.settings import compare_pair
from wdport.models.interface import Array, KerasLayer
from wdport.models.keras_runtime import frozen_weights, set_variable, variables_by_path
from wdport.porting.candidate_rows import FillOption, agreement, layer_option, layout_of_option
from wdport.porting.counterfactuals import mends
from wdport.porting.fingerprints import InputCall, KerasSide, Print
from wdport.porting.layer_units import Unit, likeness, module_of, possible, torch_kinds
from wdport.porting.matching import RunOutcome
from wdport.porting.setting_trials import ZEROS, Right, called, needed
from wdport.porting.table_text import Place
from wdport.porting.torch_run import TorchRun, TorchValue, joined_bits

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Divergence:
    """The place where the two models begin to differ.

    Attributes:
        last: the last layer that agrees; both names "" if none does.
        first: the first that does not.
        what: what is wrong there, in words.
        wanted: its expected input or output, in words; "" if unknown.
        causes: probable causes of the difference, in words, the most likely first.
    """

    last: Place
    first: Place
    what: str
    wanted: str = ""
    causes: tuple[str, ...] = ()


@dataclass
class _SearchState:
    """Everything known at the point where a run stopped."""

    run: TorchRun
    side: KerasSide
    units: Sequence[Unit]
    outcome: RunOutcome
    causes: list[str] = field(default_factory=list)

    def values(self, array: Array) -> list[TorchValue]:
        """PyTorch's values that are equal to this array."""
        return list(self.run.prints.find(Print(array)))

    def all_occur(self, arrays: Sequence[Array]) -> bool:
        """Whether all of these occur in PyTorch, or are outputs of layers that agree: a transposed convolution may have
        more at its ends, which a later layer crops."""
        informative = [Print(array) for array in arrays if array.dtype.kind == "f" and not Print(array).empty]
        right = [Print(array) for event in self.outcome.events if event.path in self.outcome.agreed
                 for array in event.outputs]  # fmt: skip
        return all(any(True for _ in self.run.prints.find(one)) or any(one.same(other) for other in right)
                   for one in informative)  # fmt: skip

    @property
    def last(self) -> Place:
        """The last layer with weights that agrees."""
        for event in reversed(self.outcome.events):
            option = self.outcome.matched.get(event.path)
            if option is not None and event is not getattr(self.outcome.dead_end, "event", None):
                return Place(event.path, option.unit.path)
        return Place("", "")

    def assign(self, option: FillOption) -> None:
        """Give a layer the weights of an option: later runs may have given it others."""
        with jax.enable_x64(True):
            for name, array in option.values.items():
                set_variable(self.side.variables[name], array)

    def matched_units(self) -> list[Unit]:
        return [option.unit for option in self.outcome.matched.values()]


def divergence_of(run: TorchRun, side: KerasSide, units: Sequence[Unit], outcome: RunOutcome) -> Divergence:
    """The report on an outcome with a dead end."""
    divergence = _divergence(run, side, units, outcome)
    return replace(divergence, causes=(*frozen_weights(side.model), *divergence.causes))


def _divergence(run: TorchRun, side: KerasSide, units: Sequence[Unit], outcome: RunOutcome) -> Divergence:
    # The run that got furthest, not the last one, which may have followed a wrong guess.
    outcome = outcome.deepest or outcome
    state = _SearchState(run, side, units, outcome)
    dead_end = outcome.dead_end
    assert dead_end is not None
    if dead_end.event is not None and dead_end.reason == "output" and dead_end.option is not None:
        return _matched_layer(state, dead_end.event, dead_end.option)
    if dead_end.event is not None and (around := _refused_layer(state, dead_end.event)):
        return around
    if culprit := _first_wrong_layer(state):
        return _wrong_output(state, culprit)
    if dead_end.event is None:
        return _wrong_model_outputs(state)
    if dead_end.variable and dead_end.reason == "shape":
        return _unfilled_variable(state, dead_end.event, dead_end.variable)
    return _wrong_input(state, dead_end.event)


def _refused_layer(state: _SearchState, event: InputCall) -> Divergence | None:
    """A layer of a kind around the dead end with the right input and an output that differs from its module's."""
    for other, option in reversed(state.outcome.refused):
        if event.path == other.path or event.path.startswith(f"{other.path}/"):
            return _matched_layer(state, other, option, event)
    return None


def _first_wrong_layer(state: _SearchState) -> InputCall | None:
    """A layer without weights whose input occurs in PyTorch and whose output does not: the first after the last one
    that agrees, or else the last before it."""
    events = state.outcome.events
    matched = [index for index, event in enumerate(events) if event.path in state.outcome.matched]
    start = matched[-1] + 1 if matched else 0
    wrong = [index for index, event in enumerate(events)
             if event.path not in state.outcome.matched and event.inputs and event.outputs
             and state.all_occur(event.inputs) and not state.all_occur(event.outputs)]  # fmt: skip
    # A layer around a wrong one is wrong because of it.
    inner = [index for index in wrong if not any(events[b].path.startswith(f"{events[index].path}/") for b in wrong)]
    later = [index for index in inner if index >= start]
    # Earlier ones may be branches whose outputs PyTorch joins in another way.
    chosen = later[:1] or inner[-1:]
    return events[chosen[0]] if chosen else None


# --- A layer with weights makes something else -----------------------------------------------------------------------


def _matched_layer(
    state: _SearchState, event: InputCall, option: FillOption, inner: InputCall | None = None
) -> Divergence:
    """A layer with the unit's input and another output; ``inner`` is where that was found."""
    unit, layer = option.unit, state.side.layers[event.path]
    call = unit.calls[unit.call_with([Print(array) for array in event.inputs]) or 0]
    here = Place(event.path, unit.path)
    if inner is not None and state.outcome.dead_end is not None and state.outcome.dead_end.reason == "input":
        here = Place(inner.path, unit.path)
    placed_input, before = _arrays_in_port(option, call, layer, event) if option.kind else (None, None)
    state.assign(option)

    def right(other: KerasLayer, outputs: Sequence[Array]) -> bool:
        agreed = agreement(option, call, other, event.inputs, outputs)
        return agreed is not None and (not agreed.after or state.all_occur(agreed.outputs))

    if placed_input is not None and event.inputs and _reordered(event.inputs[0], placed_input):
        with_order = [placed_input, *event.inputs[1:]]
        return _reordered_input(state, event, here, placed_input, proved=_holds(layer, with_order, event, right))
    causes = list[str]()
    if inner is not None and inner.inputs:
        causes += _attention_causes(state, unit, inner)
    if not causes and before is not None and event.outputs:
        results = _function_results(state, call, before)
        causes += next((text for result in results if (text := difference(before, result, event.outputs[0]))), [])
    if not causes:
        fed = unit.first_input().shape
        settings = _setting_differences(option.kind, unit.module, layer, event, before, fed)
        theirs = _padded_as_in_torch(unit, call, layer, event) if option.kind else None
        if theirs is not None:
            words = (
                f"its input has other zeros around it than PyTorch's padding {getattr(unit.module, 'padding')} makes"
            )
            settings.append(Setting(ZEROS, None, None, "differs", words))
        causes += _by_trial(layer, event, settings, right, theirs)
    if not causes and before is not None and event.outputs:
        activations = [form.setting for form in forms(before, event.outputs[0]) if form.kind == "activation"]
        causes += [f"activation {activation}, which PyTorch does not have there" for activation in activations[:1]]
    if not causes and event.outputs:
        causes += mends(state.run, event.outputs[0], _suspects(state, unit.bits))
    if not causes and before is not None and event.outputs:
        causes += relations(event.outputs[0], before, {})
    what = f"its input is that of {unit.path}, its output is not"
    if placed_input is not None and event.inputs and not same(placed_input, event.inputs[0]):
        what = f"its input has the values of that of {unit.path}, in other places or numbers"
    expected = f"its output should be that of {unit.path}"
    if not causes and unit.module is not None:
        expected += f", {one_line(unit.module)}"
    return Divergence(state.last, here, what, expected, tuple(dict.fromkeys(causes)))


def _by_trial(
    layer: KerasLayer, event: InputCall, settings: Sequence[Setting], right: Right, theirs: Array | None = None
) -> list[str]:  # fmt: skip
    """The settings that make a layer right, if its call can be repeated; ``theirs`` as for :func:`needed`."""
    with contextlib.suppress(Exception):  # the user's own layer, called in another way than in the model
        if event.outputs and settings and same(called(layer, event.inputs, event.names)[0], event.outputs[0]):
            return [setting.text for setting in needed(layer, event, settings, right, theirs)]
    return []


def _padded_as_in_torch(unit: Unit, call: Call, layer: KerasLayer, event: InputCall) -> Array | None:
    """The input of a layer that does not pad itself, channels last, with the zeros of PyTorch's module, if its own
    differs in them alone."""
    widths, array = getattr(unit.module, "padding", None), np.asarray(leaves(list(call.inputs))[0])
    count = array.ndim - 2
    if getattr(layer, "padding", "") != "valid" or getattr(layer, "data_format", "") != "channels_last":
        return None
    if (
        not isinstance(widths, (int, tuple))
        or len(every(widths)) not in (1, count)
        or event.inputs[0].ndim != array.ndim
    ):
        return None
    sides = [(width, width) for width in (every(widths) * count)[:count]]
    padded = np.pad(np.moveaxis(array, 1, -1), [(0, 0), *sides, (0, 0)])
    alike = same(*map(_without_zeros_around, (padded, event.inputs[0])))
    return padded if alike and not same(padded, event.inputs[0]) else None


def _without_zeros_around(array: Array) -> Array:
    places = np.nonzero(array)
    return array[tuple(slice(along.min(), along.max() + 1) for along in places)] if places[0].size else array


def _holds(layer: KerasLayer, inputs: Sequence[Array], event: InputCall, right: Right) -> bool:
    """Whether a layer is right on other inputs than those of its call."""
    with contextlib.suppress(Exception):
        return right(layer, called(layer, inputs, event.names))
    return False


def _reordered(array: Array, right: Array) -> bool:
    """Whether an array has the values of another one in another order."""
    return array.size == right.size and not same(array, right) and same(
        np.sort(array, axis=None), np.sort(right, axis=None))  # fmt: skip


def _arrays_in_port(
    option: FillOption, call: Call, layer: KerasLayer, event: InputCall
) -> tuple[Array | None, Array | None]:
    """The unit's first input and output in the port's layout, if they can be converted."""
    layout = layout_of_option(option, layer)
    shapes = [np.shape(array) for array in event.inputs], [np.shape(array) for array in event.outputs]
    placed_input = placed_output = None
    with contextlib.suppress(ValueError, IndexError, TypeError, WdportError):
        placed_input = fed_in_port(call, layout, shapes[0]).get(0)
    with contextlib.suppress(ValueError, IndexError, TypeError, WdportError):
        placed_output = in_port(call, layout, shapes, strict=False).outputs[0]
    return placed_input, placed_output


def _function_results(state: _SearchState, call: Call, before: Array) -> Iterator[Array]:
    """Results of one function on a unit's output in PyTorch, in the layout of ``before``."""
    for value in state.values(np.asarray(call.outputs[0])):
        for other in state.run.values:
            array = other.result.array
            if other.sources == (value.number,) and array.shape == value.result.array.shape:
                yield from islice(_permuted_like(array, value.result.array, before), 1)


def _permuted_like(array: Array, like: Array, placed: Array) -> Iterator[Array]:
    """``array`` with its axes moved in every way in which those of ``like`` may have been moved in ``placed``."""
    for order in permutations(range(array.ndim)) if array.ndim == like.ndim == placed.ndim else ():
        if like.transpose(order).shape == placed.shape and relative_l2(like.transpose(order), placed) < 1e-9:
            yield array.transpose(order)


def _setting_differences(
    kind: str, module: torch.nn.Module | None, layer: KerasLayer, event: InputCall, placed: Array | None,
    fed: Sequence[int] = (),
) -> list[Setting]:  # fmt: skip
    """Settings that differ; ``fed`` is the shape of the module's input."""
    if module is None:
        return []
    input_shape, shape = np.shape(event.inputs[0]) if event.inputs else (), () if placed is None else placed.shape
    pair = Pair(kind, module, layer, fed=tuple(fed), input_shape=input_shape, output_shape=shape)
    try:
        _, compared = compare_pair(pair)
    except (AttributeError, TypeError, ValueError, KeyError, IndexError):
        return []
    # The activation of a Keras layer may be a separate function in PyTorch; the values show whether it is.
    differences = [setting for setting in compared if setting.level == "differs"
                   and (setting.name != "activation" or setting.torch is not None)]  # fmt: skip
    # Last: a layout is often a choice, and an activation may be a separate function in PyTorch.
    differences.sort(key=lambda setting: setting.name in ("data_format", "activation"))
    return differences


def _reordered_input(
    state: _SearchState, event: InputCall, here: Place, right: Array, proved: bool
) -> Divergence:  # fmt: skip
    """The report on a layer whose input has the right values in another order; ``proved`` if the layer is right with
    them in this order."""
    input_print = Print(event.inputs[0])
    others = (other for other in reversed(state.outcome.events) if other is not event)
    before = next((other for other in others if any(Print(array).same(input_print) for array in other.outputs)), None)
    order = arrangement(event.inputs[0], right) or "in another order"
    causes = (relations(event.inputs[0], right, {}) or [f"is {order}"]) if proved else []
    path = before.path if before is not None and len(before.inputs) > 1 else event.path
    what = f"{event.path} is given the values of the input of {here.torch}, in another order"
    return Divergence(state.last, Place(path, here.torch), what, "", tuple(f"its input {cause}" for cause in causes))


# --- A layer without weights makes something else --------------------------------------------------------------------


def _wrong_output(state: _SearchState, event: InputCall) -> Divergence:
    """The report on a layer without weights whose input occurs in PyTorch and whose output does not."""
    layer, causes, wrong = state.side.layers[event.path], list[str](), event.outputs[0]
    computed = list(_torch_values(state, event))
    names = [value for value, _ in computed]
    for value, input_index in computed:
        right = _in_layer_layout(value.result.array, state, value, event, input_index)
        causes += _function_differences(state, value, layer, event, right)
        if right is not None and not causes:
            causes += difference(event.inputs[input_index], right, wrong)
        if causes:
            names = [value]
            break
    causes = causes or mends(state.run, wrong, _suspects(state))
    torch = names[0].text if names else ""
    described = list(dict.fromkeys(_described(state, value) for value in names))[:MOST_NAMED]
    expected = f"PyTorch computes {', '.join(described)} from it" if described else ""
    if not causes and not names and event.inputs[0].shape == wrong.shape:
        recognized = list(forms(event.inputs[0], wrong))
        causes += [f"{form.kind} {form.setting}, which PyTorch does not have there" for form in recognized[:1]]
    what = f"its input occurs in PyTorch ({_names(state, event.inputs)}), its output does not"
    if not all(map(state.values, event.inputs)):
        what = "its input is what a layer that agrees makes, its output does not occur in PyTorch"
    return Divergence(state.last, Place(event.path, torch), what, expected, tuple(dict.fromkeys(causes)))


MOST_NAMED = 4
"""Maximum number of functions and modules of PyTorch that are named for one value."""


def _suspects(state: _SearchState, bits: int = 0) -> list[TorchValue]:
    """PyTorch's values that depend only on what was found and on ``bits``, and that no Keras layer has."""
    numbers = set[int]()
    bits |= joined_bits(unit.bits for unit in state.matched_units())
    for event in state.outcome.events:
        if event.path in state.outcome.matched:
            numbers |= {value.number for array in event.outputs for value in state.values(array)}
    return [value for value in state.run.values if not value.depends & ~bits and value.number not in numbers]


def _torch_values(state: _SearchState, event: InputCall) -> Iterator[tuple[TorchValue, int]]:
    """PyTorch's values computed from the same inputs, and from which of them: first those that no layer has yet."""
    arrays = (array for event in state.outcome.events for array in event.outputs)
    covered = {value.number for array in arrays for value in state.values(array)}
    computed = []
    for input_index, array in enumerate(event.inputs):
        numbers = {value.number for value in state.values(array)}
        computed += [(value, input_index) for value in state.run.values if numbers & set(value.sources)]
    yield from sorted(computed, key=lambda pair: (pair[0].number in covered, pair[0].number))


def _function_differences(
    state: _SearchState, value: TorchValue, layer: KerasLayer, event: InputCall, right: Array | None
) -> list[str]:  # fmt: skip
    """The settings of a function or module of PyTorch with which a layer computes its value, which is ``right`` in the
    layer's layout, if its shape is the layer's."""
    modules = dict(state.run.module.named_modules())
    module = modules.get(layer_of(value.names[0])) if value.names else None
    module = module if module is not None and not list(module.children()) else module_of(value.by, value.arguments)
    if module is None:
        return []
    unit = Unit("", torch_kinds(module), {}, "", "", (), 0, 0, module)
    array = value.result.array
    fed = state.run.values[value.sources[0]].result.array.shape if value.sources else ()
    placed = np.moveaxis(array, 1, -1) if array.ndim > 2 else array

    def holds(_: KerasLayer, outputs: Sequence[Array]) -> bool:
        return Print(outputs[0]).same(value.result) if right is None else same(outputs[0], right)

    for kind in possible(unit, layer) or (() if unit.kinds else ("",)):
        if causes := _by_trial(layer, event, _setting_differences(kind, module, layer, event, placed, fed), holds):
            return causes
    return []


def _in_layer_layout(
    array: Array, state: _SearchState, value: TorchValue, event: InputCall, input_index: int
) -> Array | None:
    """PyTorch's value in the layout of the layer's output, if the shapes fit."""
    ours, wrong = event.inputs[input_index], event.outputs[0]
    for source in state.values(ours):
        for laid in _permuted_like(array, source.result.array, ours) if source.number in value.sources else ():
            if laid.shape == wrong.shape:
                return laid
    return array if array.shape == wrong.shape else None


def _described(state: _SearchState, value: TorchValue) -> str:
    """The function or module that computed a value, with its settings."""
    listed = value.arguments.items()
    arguments = ", ".join(str(argument) if name.isdigit() else f"{name} {argument}" for name, argument in listed)
    name = f"{value.names[0]} ({value.by})" if value.names else value.by.strip("_")
    return f"{name}{f' ({arguments})' if arguments else ''}"


def one_line(module: object) -> str:
    """A module's class and settings."""
    text = " ".join(str(module).split())
    return text if len(text) < MOST_SIGNS else type(module).__name__


MOST_SIGNS = 160
"""A module whose settings take more is described by its class."""


def _names(state: _SearchState, arrays: Sequence[Array]) -> str:
    texts = [values[0].text.strip("_") for array in arrays if (values := state.values(array))]
    return ", ".join(dict.fromkeys(texts)) or "nothing"


def _unfilled_variable(state: _SearchState, event: InputCall, name: str) -> Divergence:
    """The report on a variable of a layer without a kind, or of the model itself, that no tensor fits."""
    shape = tuple(state.side.variables[name].shape)
    place = "of the same input, or of a module around others," if event.path else "that is left"
    what = f"no tensor {place} fits the variable {name} {shape}, neither alone nor stacked with others"
    fed = (
        [f"its input is {_names(state, event.inputs)}"] if event.inputs and all(map(state.values, event.inputs)) else []
    )
    return Divergence(state.last, Place(event.path or name, ""), "; ".join([*fed, what]))


# --- What a layer is given is wrong ----------------------------------------------------------------------------------


def _wrong_input(state: _SearchState, event: InputCall) -> Divergence:
    """The report on a layer whose input is not that of any module of its kind."""
    unit = _next_unit(state, event)
    here = Place(event.path, unit.path if unit else "")
    values = state.values(event.inputs[0]) if event.inputs else []
    causes: list[str] = []
    expected = f"its input should be that of {unit.path}: {_source(state, unit)}" if unit else ""
    if values:
        repeated = values[0].result.count != Print(event.inputs[0]).count  # by a function, such as a nearest upsampling
        if unit is not None and not repeated and (steps := _functions_between(state, values[0], unit)):
            causes.append(f"lacks {' and '.join(steps)}, which PyTorch has between {values[0].text} and {unit.path}")
        what = f"its input is {values[0].text.strip('_')}, which no module of its kind and shape is given"
        prints = [Print(array) for array in event.inputs]
        fed_units = [other for other in state.units if other.module is not None and other.call_with(prints) is not None]
        modules = [f"{other.path}, {one_line(other.module)}" for other in fed_units if other.tensors and not other.part]
        expected = f"PyTorch gives it to {'; '.join(modules[:MOST_NAMED])}" if modules and not causes else expected
    else:
        what = "its input does not occur in PyTorch"
        causes += _attention_causes(state, unit, event) if unit is not None else []
        causes = causes or mends(state.run, event.inputs[0], _suspects(state))
        if not causes and unit is not None:
            causes += _input_relations(state, unit, event)
    causes += _misfit_settings(state, event) if not causes else []
    return Divergence(state.last, here, what, expected, tuple(dict.fromkeys(causes)))


def _misfit_settings(state: _SearchState, event: InputCall) -> list[str]:
    """Settings due to which a layer's variables do not fit the module with the same input."""
    layer, prints = state.side.layers.get(event.path), [Print(array) for array in event.inputs]
    if type(layer) is keras.layers.RNN:
        return ["its cells run in a loop of Keras, where no call is seen: write one keras.layers.LSTM, GRU or "
                "SimpleRNN for each layer instead"]  # fmt: skip
    for unit in state.units if layer is not None else ():
        if unit.module is not None and unit.call_with(prints) is not None:
            for kind in possible(unit, layer):
                settings = _setting_differences(kind, unit.module, layer, event, None, unit.first_input().shape)
                fits = partial(_fits, unit, event.path, kind)
                if fewest := needed(layer, event, settings, fits):
                    return [setting.text for setting in fewest]
    return []


def _fits(unit: Unit, path: str, kind: str, layer: KerasLayer, _: Sequence[Array]) -> bool:
    """Whether a module's tensors fit the variables of a layer."""
    shapes = {f"{path}/{name}": tuple(variable.shape) for name, variable in variables_by_path(layer).items()
              if "float" in str(variable.dtype)}  # fmt: skip
    return layer_option(unit, path, kind, shapes) is not None


def _next_unit(state: _SearchState, event: InputCall) -> Unit | None:
    """The next module: one of the layer's kind and shape that depends only on what was found."""
    layer, used = state.side.layers[event.path], {unit.path for unit in state.matched_units()}
    bits = joined_bits(unit.bits for unit in state.matched_units())
    below = {name: tuple(variable.shape) for name, variable in state.side.variables_below(event.path).items()}
    candidates = []
    for unit in state.units:
        if unit.path in used or not unit.tensors or unit.part.startswith("chunk"):
            continue
        depends = joined_bits(map(state.run.depends, unit.prints[0] if unit.prints else ()))
        fits = any(layer_option(unit, event.path, kind, below) for kind in possible(unit, layer))
        # A module that depends on weights that were not found yet comes later in the model.
        candidates.append((bool(depends & ~bits), not fits, unit.order, -likeness(unit.path, event.path), unit))
    candidates.sort(key=lambda candidate: candidate[:4])
    return candidates[0][4] if candidates and not candidates[0][1] else None


def _source(state: _SearchState, unit: Unit) -> str:
    prints = unit.prints[0] if unit.prints else ()
    values = [value for fingerprint in prints for value in list(state.run.prints.find(fingerprint))[:1]]
    return ", ".join(dict.fromkeys(_described(state, value) for value in values)) or "what it takes"


def _functions_between(state: _SearchState, start: TorchValue, unit: Unit) -> list[str]:
    """The functions from a value to a unit's input, in order."""
    prints = unit.prints[0] if unit.prints else ()
    ends = {value.number for fingerprint in prints for value in state.run.prints.find(fingerprint)}
    # Values are numbered in the order of the run, so one pass forward reaches every later one.
    paths: dict[int, list[str]] = {start.number: []}
    for value in state.run.values[start.number + 1 :]:
        source = next((number for number in value.sources if number in paths), None)
        if source is None or value.number in paths:
            continue
        paths[value.number] = [*paths[source], value.names[0] if value.names else value.by.strip("_")]
        if value.number in ends:
            return paths[value.number][:6]
    return []


def _attention_causes(state: _SearchState, unit: Unit, event: InputCall) -> list[str]:
    """Attention with other settings, computed from the projections that were found last."""
    right = unit.first_input()
    wrong = event.inputs[0]
    if wrong.ndim != 3 or right.size != wrong.size:
        return []
    # PyTorch's attention may have the batch second.
    right = right if right.shape == wrong.shape else right.transpose(1, 0, 2) if right.ndim == 3 else right
    parts = [other.outputs[0] for other in state.outcome.events if other.path in state.outcome.matched and other.outputs
             and other.outputs[0].ndim >= 3 and other.outputs[0].size == wrong.size][-4:]  # fmt: skip
    try:
        return attention_difference(parts, right, wrong) if right.shape == wrong.shape and len(parts) >= 3 else []
    except (ValueError, IndexError):
        return []


def _input_relations(state: _SearchState, unit: Unit, event: InputCall) -> list[str]:
    """Exact relations of the layer's input to its expected input."""
    right, wrong = unit.first_input(), event.inputs[0]
    outputs = {f"the output of {other.path}": array for other in state.outcome.events for array in other.outputs[:1]
               if other.path in state.outcome.matched}  # fmt: skip
    # Channels last first, as Keras has them by default.
    for laid in (np.moveaxis(right, 1, -1) if right.ndim > 2 else right, right):
        if laid.shape == wrong.shape and (relation_texts := relations(wrong, laid, outputs)):
            return [f"its input {relation_texts[0]}"]
    return []


def _wrong_model_outputs(state: _SearchState) -> Divergence:
    """The report if all layers agree but the outputs do not."""
    ours, theirs = [Print(array) for array in state.outcome.outputs], [Print(array) for array in state.run.outputs]
    what, causes = "every layer with weights agrees, and the model's outputs do not", list[str]()
    if state.side.direct_variables(""):  # whose values no layer's output shows
        what = "the model's outputs are not PyTorch's"
    if len(ours) != len(theirs):
        causes.append(f"it has {len(ours)} outputs where PyTorch has {len(theirs)}")
    elif all(any(a.same(b) for b in theirs) for a in ours):
        order = [next(position for position, b in enumerate(theirs) if a.same(b)) + 1 for a in ours]
        causes.append(f"its outputs are PyTorch's in another order: {', '.join(map(str, order))}")
    else:
        for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if a.same(b):
                continue
            values = state.values(a.array)
            value = next((candidate for candidate in state.run.prints.find(b)), None)
            if values and value is not None:
                causes.append(f"output {position + 1} is {values[0].text.strip('_')}, where PyTorch's is "
                              f"{_described(state, value)}")  # fmt: skip
            elif a.array.shape == b.array.shape:
                causes += [f"output {position + 1} {text}" for text in relations(a.array, b.array, {})]
    first = Place("", "")
    for position, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a.same(b):
            continue
        explanations = mends(state.run, a.array, _suspects(state)) if not state.values(a.array) else []
        causes += [f"output {position + 1}: {text}" for text in explanations]
        maker = next((candidate for candidate in reversed(state.outcome.events)
                      if any(Print(array).same(a) for array in candidate.outputs)), None)  # fmt: skip
        value = next(iter(state.run.prints.find(b)), None)
        last_made = maker or next(iter(reversed(state.outcome.events)), None)
        first = Place(last_made.path if last_made else "", value.text if value else "")
        break
    return Divergence(state.last, first, what, "", tuple(dict.fromkeys(causes)))
