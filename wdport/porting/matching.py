"""Run the Keras model once and assign each layer's weights when it is called, chosen by its input.

A layer's actual input determines which PyTorch modules it may be: those that were given the same values. If there is
one, its weights are assigned, the layer runs, and its output is compared with the module's. If there are several, one
is guessed; a wrong guess gives a later layer an input that does not occur in PyTorch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

import jax
import numpy as np

from wdport import recorder
from wdport.compare.calls import layer_of
from wdport.compare.probe import CallArguments, Compute, intercepted, model_arguments, tensor_names, tensors
from wdport.errors import MisfitError, WdportError
from wdport.keras_runtime import exact_float64, first_line, layers_by_path, set_variable, variables_by_path
from wdport.mapping.axes import Shape
from wdport.mapping.kinds import kinds_of_layer
from wdport.model import Array, KerasLayer, KerasModel, KerasVariable
from wdport.porting.candidate_rows import (
    Agreement,
    FillOption,
    Guide,
    agreement,
    as_stored,
    divided,
    flattened,
    heads_option,
    layer_option,
    merged,
    shuffled,
    tensor_options,
)
from wdport.porting.fingerprints import Print
from wdport.porting.torch_run import TorchRun
from wdport.porting.units import MOST_CHUNKS, Unit, likeness, possible

_OPAQUE = ("RNN", "Bidirectional", "TimeDistributed")
"""Classes of ``keras.layers`` that call the layers below them in a loop, where the calls are not visible."""


class KerasSide:
    """The Keras model: its layers that can be watched, and the variables below each."""

    def __init__(self, model: KerasModel) -> None:
        self.model = model
        every = layers_by_path(model)
        opaque = [path for path, layer in every.items() if _is_keras_layer(layer, _OPAQUE)]
        # Layers below an opaque one are not watched: their variables are filled as those of the outer layer.
        self.layers = {
            path: layer for path, layer in every.items() if not any(path.startswith(f"{prefix}/") for prefix in opaque)
        }
        self.variables: dict[str, KerasVariable] = {
            path: variable for path, variable in variables_by_path(model).items() if "float" in str(variable.dtype)
        }

    def variables_below(self, path: str) -> dict[str, KerasVariable]:
        """The variables of a layer and of the layers in it."""
        return {name: variable for name, variable in self.variables.items() if not path or name.startswith(f"{path}/")}

    def direct_variables(self, path: str) -> dict[str, KerasVariable]:
        """The variables of a layer that do not belong to a watched layer in it."""
        inside = [layer for layer in self.layers if not path or layer.startswith(f"{path}/")]
        variables = self.variables_below(path)
        return {
            name: variable for name, variable in variables.items() if not any(name.startswith(f"{p}/") for p in inside)
        }


def _is_keras_layer(layer: KerasLayer, classes: Sequence[str]) -> bool:
    return any(base.__name__ in classes and base.__module__.startswith("keras.") for base in type(layer).__mro__)


@dataclass
class InputCall:
    """A call of a Keras layer: its inputs and outputs."""

    call: str
    inputs: list[Array]
    outputs: list[Array] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The layer's."""
        return layer_of(self.call)


@dataclass
class Decision:
    """The option chosen for a layer, or for a variable of a layer without a kind, and its alternatives.

    ``settled`` is true once a value that depends on it agreed.
    """

    subject: str
    options: list[FillOption]
    chosen: FillOption
    tried: set[tuple[object, ...]] = field(default_factory=set)
    settled: bool = False

    @property
    def untried(self) -> list[FillOption]:
        """The options that were not tried yet."""
        return [option for option in self.options if option.key not in self.tried]


StopReason = Literal["input", "shape", "output", "end"]
"""A layer's input is unknown; it is known, but no unit fits; its output is not the unit's; the model's outputs
differ."""


class DeadEnd(BaseException):
    """Raised at a dead end: a ``BaseException``, since Keras rewords others that pass through a layer."""

    def __init__(self, reason: StopReason, event: InputCall | None, option: FillOption | None = None) -> None:
        super().__init__(reason)
        self.reason, self.event, self.option = reason, event, option


@dataclass
class RunOutcome:
    """The result of one run; ``refused`` are layers of a kind whose outputs differ from their module's, and that were
    then filled part by part; ``deepest`` is the dead end after the most layers."""

    decisions: list[Decision]
    events: list[InputCall]
    agreed: dict[str, Agreement]
    matched: dict[str, FillOption]
    dead_end: DeadEnd | None
    outputs: list[Array] = field(default_factory=list)
    refused: list[tuple[InputCall, FillOption]] = field(default_factory=list)
    deepest: RunOutcome | None = None


