"""Make the steps of an outline from a traced run: readers of a tensor, and the events that the outputs need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from wdport.mapping.kinds.kind import Axes, Counterpart, TorchCall, keras_permutation
from wdport.porting.outline.axes import AxisMove, atoms, chained, text
from wdport.porting.outline.counterparts import LAYERS, Default, call_text, differing, layer_of, of_function, of_move
from wdport.porting.outline.expressions import TensorNames, expression, index, local, paths
from wdport.porting.outline.flow import AxisFlow
from wdport.porting.outline.functions import (
    OPERATORS,
    Event,
    TensorSource,
    Trace,
    TracedTensor,
    bound,
    canonical,
    traced_tensors,
)
from wdport.porting.outline.result import Step, Value
from wdport.porting.outline.settings import parameters, settings_of, torch_class, torch_text

Readers = Mapping[TensorSource, Sequence[Event]]


def readers_of(trace: Trace) -> dict[TensorSource, list[Event]]:
    """The readers of each tensor: functions and layers, not the enclosing modules."""
    readers: dict[TensorSource, list[Event]] = {}
    for event in trace.events:
        if event.module is None or event.is_layer:
            for tensor in event.inputs:
                readers.setdefault(tensor.source, []).append(event)
    return readers


def needed(trace: Trace) -> set[int]:
    """Events that the model's outputs, or one of its layers, depend on."""
    left = [tensor.source for tensor in trace.root.outputs]
    layers = [event for event in trace.events if event.module is not None and event.is_layer]
    # Every layer is listed, also one whose output is not used, so its inputs are needed too.
    left += [tensor.source for event in layers for tensor in event.inputs]
    serials: set[int] = set()
    # Backwards, so that functions that neither an output nor a layer needs are left out.
    while left:
        source = left.pop()
        if source.kind == "event" and source.event not in serials:
            serials.add(source.event)
            left += [tensor.source for tensor in trace.events[source.event].inputs]
    return serials


@dataclass(frozen=True)
class Chain:
    """Reshapes and transposes, each the only reader of the one before it, and their combined move."""

    move: AxisMove
    events: tuple[Event, ...]


def chains(trace: Trace, flow: AxisFlow, readers: Readers, is_step: Callable[[Event], bool]) -> dict[int, Chain]:
    """The rearrangements that are steps, by the serial of their last event."""
    by_serial: dict[int, Chain] = {}
    for event in trace.events:
        move = flow.moves.get(event.serial)
        if move is None or event.module is not None or not is_step(event):
            continue
        source = event.inputs[0].source
        before = by_serial.get(source.event) if source.kind == "event" else None
        if before is not None and _is_only_reader(before.events[-1], event, trace, readers):
            # A chain is listed where it ends.
            del by_serial[source.event]
            by_serial[event.serial] = Chain(chained(before.move, move), (*before.events, event))
        else:
            by_serial[event.serial] = Chain(move, (event,))
    return by_serial


def _is_only_reader(before: Event, event: Event, trace: Trace, readers: Readers) -> bool:
    """Whether ``event`` is the only reader of the output of ``before``, in the same module."""
    source = before.outputs[0].source
    final = any(tensor.source == source for tensor in trace.root.outputs)
    return before.parent == event.parent and not final and [r.serial for r in readers.get(source, ())] == [event.serial]


def is_layer(module: torch.nn.Module) -> bool:
    """Whether a module is one step: a class of ``torch.nn`` that is a layer, with its own ``forward``."""
    return torch_class(module) in LAYERS


