"""Make the steps of an outline from a traced run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from wdport.mapping.kinds.counterpart import Counterpart, TorchCall
from wdport.mapping.kinds.image_axes import Axes, keras_permutation
from wdport.porting.outline.axes import atoms, text
from wdport.porting.outline.counterparts import LAYERS, layer_of, of_function, of_move
from wdport.porting.outline.events import Event, Trace, TracedTensor, traced_tensors
from wdport.porting.outline.expressions import expression, index
from wdport.porting.outline.flow import Flow
from wdport.porting.outline.functions import OPERATORS, bound, canonical
from wdport.porting.outline.keras_calls import Default, call_text, differing
from wdport.porting.outline.names import Names, local, paths
from wdport.porting.outline.reach import chains, needed, readers_of
from wdport.porting.outline.result import Step, Value
from wdport.porting.outline.settings import parameters, settings_of, torch_class, torch_text


def is_layer(module: torch.nn.Module) -> bool:
    """Whether a module is one step: a class of ``torch.nn`` that is a layer, with its own ``forward``."""
    return torch_class(module) in LAYERS


class Steps:
    """The steps of a run; ``dtype`` is that of the port."""

    def __init__(self, trace: Trace, flow: Flow, dtype: str = "float32") -> None:
        self._trace, self._flow, self._dtype = trace, flow, dtype
        self._readers = readers_of(trace)
        self._needed = needed(trace)
        self._moves = chains(trace, flow, self._readers, self._is_step)
        self._behind = {part.serial: serial for serial, chain in self._moves.items() for part in chain.events[:-1]}
        self.numbers = {event.serial: number for number, event in enumerate(self._numbered(), 1)}
        self._names = Names(trace, self.numbers, self._behind)

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
        """A module with its steps."""
        module = event.module
        assert module is not None
        if event.is_layer:  # the model is one layer
            steps = [self._layer(event, around)]
        else:
            steps = [self._step(inner, event) for inner in event.inside if self._is_listed(inner)]
        module_parameters = (
            {}
            if event.is_layer
            else {name: tuple(parameter.shape) for name, parameter in module.named_parameters(recurse=False)}
        )
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
            "module", local(event, around), event.name, _full(type(module)), settings={}, torch=name,
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
        notes = [*event.around, *_parametrised(module), *counterpart.notes]
        if not self._is_read(event):
            notes.append("its output is not used")
        return Step(
            "layer", local(event, around), event.name, _full(type(module)), self.numbers[event.serial],
            counterpart.kind, settings, torch_text(name, settings) if name else type(module).__name__,
            self._input_values(event, around), self._values(event.outputs, around), counterpart.calls,
            _keras_text(counterpart), tuple(_defaults(name, settings, counterpart)), tuple(notes),
        )  # fmt: skip

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
        if event.module is not None and inputs and any(kind == "packed" for kind in arguments.values()):
            axes = None
        return TorchCall(inputs[0].shape if inputs else (), axes, arguments, frozenset(used), self._dtype)

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
        return (
            "packed" if len(value) == 4 and isinstance(value[1], TracedTensor) and value[1].kind == "int" else "tuple"
        )
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
    hooks = [*module._forward_hooks.values()]
    return [*notes, *(["a forward hook may change its output"] if hooks else [])]


def _full(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
