"""Run the Keras model once and assign each layer's weights when it is called, chosen by its input.

A layer's actual input determines which PyTorch modules it may be: those that were given the same values. If there is
one, its weights are assigned, the layer runs, and its output is compared with the module's. If there are several, one
is guessed; a wrong guess gives a later layer an input that does not occur in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

import jax
import numpy as np

from wdport.base.errors import MisfitError, WdportError
from wdport.compare.probe import CallArguments, Compute, intercepted, tensor_names, tensors
from wdport.mapping.axes import Shape
from wdport.mapping.kinds import KINDS, kinds_of_layer
from wdport.models.interface import Array, KerasLayer
from wdport.models.keras_inputs import model_arguments
from wdport.models.keras_runtime import exact_float64, first_line, set_variable
from wdport.porting.candidate_rows import Agreement, FillOption, Guide, agreement
from wdport.porting.candidates import Candidates
from wdport.porting.fingerprints import InputCall, KerasSide, Print
from wdport.porting.layer_units import Unit
from wdport.porting.torch_run import TorchRun, joined_bits


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
        return [option for option in self.options if option.key not in self.tried]


StopReason = Literal["input", "shape", "output", "end"]
"""A layer's input is unknown; it is known, but no unit fits; its output is not the unit's; the model's outputs
differ."""


class DeadEnd(BaseException):
    """Raised at a dead end: a ``BaseException``, since Keras rewords others that pass through a layer. ``variable`` is
    the path of a variable that no tensor fits."""

    def __init__(
        self, reason: StopReason, event: InputCall | None, option: FillOption | None = None, variable: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason, self.event, self.option, self.variable = reason, event, option, variable


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


def _of_kinds(path: str, layer: KerasLayer, below: Mapping[str, Shape]) -> dict[str, Shape]:
    """Of the variables of a layer, those of its kind; empty if these are all."""
    parts = [part for kind in kinds_of_layer(layer) or () for part in KINDS[kind].parts]
    names = {f"{path}/{name}" for part in parts for paths in (part.keras, *part.others) for name in paths}
    narrowed = {name: shape for name, shape in below.items() if name in names}
    return narrowed if len(narrowed) < len(below) else {}


class Assigning:
    """One run; ``prefix`` are decisions reused from an earlier run, ``budget`` is the maximum number of layer calls."""

    def __init__(
        self, side: KerasSide, run: TorchRun, units: Sequence[Unit], prefix: Sequence[Decision] = (),
        budget: int = 1 << 30,
    ) -> None:  # fmt: skip
        self.budget = budget
        self.side, self.run = side, run
        self._candidates = Candidates(side, run, units)
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
        event = InputCall(call, [np.asarray(tensor) for tensor in arguments.tensors], names=arguments.names)
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
        used = [self.matched[name] for name in self.side.direct_variables(event.path) if name in self.matched]
        if not used or len({option.unit.path for option in used}) > 1 or not used[0].unit.path:
            return
        unit, prints = used[0].unit, [Print(array) for array in event.inputs]
        call_index = unit.call_with(prints) if unit.calls else None
        if call_index is None or not any(not fingerprint.empty for fingerprint in prints):
            return
        layer, call = self.side.layers[event.path], unit.calls[call_index]
        if agreement(used[0], call, layer, event.inputs, event.outputs) is None:
            raise self._stop("output", event, used[0])

    def _stop(
        self, reason: StopReason, event: InputCall | None, option: FillOption | None = None, variable: str = ""
    ) -> DeadEnd:
        """A dead end; the one after the most layers is reported in the end."""
        dead_end = DeadEnd(reason, event, option, variable)
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
        options = self._candidates.of_layer(event, layer, below, self.matched, self.events)
        if not options and (narrowed := _of_kinds(event.path, layer, below)):
            options = self._candidates.of_layer(event, layer, narrowed, self.matched, self.events)
        unbiased = not options and self._without_bias(event, layer, below)
        options = options or unbiased or []
        inside = self.side.direct_variables(event.path) != self.side.variables_below(event.path)
        if not options:
            return self._without_unit(event, layer, compute, arguments)
        decision = self._decide(event.path, options)
        before = len(self.events)
        while True:
            option = decision.chosen
            self._assign(option)
            output = compute(arguments.tensors)
            event.outputs = [np.asarray(tensor) for tensor in tensors(output)]
            agreed = agreement(option, option.unit.calls[option.call_index], layer, event.inputs, event.outputs)
            # Equal after an activation, but PyTorch has no such value: it has another function there.
            if agreed is not None and agreed.after and not self._all_occur(agreed.outputs):
                agreed = None
            # A user's subclass may change the output of its base, as by a factor.
            if agreed is None and self._is_made_of(event.outputs, option):
                agreed = Agreement(placed=False)
            if agreed is not None:
                self._settle([Print(array) for array in event.inputs])
                self.agreed[event.path] = agreed
                self.matched[event.path] = option
                self.decisions.append(decision)
                self._fill_rest(below)
                del self.events[before:]
                self.events.append(event)
                return output
            self.assigned -= set(option.values)
            del self.events[before:]
            if not decision.untried:
                break
            decision.chosen = self.guide.order(decision.untried)[0]
            decision.tried.add(decision.chosen.key)
        if unbiased:
            return self._without_unit(event, layer, compute, arguments)
        if inside:
            self.refused.append((event, decision.options[0]))
            return None  # its layers may still be found one by one
        self.events.append(event)
        raise self._stop("output", event, decision.options[0])

    def _without_bias(self, event: InputCall, layer: KerasLayer, below: Mapping[str, Shape]) -> list[FillOption]:
        """The options of a layer whose bias is zero, since PyTorch has none."""
        bias = f"{event.path}/bias"
        if bias not in below:
            return []
        rest = {name: shape for name, shape in below.items() if name != bias}
        options = self._candidates.of_layer(event, layer, rest, self.matched, self.events)
        return [option.with_zeros(bias, below[bias]) for option in options]

    def _without_unit(self, event: InputCall, layer: KerasLayer, compute: Compute, arguments: CallArguments) -> object:
        """Try to fill a layer for which no unit fits from a table; returns its output, or ``None`` if it may be filled
        in parts."""
        direct = self.side.direct_variables(event.path)
        if not direct or direct != self.side.variables_below(event.path):
            return None
        if (output := self._fill_table(event, layer, compute, arguments)) is not None:
            return output
        if kinds_of_layer(layer):
            raise self._stop(self._reason(event.inputs), event)
        return None

    def _fill_rest(self, below: Mapping[str, Shape]) -> None:
        """Fill the variables that a layer has besides those of its kind, such as the projection of an embedding."""
        for name, shape in below.items():
            if name not in self.assigned and (options := list(self._candidates.of_table(name, shape, self.matched))):
                decision = self._decide(name, options)
                self.decisions.append(decision)
                self._assign(decision.chosen)
                self.matched[name] = decision.chosen

    def _fill_table(self, event: InputCall, layer: KerasLayer, compute: Compute, arguments: CallArguments) -> object:
        """Fill a layer's only variable from a table whose rows are the layer's output, or what it adds to its input,
        whatever that is; returns its output, or ``None`` if there is none, or if a module with the same input fits."""
        (name, variable), *others = self.side.direct_variables(event.path).items()
        shape = tuple(variable.shape)
        if others or len(shape) < 2:
            return None
        if not kinds_of_layer(layer) and any(
            True for _ in self._candidates.of_variable(name, shape, event.inputs, True, self.matched)
        ):
            return None
        before = len(self.events)
        for option in islice(self._candidates.of_table(name, shape, self.matched), MOST_RETRIES):
            self._assign(option)
            output = compute(arguments.tensors)
            event.outputs = [np.asarray(tensor) for tensor in tensors(output)]
            del self.events[before:]
            if self._contributes(event, option):
                self.decisions.append(Decision(name, [option], option, {option.key}))
                self.matched[name] = option
                self.events.append(event)
                return output
            self.assigned -= set(option.values)
        return None

    def _contributes(self, event: InputCall, option: FillOption) -> bool:
        """Whether a layer's output, or what it adds to an input, is a table or a value that PyTorch makes of it."""
        if len(event.outputs) != 1 or event.outputs[0].dtype.kind != "f":
            return False
        (output,), (table,) = event.outputs, option.values.values()
        added = [output - array for array in event.inputs if array.shape == output.shape and array.dtype.kind == "f"]
        return any(self._is_made_of([array], option) or Print(array).same(Print(table)) for array in (output, *added)
                   if not Print(array).empty)  # fmt: skip

    def _is_made_of(self, arrays: Sequence[Array], option: FillOption) -> bool:
        """Whether the only array is a value that PyTorch computes with the parameters of an option."""
        return len(arrays) == 1 and any(value.depends & option.unit.bits
                                        for value in self.run.prints.find(Print(arrays[0])))  # fmt: skip

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

    def _fill_direct_variables(
        self, path: str, layer: KerasLayer, inputs: Sequence[Array], event: InputCall | None = None
    ) -> None:
        """Fill a layer's own variables, if it has no kind, each from a tensor that fits its shape."""
        for name, variable in self.side.direct_variables(path).items():
            if name in self.assigned:
                continue
            leaf = bool(path) and not any(inner.startswith(f"{path}/") for inner in self.side.layers)
            options = list(self._candidates.of_variable(name, tuple(variable.shape), inputs, leaf, self.matched))
            if not options:
                raise self._stop(self._reason(inputs), event or InputCall(path, list(inputs)), variable=name)
            decision = self._decide(name, options)
            self.decisions.append(decision)
            self._assign(decision.chosen)
            self.matched[name] = decision.chosen

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
        # Integers occur by chance, and confirm nothing.
        depends = joined_bits(self.run.depends(fingerprint) for fingerprint in prints if not fingerprint.exact)
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
