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
from wdport.compare.probe import Arguments, Compute, intercepted, model_arguments, tensor_names, tensors
from wdport.errors import MisfitError, WdportError
from wdport.keras_runtime import exact_float64, first_line, layers_by_path, set_variable, variables_by_path
from wdport.mapping.axes import Shape
from wdport.mapping.kinds import kinds_of_layer
from wdport.model import Array, KerasLayer, KerasModel, KerasVariable
from wdport.porting.guide import Guide
from wdport.porting.likeness import likeness
from wdport.porting.options import (
    Agreement,
    Option,
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
from wdport.porting.prints import Print
from wdport.porting.torch_run import TorchRun
from wdport.porting.units import MOST_CHUNKS, Unit, possible

_OPAQUE = ("RNN", "Bidirectional", "TimeDistributed")
"""Classes of ``keras.layers`` that call the layers below them in a loop, where the calls are not visible."""


class KerasSide:
    """The Keras model: its layers that can be watched, and the variables below each."""

    def __init__(self, model: KerasModel) -> None:
        self.model = model
        every = layers_by_path(model)
        opaque = [path for path, layer in every.items() if _is(layer, _OPAQUE)]
        self.layers = {
            path: layer for path, layer in every.items() if not any(path.startswith(f"{each}/") for each in opaque)
        }
        self.variables: dict[str, KerasVariable] = {
            path: variable for path, variable in variables_by_path(model).items() if "float" in str(variable.dtype)
        }

    def below(self, path: str) -> dict[str, KerasVariable]:
        """The variables of a layer and of the layers in it."""
        return {name: each for name, each in self.variables.items() if not path or name.startswith(f"{path}/")}

    def own(self, path: str) -> dict[str, KerasVariable]:
        """The variables of a layer that do not belong to a watched layer in it."""
        inside = [each for each in self.layers if not path or each.startswith(f"{path}/")]
        found = self.below(path)
        return {name: each for name, each in found.items() if not any(name.startswith(f"{p}/") for p in inside)}


def _is(layer: KerasLayer, classes: Sequence[str]) -> bool:
    return any(each.__name__ in classes and each.__module__.startswith("keras.") for each in type(layer).__mro__)


@dataclass
class Event:
    """A call of a Keras layer: its inputs and outputs."""

    call: str
    given: list[Array]
    made: list[Array] = field(default_factory=list)

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
    options: list[Option]
    chosen: Option
    tried: set[tuple[object, ...]] = field(default_factory=set)
    settled: bool = False

    @property
    def left(self) -> list[Option]:
        """The options that were not tried yet."""
        return [option for option in self.options if option.key not in self.tried]


Why = Literal["input", "shape", "output", "end"]
"""A layer's input is unknown; it is known, but no unit fits; its output is not the unit's; the model's outputs
differ."""


class Stuck(BaseException):
    """Raised at a dead end: a ``BaseException``, since Keras rewords others that pass through a layer."""

    def __init__(self, why: Why, event: Event | None, option: Option | None = None) -> None:
        super().__init__(why)
        self.why, self.event, self.option = why, event, option


@dataclass
class Outcome:
    """The result of one run; ``refused`` are layers of a kind whose outputs differ from their module's, and that were
    then filled part by part; ``deepest`` is the dead end after the most layers."""

    decisions: list[Decision]
    events: list[Event]
    agreed: dict[str, Agreement]
    matched: dict[str, Option]
    stuck: Stuck | None
    outputs: list[Array] = field(default_factory=list)
    refused: list[tuple[Event, Option]] = field(default_factory=list)
    deepest: Outcome | None = None


MOST_RETRIES = 24
"""Maximum number of repeated calls of one layer with other guesses for the layers in it."""


@dataclass(frozen=True)
class _State:
    """The state of a run before a layer was called."""

    count: int
    decisions: list[Decision]
    events: int
    agreed: dict[str, Agreement]
    matched: dict[str, Option]
    assigned: set[str]
    guide: Guide


def next_guess(decisions: Sequence[Decision], only_open: bool = False) -> list[Decision] | None:
    """The decisions up to and including the last unsettled one with options left or, unless ``only_open``, the last one
    with options left."""
    for settled in (False,) if only_open else (False, True):
        for at in reversed(range(len(decisions))):
            decision = decisions[at]
            if decision.settled == settled and decision.left:
                chosen = decision.left[0]
                return [*decisions[:at], replace(decision, chosen=chosen, tried=decision.tried | {chosen.key})]
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
        self.events: list[Event] = []
        self.agreed: dict[str, Agreement] = {}
        self.matched: dict[str, Option] = {}
        self.refused: list[tuple[Event, Option]] = []
        self.deepest: Outcome | None = None
        self.assigned: set[str] = set()
        self._prefix = list(prefix)

    def go(self, inputs: Sequence[Array]) -> Outcome:
        """Run the model on inputs in its own layout."""
        model, stuck, outputs = self.side.model, None, list[Array]()
        mode = {"training": False} if model._call_has_training_arg else {}
        with jax.enable_x64(True), exact_float64(), jax.default_matmul_precision("highest"):
            try:
                self._fill_own("", model, [])
                with intercepted(self.side.layers, self._handle):
                    made = model(*model_arguments(model, [jax.numpy.asarray(each) for each in inputs]), **mode)
                outputs = [np.asarray(each) for each in self._ordered(made)]
                if not self._ends(outputs):
                    stuck = Stuck("end", None)
                    self.deepest = self._outcome(stuck, outputs)
                else:
                    self._settle([Print(each) for each in outputs])
            except Stuck as reason:
                stuck = reason
            except WdportError:
                raise
            except Exception as error:  # the user's own code, on inputs that it does not take
                what = f"raises {first_line(error)} when called on the inputs"
                fix = "state the inputs as both models take them, such as 'x: b c=3 h=32 w=32 -> b h w c'"
                raise MisfitError("--model", what, fix) from error
        return replace(self._outcome(stuck, outputs), deepest=self.deepest)

    # --- A call ------------------------------------------------------------------------------------------------------

    def _handle(self, call: str, compute: Compute, given: Arguments) -> object:
        self.budget -= 1
        event = Event(call, [np.asarray(each) for each in given.tensors])
        path = event.path
        layer = self.side.layers[path]
        output: object = None
        if any(name not in self.assigned for name in self.side.below(path)):
            output = self._whole(event, layer, compute, given)
            if output is None:
                self._fill_own(path, layer, event.given, event)
        option = self.matched.get(path)
        if option is not None and output is None:
            return self._checked(event, layer, option, compute, given)
        if output is None:
            output = self._inside(event, compute, given)
            event.made = [np.asarray(each) for each in tensors(output)]
            self.events.append(event)
        return output

    def _inside(self, event: Event, compute: Compute, given: Arguments) -> object:
        """Compute a layer's output; at a dead end inside it, other guesses for the layers in it are tried immediately.

        They are also tried if its output does not occur in PyTorch; if none helps, the first guesses stay.
        """
        is_open = any(name not in self.assigned for name in self.side.below(event.path))
        kept, tries, final = self._state(), MOST_RETRIES, False
        first: list[Decision] | None = None
        while True:
            stuck, output = None, None
            try:
                output = compute(given.tensors)
                event.made = [np.asarray(each) for each in tensors(output)]
                self._check_own(event)
            except Stuck as reason:
                stuck = reason
            if stuck is None and (final or not is_open or self._is_known(event.made)):
                return output
            own = [replace(each) for each in self.decisions[kept.count :]]
            if stuck is None and first is None:
                first = own
            found = None
            if is_open and tries > 0 and self.budget > 0 and not final:
                found = next_guess(own, only_open=stuck is None)
            if found is None:
                if stuck is not None and (final or first is None):
                    raise stuck
                if own is first:
                    return output
                found, final = first, True
            tries -= 1
            self._restore(kept)
            self._prefix = list(found or [])

    def _check_own(self, event: Event) -> None:
        """Stop if a layer without a kind, filled from a module with the same input, has another output."""
        used = [option for name in self.side.own(event.path) if (option := self.matched.get(name)) is not None]
        if not used or len({option.unit.path for option in used}) > 1 or not used[0].unit.path:
            return
        unit, prints = used[0].unit, [Print(each) for each in event.given]
        at = unit.call_with(prints) if unit.calls else None
        if at is None or not any(not each.empty for each in prints):
            return
        if agreement(used[0], unit.calls[at], self.side.layers[event.path], event.given, event.made) is None:
            raise self._stop("output", event, used[0])

    def _stop(self, why: Why, event: Event | None, option: Option | None = None) -> Stuck:
        """A dead end; the one after the most layers is reported in the end."""
        stuck = Stuck(why, event, option)
        if self.deepest is None or len(self.matched) > len(self.deepest.matched):
            self.deepest = self._outcome(stuck)
        return stuck

    def _outcome(self, stuck: Stuck | None, outputs: Sequence[Array] = ()) -> Outcome:
        return Outcome([replace(each) for each in self.decisions], list(self.events), dict(self.agreed),
                       dict(self.matched), stuck, list(outputs), list(self.refused))  # fmt: skip

    def _is_known(self, arrays: Sequence[Array]) -> bool:
        """Whether these values occur in PyTorch; uninformative arrays count as known."""
        return all(any(True for _ in self.run.prints.find(Print(each))) for each in arrays
                   if each.dtype.kind == "f" and not Print(each).empty)  # fmt: skip

    def _state(self) -> _State:
        return _State(len(self.decisions), [replace(each) for each in self.decisions], len(self.events),
                      dict(self.agreed), dict(self.matched), set(self.assigned), deepcopy(self.guide))  # fmt: skip

    def _restore(self, state: _State) -> None:
        self.decisions[:] = [replace(each) for each in state.decisions]
        del self.events[state.events :]
        self.agreed, self.matched = dict(state.agreed), dict(state.matched)
        self.assigned, self.guide = set(state.assigned), deepcopy(state.guide)

    def _whole(self, event: Event, layer: KerasLayer, compute: Compute, given: Arguments) -> object:
        """Try to fill a layer, including the layers in it, from one unit; returns its output, or ``None`` if no unit
        fits."""
        below = {name: tuple(each.shape) for name, each in self.side.below(event.path).items()}
        if self.assigned & set(below):
            return None
        options = self._options(event, layer, below)
        inside = self.side.own(event.path) != self.side.below(event.path)
        if not options:
            if inside or not self.side.own(event.path):
                return None
            if kinds_of_layer(layer):
                raise self._stop(self._why(event.given), event)
            return None
        decision = self._decide(event.path, options)
        before = len(self.events)
        while True:
            option = decision.chosen
            self._assign(option)
            output = compute(given.tensors)
            event.made = [np.asarray(each) for each in tensors(output)]
            agreed = agreement(option, option.unit.calls[option.at], layer, event.given, event.made)
            if agreed is not None and agreed.after and not self._is_known(event.made):
                agreed = None  # PyTorch has another function there
            if agreed is not None:
                self._settle([Print(each) for each in event.given])
                self.agreed[event.path] = agreed
                self.matched[event.path] = option
                self.decisions.append(decision)
                del self.events[before:]
                self.events.append(event)
                return output
            self.assigned -= set(option.values)
            del self.events[before:]
            if not decision.left:
                break
            decision.chosen = self.guide.order(decision.left)[0]
            decision.tried.add(decision.chosen.key)
        if inside:
            self.refused.append((event, decision.options[0]))
            return None  # its layers may still be found one by one
        self.events.append(event)
        raise self._stop("output", event, decision.options[0])

    def _why(self, given: Sequence[Array]) -> Why:
        """Why no unit fits a layer with these inputs: they do not occur in PyTorch, they do, or they are
        uninformative."""
        prints = [Print(each) for each in given]
        known = any(True for each in prints for _ in self.run.prints.find(each))
        return "shape" if known or all(each.empty for each in prints) else "input"

    def _checked(self, event: Event, layer: KerasLayer, option: Option, compute: Compute, given: Arguments) -> object:
        """Check a further call of a layer that has its weights."""
        output = compute(given.tensors)
        event.made = [np.asarray(each) for each in tensors(output)]
        self.events.append(event)
        at = option.unit.call_with([Print(each) for each in event.given])
        if at is None:
            raise self._stop("input", event, option)
        if agreement(option, option.unit.calls[at], layer, event.given, event.made) is None:
            raise self._stop("output", event, option)
        self._settle([Print(each) for each in event.given])
        return output

    # --- Options -----------------------------------------------------------------------------------------------------

    def _options(self, event: Event, layer: KerasLayer, below: Mapping[str, Shape]) -> list[Option]:
        prints, taken = [Print(each) for each in event.given], self._taken()
        keras = event.path
        if type(layer).__name__ == "TimeDistributed":
            layer, keras = layer.layer, f"{keras}/layer"
        found = []
        for unit in self.units:
            if unit.path in taken or not unit.tensors or not _comparable(unit, below):
                continue
            at = unit.call_with(prints)
            if at is None:
                continue
            for kind in possible(unit, layer):
                option = self._fitting(unit, keras, kind, below, event, at)
                if option is not None:
                    found.append(option)
            if "linear" in possible(unit, layer) and not any(each.unit is unit for each in found):
                option = heads_option(unit, keras, below, at)
                found += [option] if option else []
            if not unit.kinds and kinds_of_layer(layer):
                found += as_stored(unit, keras, below, at)
            if type(unit.module).__name__ == "Conv2d" and (up := self._shuffled(unit, at)):
                found += shuffled(unit, keras, below, up, at)
            if "linear" in possible(unit, layer):
                found += divided(unit, keras, below, self._divided(unit, at), at)
        if not any(not option.unit.part for option in found) and "linear" in (kinds_of_layer(layer) or ()):
            found += self._merged(keras, below, prints, taken)
        return found

    def _divided(self, unit: Unit, at: int) -> list[Shape]:
        """The shapes, without the batch, into which PyTorch divides a linear layer's features."""
        made = np.asarray(unit.calls[at].outputs[0])
        numbers = {value.number for value in self.run.prints.find(Print(made))} if made.ndim == 2 else set()
        shapes = []
        for value in self.run.values:
            if numbers & set(value.given):
                shapes.append(value.made.array.shape)
                if value.made.array.shape == made.shape:  # an activation, say
                    numbers.add(value.number)
        whole = [shape for shape in shapes if len(shape) > 2 and shape[0] == len(made) and prod(shape) == made.size]
        return list(dict.fromkeys(shape[1:] for shape in whole))

    def _shuffled(self, unit: Unit, at: int) -> int:
        """The factor of a pixel shuffle after a convolution in PyTorch; 0 if there is none."""
        numbers = {value.number for value in self.run.prints.find(Print(np.asarray(unit.calls[at].outputs[0])))}
        for value in self.run.values:
            if value.by == "pixel_shuffle" and numbers & set(value.given):
                factor = value.arguments.get("1", value.arguments.get("upscale_factor", 0))
                return factor if isinstance(factor, int) else 0
        return 0

    def _merged(
        self, keras: str, below: Mapping[str, Shape], prints: list[Print], taken: Collection[str]
    ) -> Iterator[Option]:
        """Linear layers with the same input, side by side, the nearest in call order first."""
        width = below.get(f"{keras}/kernel", (0,))[-1]
        fed = [(unit, at) for unit in self.units if unit.kinds == ("linear",) and unit.path not in taken
               and "_of_" not in unit.part and (at := unit.call_with(prints)) is not None]  # fmt: skip
        for count in range(2, MOST_CHUNKS + 1):
            for start in range(len(fed) - count + 1):
                units = [unit for unit, _ in fed[start : start + count]]
                if sum(len(unit.tensors["weight"]) for unit in units) == width:
                    yield from merged(units, keras, below, fed[start][1])

    def _fitting(
        self, unit: Unit, keras: str, kind: str, below: Mapping[str, Shape], event: Event, at: int
    ) -> Option | None:
        if event.given and (option := flattened(unit, keras, kind, below, event.given[0], self._flat(event), at)):
            return option
        return layer_option(unit, keras, kind, below, at=at)

    def _flat(self, event: Event) -> list[Shape]:
        """Shapes, without the batch, of earlier outputs that hold the values of this layer's input."""
        size = event.given[0].size
        arrays = [array for each in reversed(self.events) for array in (*each.made, *each.given)]
        found = [np.shape(array)[1:] for array in arrays if array.ndim > 2 and array.size == size]
        return list(dict.fromkeys(found))

    def _taken(self) -> set[str]:
        """Units that are assigned to a layer, and their parts and wholes."""
        used = [option.unit for option in self.matched.values()]
        whole = {unit.whole for unit in used if not unit.part}
        broken = {unit.whole: unit.part.rpartition("_of_")[2] for unit in used if unit.part}
        paths = {path for unit in used for path in (unit.path, *unit.members)}
        for unit in self.units:
            others = "_of_" in unit.part and unit.part.rpartition("_of_")[2] != broken.get(unit.whole)
            if unit.whole in whole or (unit.whole in broken and (others or not unit.part)):
                paths.add(unit.path)
        return paths

    def _fill_own(self, path: str, layer: KerasLayer, given: Sequence[Array], event: Event | None = None) -> None:
        """Fill a layer's own variables, if it has no kind, each from a tensor that fits its shape."""
        for name, variable in self.side.own(path).items():
            if name in self.assigned:
                continue
            leaf = bool(path) and not any(each.startswith(f"{path}/") for each in self.side.layers)
            options = list(self._tensors(name, tuple(variable.shape), [Print(each) for each in given], leaf))
            if not options:
                raise self._stop(self._why(given), event or Event(path, list(given)))
            decision = self._decide(name, options)
            self.decisions.append(decision)
            self._assign(decision.chosen)
            self.matched[name] = decision.chosen

    def _tensors(self, keras: str, shape: Shape, given: Sequence[Print], leaf: bool) -> Iterator[Option]:
        """The candidate tensors for a variable: first those of modules with the same input, then those of modules that
        contain others, or of any module if the Keras layer contains others."""
        taken = {str(row["torch"]) for option in self.matched.values() for row in option.rows if "rule" in row}
        spare = len(self.side.own(keras.rpartition("/")[0])) > 1 or all(each.exact for each in given)
        closed = {option.unit.whole for option in self.matched.values() if option.kind}
        orders = [option.unit.order for option in self.matched.values()]
        found: list[tuple[tuple[float, ...], Option]] = []
        for unit in (*self._root(), *self.units):
            if unit.part or unit.path in closed:
                continue
            near = bool(given) and unit.call_with(list(given)) is not None
            inside = unit.module is None or any(True for _ in unit.module.children())
            if leaf and not near and not inside and not spare:
                continue
            away = float(abs(unit.order - orders[-1])) if orders and not near and not inside else 0.0
            for name, array in unit.tensors.items():
                whole = f"{unit.path}.{name}" if unit.path else name
                if whole in taken or array.dtype.kind != "f":
                    continue
                key = (0.0 if near else 1.0 if inside else 2.0, away, -likeness(whole, keras))
                found += [(key, option) for option in tensor_options(unit, name, keras, shape)]
        yield from (option for _, option in sorted(found, key=lambda each: each[0]))

    def _root(self) -> list[Unit]:
        """The parameters of the model itself."""
        own = {name: array for name, array in _state(self.run).items() if "." not in name}
        bits = sum({self.run.bits[name] for name in own})
        return [Unit("", (), own, "", "", (), -1, bits)] if own else []

    # --- Decisions ---------------------------------------------------------------------------------------------------

    def _decide(self, subject: str, options: list[Option]) -> Decision:
        """The choice of an earlier run, or the most likely option."""
        keys = {option.key: option for option in options}
        if self._prefix:
            before = self._prefix.pop(0)
            if before.subject == subject and before.chosen.key in keys:
                chosen = keys[before.chosen.key]
                return Decision(subject, options, chosen, set(before.tried) | {chosen.key})
            self._prefix.clear()
        chosen = self.guide.order(options)[0] if options[0].keras == subject and options[0].kind else options[0]
        return Decision(subject, options, chosen, {chosen.key})

    def _assign(self, option: Option) -> None:
        for name, array in option.values.items():
            set_variable(self.side.variables[name], array)
            self.assigned.add(name)

    def _settle(self, prints: Sequence[Print]) -> None:
        """Mark the decisions that these values depend on as right, as far as the values agree with PyTorch's."""
        depends = 0
        for each in prints:
            depends |= self.run.depends(each) if not each.exact else 0
        for decision in self.decisions:
            if not decision.settled and decision.chosen.unit.bits & depends:
                decision.settled = True
                self.guide.settle(decision.chosen, decision.options)

    def _ordered(self, made: object) -> list[jax.Array]:
        """The outputs in PyTorch's order, if both sides use the same names."""
        found, names, theirs = tensors(made), list(tensor_names(made)), list(self.run.output_names)
        if names and sorted(names) == sorted(theirs):
            return [found[names.index(name)] for name in theirs]
        return found

    def _ends(self, outputs: Sequence[Array]) -> bool:
        """Whether the model's outputs are PyTorch's, in order."""
        theirs = [each for each in self.run.outputs if each.dtype.kind == "f"]
        own = [each for each in outputs if each.dtype.kind == "f"]
        if len(theirs) != len(own):
            return False
        return all(Print(a).same(Print(b)) for a, b in zip(own, theirs, strict=True))


def _comparable(unit: Unit, below: Mapping[str, Shape]) -> bool:
    """Whether both sides have about as many numbers: vectors may be joined, or left out."""
    spare = sum(array.size for array in unit.tensors.values() if array.ndim < 2 or array.size == len(array))
    return abs(sum(array.size for array in unit.tensors.values()) - sum(map(prod, below.values()))) <= spare


def _state(run: TorchRun) -> dict[str, Array]:
    return {name: recorder.to_array(tensor) for name, tensor in run.module.state_dict().items()}