class Steps:
    """The steps of a run."""

    def __init__(self, trace: Trace, flow: AxisFlow) -> None:
        self._trace, self._flow = trace, flow
        self._readers = readers_of(trace)
        self._needed = needed(trace)
        self._moves = chains(trace, flow, self._readers, self._is_step)
        self._behind = {part.serial: serial for serial, chain in self._moves.items() for part in chain.events[:-1]}
        self.numbers = {event.serial: number for number, event in enumerate(self._numbered(), 1)}
        self._names = TensorNames(trace, self.numbers, self._behind)

    def root(self) -> Step:
        """The model itself as a step that contains all others."""
        return self._module(self._trace.root, self._trace.root)

    def _numbered(self) -> Iterator[Event]:
        """Events that are numbered steps: layers, and functions that depend on an input and that the output depends
        on."""
        for event in self._trace.events:
            joined = event.serial in self._behind
            if event.is_layer if event.module is not None else self._is_step(event) and not joined:
                yield event

    def _is_step(self, event: Event) -> bool:
        if event.serial not in self._needed:
            return False
        return event.depends == "input" or (event.depends == "parameter" and layer_of(canonical(event.name)) != "")

    def _module(self, event: Event, around: Event) -> Step:
        module = event.module
        assert module is not None
        if event.is_layer:  # the model is one layer
            steps = [self._layer(event, around)]
        else:
            steps = [self._step(inner, event) for inner in event.inside if self._is_listed(inner)]
        parameters = () if event.is_layer else module.named_parameters(recurse=False)
        module_parameters = {name: tuple(parameter.shape) for name, parameter in parameters}
        buffers = {
            name: tuple(buffer.shape) for name, buffer in module.named_buffers(recurse=False)
            if not event.is_layer and name not in module._non_persistent_buffers_set
        }  # fmt: skip
        name = torch_class(module)
        notes = list(event.around)
        first = "#" not in event.name
        if first and (left := [name for name in module_parameters if name not in self._moved(event)]):
            notes.append(f"no kind: write tensors rows for {', '.join(left)}")
        if buffers and first:
            notes.append(f"buffers of the checkpoint: tensors rows that use or drop {', '.join(buffers)}")
        return Step(
            "module", local(event, around), event.name, _full(module), settings={}, torch=name,
            inputs=self._input_values(event, around), outputs=self._values(event.outputs, event), notes=tuple(notes),
            parameters=module_parameters | buffers, steps=tuple(steps),
        )  # fmt: skip

    def _moved(self, around: Event) -> set[str]:
        """The parameters of a module that a row of a kind moves, since they are passed to a function equivalent to a
        layer."""
        path = around.name.partition("#")[0]
        layers = [event for event in around.inside if event.module is None and layer_of(canonical(event.name))]
        rows = [event for event in layers if self._row(event) and self._row(event) == path]
        return {tensor.source.name.rpartition(".")[2] for event in rows for tensor in event.inputs}

    def _is_listed(self, event: Event) -> bool:
        if event.module is None:
            return event.serial in self.numbers
        return event.is_layer or any(self._is_listed(inner) for inner in event.inside) or bool(event.around)

    def _step(self, event: Event, around: Event) -> Step:
        if event.module is None:
            return self._function(event, around)
        return self._layer(event, around) if event.is_layer else self._module(event, around)

    def _layer(self, event: Event, around: Event) -> Step:
        module = event.module
        assert module is not None
        name, settings = torch_class(module), settings_of(module)
        find = LAYERS.get(name)
        counterpart = find(name, settings, self._call(event)) if find else Counterpart()
        notes = [*event.around, *_parametrised(module), *counterpart.notes, *self._tied(event)]
        if not self._is_read(event):
            notes.append("its output is not used")
        return Step(
            "layer", local(event, around), event.name, _full(module), self.numbers[event.serial],
            counterpart.kind, settings, torch_text(name, settings) if name else type(module).__name__,
            self._input_values(event, around), self._values(event.outputs, around), counterpart.calls,
            _keras_text(counterpart), tuple(_defaults(name, settings, counterpart)), tuple(notes),
        )  # fmt: skip

    def _tied(self, event: Event) -> Iterator[str]:
        """Notes on parameters of a layer that are those of another one."""
        model, path, module = self._trace.root.module, event.name.partition("#")[0], event.module
        if model is None or module is None:
            return
        first: dict[int, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            first.setdefault(id(parameter), name)
        for name, parameter in module.named_parameters(recurse=False):
            other = first.get(id(parameter), f"{path}.{name}")
            if other != f"{path}.{name}":
                owner = model.get_submodule(other.rpartition(".")[0])
                reverse = torch_class(owner) == "Embedding" and torch_class(module) == "Linear"
                instead = ": call a layers.ReversibleEmbedding with reverse=True instead" if reverse else ""
                yield f"its {name} is {other}{instead}"

    def _function(self, event: Event, around: Event) -> Step:
        number, function = self.numbers[event.serial], canonical(event.name)
        if event.serial in self._moves:
            return self._move(event, around)
        arguments = bound(event)
        counterpart, keras_text = of_function(event.name, arguments, self._call(event))
        notes = [*counterpart.notes, *self._weights(event, counterpart, around)]
        relative = keras_text
        if function in OPERATORS and not keras_text:
            keras_text, relative = (self._broadcast(event, around, origin) for origin in (0, number))
        owner = layer_of(function)
        usual = {key: value for key, value in parameters(owner).items() if key != "mode"} if owner else {}
        written = expression(event, lambda tensor: self._names.of(tensor, around), usual)
        alike = expression(event, lambda tensor: self._names.of(tensor, around, number), usual)
        settings = {key: value for key, value in arguments.items() if not any(True for _ in traced_tensors(value))}
        if "index" in settings:
            settings["index"] = index(settings["index"], lambda tensor: self._names.of(tensor, around))
        return Step(
            "function", function, "", event.name, number, counterpart.kind if self._row(event) else "", settings,
            written, self._input_values(event, around), self._values(event.outputs, around), counterpart.calls,
            keras_text, tuple(_defaults(owner, settings, counterpart)) if owner else (), tuple(notes),
            relative=(alike, relative, *(self._names.of(tensor, around, number) for tensor in event.inputs)),
        )  # fmt: skip

    def _broadcast(self, event: Event, around: Event, origin: int = 0) -> str:
        """The layout in Keras of operands that are broadcast over an image: ``scale as b 1 1 c``."""
        operands = [(tensor, self._flow.of(tensor)) for tensor in event.inputs]
        axes = next((axes for _, axes in operands if keras_permutation(axes)), None)
        order = keras_permutation(axes) if axes is not None else None
        if axes is None or order is None:
            return ""
        layouts = []
        for tensor, operand_axes in operands:
            if operand_axes is axes or keras_permutation(operand_axes) or len(operand_axes) < 2:
                continue
            padded: Axes = (*((),) * (len(axes) - len(operand_axes)), *operand_axes)
            layouts.append(f"{self._names.of(tensor, around, origin)} as {text(tuple(padded[axis] for axis in order))}")
        return ", ".join(layouts)

    def _move(self, event: Event, around: Event) -> Step:
        move, functions = self._moves[event.serial].move, self._moves[event.serial].events
        keras_text, notes = of_move(move)
        first = functions[0].inputs[0]
        sizes = "".join(f" {name}={size}" for name, size in move.sizes.items())
        name = " ".join(canonical(call.name) if canonical(call.name) != "getitem" else "[None]" for call in functions)
        number, moved = self.numbers[event.serial], f"{move}{sizes}"
        source = self._names.of(first, around, number)
        return Step(
            "function", name, "", " ".join(call.name for call in functions), number,
            settings={"rearrange": str(move), **move.sizes}, torch=f"{self._names.of(first, around)}: {moved}",
            inputs=(self._value(first, around),), outputs=self._values(event.outputs, around),
            keras_text=keras_text, notes=notes, relative=(f"{source}: {moved}", keras_text, source),
        )  # fmt: skip

    def _call(self, event: Event) -> TorchCall:
        """The facts about a call that its counterpart may depend on."""
        inputs = [*event.inputs]
        used = {output.source.index for output in event.outputs if self._readers.get(output.source)}
        used |= {output.source.index for output in self._trace.root.outputs if output.source.event == event.serial}
        arguments = {key: _kind(value) for key, value in event.kwargs.items() if value is not None}
        axes = self._flow.of(inputs[0]) if inputs else None
        # A packed sequence has no axes to follow.
        if event.module is not None and inputs and any(kind == "packed" for kind in arguments.values()):
            axes = None
        return TorchCall(inputs[0].shape if inputs else (), axes, arguments, frozenset(used))

    def _is_read(self, event: Event) -> bool:
        finals = {output.source for output in self._trace.root.outputs}
        return any(self._readers.get(output.source) or output.source in finals for output in event.outputs)

    def _row(self, event: Event) -> str:
        """The module that owns all weights of a function, so that a row of the table can name it."""
        names = [tensor.source.name for tensor in event.inputs if tensor.source.kind == "parameter"]
        owners = {name.rpartition(".")[0] for name in names}
        standard = {name.rpartition(".")[2] for name in names} <= {"weight", "bias"}
        return owners.pop() if names and standard and len(owners) == 1 else ""

    def _weights(self, event: Event, counterpart: Counterpart, around: Event) -> list[str]:
        """Notes on the row for the weights that are passed to a function."""
        names = [tensor.source.name for tensor in event.inputs if tensor.source.kind in ("parameter", "buffer")]
        if not names:
            return []
        if not layer_of(canonical(event.name)):
            return []  # the module that reads them has the note
        if counterpart.kind and (owner := self._row(event)):
            return [] if owner == around.name.partition("#")[0] else [f"a row for {owner} moves its weights"]
        return [f"no row of a kind: write tensors rows for {', '.join(names)}"]

    def _input_values(self, event: Event, around: Event) -> tuple[Value, ...]:
        if event.module is None:
            return tuple(self._value(tensor, around) for tensor in event.inputs)
        named_tensors = ((path, tensor) for name, value in event.kwargs.items() for path, tensor in paths(name, value))
        return tuple(self._value(tensor, around, path) for path, tensor in named_tensors)

    def _values(self, tensors: Sequence[TracedTensor], around: Event) -> tuple[Value, ...]:
        return tuple(self._value(tensor, around) for tensor in tensors)

    def _value(self, tensor: TracedTensor, around: Event, name: str = "") -> Value:
        axes = self._flow.of(tensor)
        sizes = tuple(str(size) for size in tensor.shape)
        return Value(self._names.of(tensor, around), text(axes) if atoms(axes) else "", sizes, tensor.kind, name)


def _keras_text(counterpart: Counterpart) -> str:
    """The calls in short; equal calls of an RNN are counted."""
    texts = [call_text(call) for call in counterpart.calls]
    if len(texts) > 1 and len(set(texts)) == 1:
        return f"{len(texts)} x {texts[0]}"
    return " -> ".join(texts) or counterpart.move


def _defaults(name: str, settings: Mapping[str, object], counterpart: Counterpart) -> Iterator[Default]:
    listed: set[str] = set()
    for call in counterpart.calls:
        for default in differing(name, settings, call):
            if str(default) not in listed:
                listed.add(str(default))
                yield default


def _kind(value: object) -> str:
    """The kind of a tensor argument, or the value of another argument."""
    if isinstance(value, TracedTensor):
        return value.kind
    if isinstance(value, tuple):
        packed = len(value) == 4 and isinstance(value[1], TracedTensor) and value[1].kind == "int"
        return "packed" if packed else "tuple"
    return str(value)


def _parametrised(module: torch.nn.Module) -> list[str]:
    """Notes on weights that are computed from others, and on hooks, which the layer's text does not show."""
    notes = []
    for name, transforms in getattr(module, "parametrizations", {}).items():
        kinds = ", ".join(type(part).__name__.strip("_") for part in transforms)
        folded = "Spectral" in kinds
        notes.append(f"{name} is parametrised ({kinds}): " + (
            "fold it first (torch.nn.utils.parametrize.remove_parametrizations)" if folded
            else "the row reads the stored tensors" if "WeightNorm" in kinds
            else "store the weight itself"))  # fmt: skip
    if any(name.endswith("_g") for name, _ in module.named_parameters(recurse=False)):
        notes.append("its weight is stored by weight_norm, which the row reads")
    return [*notes, *(["a forward hook may change its output"] if module._forward_hooks else [])]


def _full(module: torch.nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"