MOST_RETRIES = 24
"""Maximum number of repeated calls of one layer with other guesses for the layers in it."""


@dataclass(frozen=True)
class _State:
    """The state of a run before a layer was called."""

    count: int
    decisions: list[Decision]
    events: int
    agreed: dict[str, Agreement]
    matched: dict[str, FillOption]
    assigned: set[str]
    guide: Guide


def next_guess(decisions: Sequence[Decision], only_open: bool = False) -> list[Decision] | None:
    """The decisions up to and including the last unsettled one with options left or, unless ``only_open``, the last one
    with options left."""
    # A settled decision was confirmed by a value, so it is the last to be doubted.
    for settled in (False,) if only_open else (False, True):
        # The last first: earlier decisions were made with fewer guesses before them.
        for index in reversed(range(len(decisions))):
            decision = decisions[index]
            if decision.settled == settled and decision.untried:
                chosen = decision.untried[0]
                return [*decisions[:index], replace(decision, chosen=chosen, tried=decision.tried | {chosen.key})]
    return None


class Assigning:
    """One run; ``prefix`` are decisions reused from an earlier run, ``budget`` is the maximum number of layer calls."""

    def __init__(
        self,
        side: KerasSide,
        run: TorchRun,
        units: Sequence[Unit],
        prefix: Sequence[Decision] = (),
        budget: int = 1 << 30,
    ) -> None:
        self.budget = budget
        self.side, self.run, self.units = side, run, units
        self.guide = Guide()
        self.decisions: list[Decision] = []
        self.events: list[InputCall] = []
        self.agreed: dict[str, Agreement] = {}
        self.matched: dict[str, FillOption] = {}
        self.refused: list[tuple[InputCall, FillOption]] = []
        self.deepest: RunOutcome | None = None
        self.assigned: set[str] = set()
        self._prefix = list(prefix)

    def go(self, inputs: Sequence[Array]) -> RunOutcome:
        """Run the model on inputs in its own layout."""
        model, dead_end, outputs = self.side.model, None, list[Array]()
        mode = {"training": False} if model._call_has_training_arg else {}
        # In float64 a correct layer agrees to 1e-15, so equal values mean equal functions.
        with jax.enable_x64(True), exact_float64(), jax.default_matmul_precision("highest"):
            try:
                self._fill_direct_variables("", model, [])
                with intercepted(self.side.layers, self._handle):
                    result = model(*model_arguments(model, [jax.numpy.asarray(array) for array in inputs]), **mode)
                outputs = [np.asarray(array) for array in self._ordered(result)]
                if not self._has_torch_outputs(outputs):
                    dead_end = DeadEnd("end", None)
                    self.deepest = self._outcome(dead_end, outputs)
                else:
                    self._settle([Print(output) for output in outputs])
            except DeadEnd as error:
                dead_end = error
            except WdportError:
                raise
            except Exception as error:  # the user's own code, on inputs that it does not take
                what = f"raises {first_line(error)} when called on the inputs"
                fix = "state the inputs as both models take them, such as 'x: b c=3 h=32 w=32 -> b h w c'"
                raise MisfitError("--keras-model", what, fix) from error
        return replace(self._outcome(dead_end, outputs), deepest=self.deepest)

    # --- A call ------------------------------------------------------------------------------------------------------

    def _handle(self, call: str, compute: Compute, arguments: CallArguments) -> object:
        # Retries inside a layer count too: without a bound they would multiply from level to level.
        self.budget -= 1
        event = InputCall(call, [np.asarray(tensor) for tensor in arguments.tensors])
        path = event.path
        layer = self.side.layers[path]
        output: object = None
        if any(name not in self.assigned for name in self.side.variables_below(path)):
            # As a whole first: a layer of a kind, such as MultiHeadAttention, has layers in it that have kinds too.
            output = self._fill_subtree(event, layer, compute, arguments)
            if output is None:
                self._fill_direct_variables(path, layer, event.inputs, event)
        option = self.matched.get(path)
        if option is not None and output is None:
            return self._checked(event, layer, option, compute, arguments)
        if output is None:
            output = self._compute_with_retries(event, compute, arguments)
            event.outputs = [np.asarray(tensor) for tensor in tensors(output)]
            self.events.append(event)
        return output

    def _compute_with_retries(self, event: InputCall, compute: Compute, arguments: CallArguments) -> object:
        """Compute a layer's output; at a dead end inside it, other guesses for the layers in it are tried immediately.

        They are also tried if its output does not occur in PyTorch; if none helps, the first guesses stay.
        """
        is_open = any(name not in self.assigned for name in self.side.variables_below(event.path))
        state, tries, final = self._state(), MOST_RETRIES, False
        first: list[Decision] | None = None
        while True:
            dead_end, output = None, None
            try:
                output = compute(arguments.tensors)
                event.outputs = [np.asarray(tensor) for tensor in tensors(output)]
                self._check_output(event)
            except DeadEnd as error:
                dead_end = error
            if dead_end is None and (final or not is_open or self._all_occur(event.outputs)):
                return output
            # Copies, since a decision changes in place when it is settled.
            guesses = [replace(decision) for decision in self.decisions[state.count :]]
            # Kept, in case no other guess gives a value that occurs: PyTorch may compute this in one function.
            if dead_end is None and first is None:
                first = guesses
            prefix = None
            if is_open and tries > 0 and self.budget > 0 and not final:
                prefix = next_guess(guesses, only_open=dead_end is None)
            if prefix is None:
                if dead_end is not None and (final or first is None):
                    raise dead_end
                if guesses is first:
                    return output
                prefix, final = first, True
            tries -= 1
            self._restore(state)
            self._prefix = list(prefix or [])

    def _check_output(self, event: InputCall) -> None:
        """Stop if a layer without a kind, filled from a module with the same input, has another output."""
        used = [
            option for name in self.side.direct_variables(event.path) if (option := self.matched.get(name)) is not None
        ]
        if not used or len({option.unit.path for option in used}) > 1 or not used[0].unit.path:
            return
        unit, prints = used[0].unit, [Print(array) for array in event.inputs]
        call_index = unit.call_with(prints) if unit.calls else None
        if call_index is None or not any(not fingerprint.empty for fingerprint in prints):
            return
        layer, call = self.side.layers[event.path], unit.calls[call_index]
        if agreement(used[0], call, layer, event.inputs, event.outputs) is None:
            raise self._stop("output", event, used[0])

    def _stop(self, reason: StopReason, event: InputCall | None, option: FillOption | None = None) -> DeadEnd:
        """A dead end; the one after the most layers is reported in the end."""
        dead_end = DeadEnd(reason, event, option)
        # Later dead ends may follow from a wrong guess; the run that filled the most layers got the furthest.
        if self.deepest is None or len(self.matched) > len(self.deepest.matched):
            self.deepest = self._outcome(dead_end)
        return dead_end

    def _outcome(self, dead_end: DeadEnd | None, outputs: Sequence[Array] = ()) -> RunOutcome:
        return RunOutcome([replace(decision) for decision in self.decisions], list(self.events), dict(self.agreed),
                       dict(self.matched), dead_end, list(outputs), list(self.refused))  # fmt: skip

    def _all_occur(self, arrays: Sequence[Array]) -> bool:
        """Whether these values occur in PyTorch; uninformative arrays count as known."""
        return all(any(True for _ in self.run.prints.find(Print(array))) for array in arrays
                   if array.dtype.kind == "f" and not Print(array).empty)  # fmt: skip

    def _state(self) -> _State:
        return _State(len(self.decisions), [replace(decision) for decision in self.decisions], len(self.events),
                      dict(self.agreed), dict(self.matched), set(self.assigned), deepcopy(self.guide))  # fmt: skip

    def _restore(self, state: _State) -> None:
        self.decisions[:] = [replace(decision) for decision in state.decisions]
        del self.events[state.events :]
        self.agreed, self.matched = dict(state.agreed), dict(state.matched)
        self.assigned, self.guide = set(state.assigned), deepcopy(state.guide)

    def _fill_subtree(self, event: InputCall, layer: KerasLayer, compute: Compute, arguments: CallArguments) -> object:
        """Try to fill a layer, including the layers in it, from one unit; returns its output, or ``None`` if no unit
        fits."""
        below = {name: tuple(variable.shape) for name, variable in self.side.variables_below(event.path).items()}
        # Its layers were filled by themselves already, so it is not one unit.
        if self.assigned & set(below):
            return None
        options = self._options(event, layer, below)
        inside = self.side.direct_variables(event.path) != self.side.variables_below(event.path)
        if not options:
            if inside or not self.side.direct_variables(event.path):
                return None
            if kinds_of_layer(layer):
                raise self._stop(self._reason(event.inputs), event)
            return None
        decision = self._decide(event.path, options)
        before = len(self.events)
        while True:
            option = decision.chosen
            self._assign(option)
            output = compute(arguments.tensors)
            event.outputs = [np.asarray(tensor) for tensor in tensors(output)]
            agreed = agreement(option, option.unit.calls[option.call_index], layer, event.inputs, event.outputs)
            # Equal after an activation, but PyTorch has no such value: it has another function there.
            if agreed is not None and agreed.after and not self._all_occur(event.outputs):
                agreed = None
            if agreed is not None:
                self._settle([Print(array) for array in event.inputs])
                self.agreed[event.path] = agreed
                self.matched[event.path] = option
                self.decisions.append(decision)
                del self.events[before:]
                self.events.append(event)
                return output
            self.assigned -= set(option.values)
            del self.events[before:]
            if not decision.untried:
                break
            decision.chosen = self.guide.order(decision.untried)[0]
            decision.tried.add(decision.chosen.key)
        if inside:
            self.refused.append((event, decision.options[0]))
            return None  # its layers may still be found one by one
        self.events.append(event)
        raise self._stop("output", event, decision.options[0])

    def _reason(self, inputs: Sequence[Array]) -> StopReason:
        """Why no unit fits a layer with these inputs: they do not occur in PyTorch, they do, or they are
        uninformative."""
        prints = [Print(array) for array in inputs]
        occurs = any(True for fingerprint in prints for _ in self.run.prints.find(fingerprint))
        return "shape" if occurs or all(fingerprint.empty for fingerprint in prints) else "input"

    def _checked(
        self, event: InputCall, layer: KerasLayer, option: FillOption, compute: Compute, arguments: CallArguments
    ) -> object:
        """Check a further call of a layer that has its weights."""
        output = compute(arguments.tensors)
        event.outputs = [np.asarray(tensor) for tensor in tensors(output)]
        self.events.append(event)
        call_index = option.unit.call_with([Print(array) for array in event.inputs])
        if call_index is None:
            raise self._stop("input", event, option)
        if agreement(option, option.unit.calls[call_index], layer, event.inputs, event.outputs) is None:
            raise self._stop("output", event, option)
        self._settle([Print(array) for array in event.inputs])
        return output

    # --- Options -----------------------------------------------------------------------------------------------------

    def _options(self, event: InputCall, layer: KerasLayer, below: Mapping[str, Shape]) -> list[FillOption]:
        prints, assigned = [Print(array) for array in event.inputs], self._assigned_paths()
        keras = event.path
        if type(layer).__name__ == "TimeDistributed":
            layer, keras = layer.layer, f"{keras}/layer"
        options = []
        for unit in self.units:
            if unit.path in assigned or not unit.tensors or not _comparable(unit, below):
                continue
            call_index = unit.call_with(prints)
            if call_index is None:
                continue
            for kind in possible(unit, layer):
                option = self._fitting(unit, keras, kind, below, event, call_index)
                if option is not None:
                    options.append(option)
            # Only where the plain row does not fit: a Dense kernel with a head axis.
            if "linear" in possible(unit, layer) and not any(other.unit is unit for other in options):
                option = heads_option(unit, keras, below, call_index)
                options += [option] if option else []
            if not unit.kinds and kinds_of_layer(layer):
                options += as_stored(unit, keras, below, call_index)
            if type(unit.module).__name__ == "Conv2d" and (up := self._shuffled(unit, call_index)):
                options += shuffled(unit, keras, below, up, call_index)
            if "linear" in possible(unit, layer):
                options += divided(unit, keras, below, self._divided(unit, call_index), call_index)
        # Several modules as one layer only if no single module fits.
        if not any(not option.unit.part for option in options) and "linear" in (kinds_of_layer(layer) or ()):
            options += self._merged(keras, below, prints, assigned)
        return options

    def _divided(self, unit: Unit, call_index: int) -> list[Shape]:
        """The shapes, without the batch, into which PyTorch divides a linear layer's features."""
        output = np.asarray(unit.calls[call_index].outputs[0])
        numbers = {value.number for value in self.run.prints.find(Print(output))} if output.ndim == 2 else set()
        shapes = []
        for value in self.run.values:
            if numbers & set(value.sources):
                shapes.append(value.result.array.shape)
                if value.result.array.shape == output.shape:  # for example an activation
                    numbers.add(value.number)
        reshaped = [
            shape for shape in shapes if len(shape) > 2 and shape[0] == len(output) and prod(shape) == output.size
        ]
        return list(dict.fromkeys(shape[1:] for shape in reshaped))

    def _shuffled(self, unit: Unit, call_index: int) -> int:
        """The factor of a pixel shuffle after a convolution in PyTorch; 0 if there is none."""
        numbers = {value.number for value in self.run.prints.find(Print(np.asarray(unit.calls[call_index].outputs[0])))}
        for value in self.run.values:
            if value.by == "pixel_shuffle" and numbers & set(value.sources):
                factor = value.arguments.get("1", value.arguments.get("upscale_factor", 0))
                return factor if isinstance(factor, int) else 0
        return 0

    def _merged(
        self, keras: str, below: Mapping[str, Shape], prints: list[Print], assigned: Collection[str]
    ) -> Iterator[FillOption]:
        """Linear layers with the same input, side by side, the nearest in call order first."""
        width = below.get(f"{keras}/kernel", (0,))[-1]
        fed = [(unit, call_index) for unit in self.units if unit.kinds == ("linear",) and unit.path not in assigned
               and "_of_" not in unit.part and (call_index := unit.call_with(prints)) is not None]  # fmt: skip
        for count in range(2, MOST_CHUNKS + 1):
            for start in range(len(fed) - count + 1):
                units = [unit for unit, _ in fed[start : start + count]]
                if sum(len(unit.tensors["weight"]) for unit in units) == width:
                    yield from merged(units, keras, below, fed[start][1])

    def _fitting(
        self, unit: Unit, keras: str, kind: str, below: Mapping[str, Shape], event: InputCall, call_index: int
    ) -> FillOption | None:
        if event.inputs and (
            option := flattened(unit, keras, kind, below, event.inputs[0], self._flat(event), call_index)
        ):
            return option
        return layer_option(unit, keras, kind, below, call_index=call_index)

    def _flat(self, event: InputCall) -> list[Shape]:
        """Shapes, without the batch, of earlier outputs that hold the values of this layer's input."""
        size = event.inputs[0].size
        # The latest first: a Flatten is usually right before the layer.
        arrays = [array for earlier in reversed(self.events) for array in (*earlier.outputs, *earlier.inputs)]
        shapes = [np.shape(array)[1:] for array in arrays if array.ndim > 2 and array.size == size]
        return list(dict.fromkeys(shapes))

    def _assigned_paths(self) -> set[str]:
        """Units that are assigned to a layer, and their parts and wholes."""
        used = [option.unit for option in self.matched.values()]
        # A module that is used as a whole is not used in parts, and the other way round.
        complete = {unit.module_path for unit in used if not unit.part}
        broken = {unit.module_path: unit.part.rpartition("_of_")[2] for unit in used if unit.part}
        paths = {path for unit in used for path in (unit.path, *unit.members)}
        for unit in self.units:
            others = "_of_" in unit.part and unit.part.rpartition("_of_")[2] != broken.get(unit.module_path)
            if unit.module_path in complete or (unit.module_path in broken and (others or not unit.part)):
                paths.add(unit.path)
        return paths

    def _fill_direct_variables(
        self, path: str, layer: KerasLayer, inputs: Sequence[Array], event: InputCall | None = None
    ) -> None:
        """Fill a layer's own variables, if it has no kind, each from a tensor that fits its shape."""
        for name, variable in self.side.direct_variables(path).items():
            if name in self.assigned:
                continue
            leaf = bool(path) and not any(inner.startswith(f"{path}/") for inner in self.side.layers)
            options = list(self._tensors(name, tuple(variable.shape), [Print(array) for array in inputs], leaf))
            if not options:
                raise self._stop(self._reason(inputs), event or InputCall(path, list(inputs)))
            decision = self._decide(name, options)
            self.decisions.append(decision)
            self._assign(decision.chosen)
            self.matched[name] = decision.chosen

    def _tensors(self, keras: str, shape: Shape, prints: Sequence[Print], leaf: bool) -> Iterator[FillOption]:
        """The candidate tensors for a variable: first those of modules with the same input, then those of modules that
        contain others, or of any module if the Keras layer contains others."""
        used = {str(row["torch"]) for option in self.matched.values() for row in option.rows if "rule" in row}
        # Integers give no unique print, and a layer with several variables may take them from other modules.
        spare = len(self.side.direct_variables(keras.rpartition("/")[0])) > 1 or all(
            fingerprint.exact for fingerprint in prints
        )
        closed = {option.unit.module_path for option in self.matched.values() if option.kind}
        orders = [option.unit.order for option in self.matched.values()]
        candidates: list[tuple[tuple[float, ...], FillOption]] = []
        for unit in (*self._root(), *self.units):
            if unit.part or unit.path in closed:
                continue
            near = bool(prints) and unit.call_with(list(prints)) is not None
            inside = unit.module is None or any(True for _ in unit.module.children())
            if leaf and not near and not inside and not spare:
                continue
            away = float(abs(unit.order - orders[-1])) if orders and not near and not inside else 0.0
            for name, array in unit.tensors.items():
                full_name = f"{unit.path}.{name}" if unit.path else name
                if full_name in used or array.dtype.kind != "f":
                    continue
                key = (0.0 if near else 1.0 if inside else 2.0, away, -likeness(full_name, keras))
                candidates += [(key, option) for option in tensor_options(unit, name, keras, shape)]
        # Only the keys are compared: options have no order.
        yield from (option for _, option in sorted(candidates, key=lambda candidate: candidate[0]))

    def _root(self) -> list[Unit]:
        """The parameters of the model itself."""
        root_tensors = {name: array for name, array in _state(self.run).items() if "." not in name}
        bits = sum({self.run.bits[name] for name in root_tensors})
        return [Unit("", (), root_tensors, "", "", (), -1, bits)] if root_tensors else []

    # --- Decisions ---------------------------------------------------------------------------------------------------

    def _decide(self, subject: str, options: list[FillOption]) -> Decision:
        """The choice of an earlier run, or the most likely option."""
        keys = {option.key: option for option in options}
        if self._prefix:
            before = self._prefix.pop(0)
            if before.subject == subject and before.chosen.key in keys:
                chosen = keys[before.chosen.key]
                return Decision(subject, options, chosen, set(before.tried) | {chosen.key})
            # The run differs from the earlier one from here on, so its later decisions do not apply.
            self._prefix.clear()
        chosen = self.guide.order(options)[0] if options[0].keras == subject and options[0].kind else options[0]
        return Decision(subject, options, chosen, {chosen.key})

    def _assign(self, option: FillOption) -> None:
        for name, array in option.values.items():
            set_variable(self.side.variables[name], array)
            self.assigned.add(name)

    def _settle(self, prints: Sequence[Print]) -> None:
        """Mark the decisions that these values depend on as right, as far as the values agree with PyTorch's."""
        depends = 0
        for fingerprint in prints:
            # Integers occur by chance, and confirm nothing.
            depends |= self.run.depends(fingerprint) if not fingerprint.exact else 0
        for decision in self.decisions:
            if not decision.settled and decision.chosen.unit.bits & depends:
                decision.settled = True
                self.guide.settle(decision.chosen, decision.options)

    def _ordered(self, result: object) -> list[jax.Array]:
        """The outputs in PyTorch's order, if both sides use the same names."""
        outputs, names, theirs = tensors(result), list(tensor_names(result)), list(self.run.output_names)
        # By name: the two models may list their outputs in different orders.
        if names and sorted(names) == sorted(theirs):
            return [outputs[names.index(name)] for name in theirs]
        return outputs

    def _has_torch_outputs(self, outputs: Sequence[Array]) -> bool:
        """Whether the model's outputs are PyTorch's, in order."""
        theirs = [output for output in self.run.outputs if output.dtype.kind == "f"]
        ours = [output for output in outputs if output.dtype.kind == "f"]
        if len(theirs) != len(ours):
            return False
        return all(Print(a).same(Print(b)) for a, b in zip(ours, theirs, strict=True))


def _comparable(unit: Unit, below: Mapping[str, Shape]) -> bool:
    """Whether both sides have about as many numbers: vectors may be joined, or left out."""
    # Cheap, and before any plan is made: most units are excluded by their number of weights.
    spare = sum(array.size for array in unit.tensors.values() if array.ndim < 2 or array.size == len(array))
    return abs(sum(array.size for array in unit.tensors.values()) - sum(map(prod, below.values()))) <= spare


def _state(run: TorchRun) -> dict[str, Array]:
    return {name: recorder.to_array(tensor) for name, tensor in run.module.state_dict().items()}
