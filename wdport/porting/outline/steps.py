"""Make the steps of an outline from a traced run: readers of a tensor, and the nodes that the outputs need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from wdport.mapping.kinds.kind import Axes, Counterpart, TorchCall, keras_permutation
from wdport.porting.functions import OPERATORS, bound, canonical
from wdport.porting.graph import Graph, Node, TensorSource, TracedTensor, traced_tensors
from wdport.porting.outline.axes import AxisMove, atoms, chained, text
from wdport.porting.outline.counterparts import LAYERS, Default, call_text, differing, layer_of, of_function, of_move
from wdport.porting.outline.expressions import TensorNames, expression, index, local, paths
from wdport.porting.outline.flow import AxisFlow
from wdport.porting.outline.result import Step, Value
from wdport.porting.settings import parameters, torch_class, torch_text

Readers = Mapping[TensorSource, Sequence[Node]]


def needed(graph: Graph) -> set[int]:
    """Events that the model's outputs, or one of its layers, depend on."""
    left = [tensor.source for tensor in graph.root.outputs]
    layers = [node for node in graph.nodes if node.module is not None and node.is_layer]
    # Every layer is listed, also one whose output is not used, so its inputs are needed too.
    left += [tensor.source for node in layers for tensor in node.inputs]
    serials: set[int] = set()
    # Backwards, so that functions that neither an output nor a layer needs are left out.
    while left:
        source = left.pop()
        if source.kind == "node" and source.node not in serials:
            serials.add(source.node)
            left += [tensor.source for tensor in graph.nodes[source.node].inputs]
    return serials


@dataclass(frozen=True)
class Chain:
    """Reshapes and transposes, each the only reader of the one before it, and their combined move."""

    move: AxisMove
    nodes: tuple[Node, ...]


def chains(graph: Graph, flow: AxisFlow, readers: Readers, is_step: Callable[[Node], bool]) -> dict[int, Chain]:
    """The rearrangements that are steps, by the serial of their last node."""
    by_serial: dict[int, Chain] = {}
    for node in graph.nodes:
        move = flow.moves.get(node.serial)
        if move is None or node.module is not None or not is_step(node):
            continue
        source = node.inputs[0].source
        before = by_serial.get(source.node) if source.kind == "node" else None
        if before is not None and _is_only_reader(before.nodes[-1], node, graph, readers):
            # A chain is listed where it ends.
            del by_serial[source.node]
            by_serial[node.serial] = Chain(chained(before.move, move), (*before.nodes, node))
        else:
            by_serial[node.serial] = Chain(move, (node,))
    return by_serial


def _is_only_reader(before: Node, node: Node, graph: Graph, readers: Readers) -> bool:
    """Whether ``node`` is the only reader of the output of ``before``, in the same module."""
    source = before.outputs[0].source
    final = any(tensor.source == source for tensor in graph.root.outputs)
    return before.parent == node.parent and not final and [r.serial for r in readers.get(source, ())] == [node.serial]


def is_layer(module: torch.nn.Module | type[torch.nn.Module]) -> bool:
    """Whether a module, or one of a class, is one step: a layer of ``torch.nn``, with its own ``forward``."""
    return torch_class(module) in LAYERS


class Steps:
    """The steps of a run."""

    def __init__(self, graph: Graph, flow: AxisFlow) -> None:
        self._graph, self._flow = graph, flow
        self._readers = graph.readers()
        self._needed = needed(graph)
        self._moves = chains(graph, flow, self._readers, self._is_step)
        self._behind = {part.serial: serial for serial, chain in self._moves.items() for part in chain.nodes[:-1]}
        self.numbers = {node.serial: number for number, node in enumerate(self._numbered(), 1)}
        self._names = TensorNames(graph, self.numbers, self._behind)

    def root(self) -> Step:
        """The model itself as a step that contains all others."""
        return self._module(self._graph.root, self._graph.root)

    def _numbered(self) -> Iterator[Node]:
        """Events that are numbered steps: layers, and functions that depend on an input and that the output depends
        on."""
        for node in self._graph.nodes:
            joined = node.serial in self._behind
            if node.is_layer if node.module is not None else self._is_step(node) and not joined:
                yield node

    def _is_step(self, node: Node) -> bool:
        if node.serial not in self._needed:
            return False
        return node.depends == "input" or (node.depends == "parameter" and layer_of(canonical(node.name)) != "")

    def _module(self, node: Node, around: Node) -> Step:
        module = node.module
        assert module is not None
        if node.is_layer:  # the model is one layer
            steps = [self._layer(node, around)]
        else:
            steps = [self._step(inner, node) for inner in node.inside if self._is_listed(inner)]
        module_parameters = {} if node.is_layer else dict(module.parameters)
        buffers = {} if node.is_layer else dict(module.buffers)
        name = module.torch
        notes = list(node.around)
        first = "#" not in node.name
        if first and (left := [name for name in module_parameters if name not in self._moved(node)]):
            notes.append(f"no kind: write tensors rows for {', '.join(left)}")
        if buffers and first:
            notes.append(f"buffers of the checkpoint: tensors rows that use or drop {', '.join(buffers)}")
        return Step(
            "module", local(node, around), node.name, module.type, settings={}, torch=name,
            inputs=self._input_values(node, around), outputs=self._values(node.outputs, node), notes=tuple(notes),
            parameters=module_parameters | buffers, steps=tuple(steps),
        )  # fmt: skip

    def _moved(self, around: Node) -> set[str]:
        """The parameters of a module that a row of a kind moves, since they are passed to a function equivalent to a
        layer."""
        path = around.name.partition("#")[0]
        layers = [node for node in around.inside if node.module is None and layer_of(canonical(node.name))]
        rows = [node for node in layers if self._row(node) and self._row(node) == path]
        return {tensor.source.name.rpartition(".")[2] for node in rows for tensor in node.inputs}

    def _is_listed(self, node: Node) -> bool:
        if node.module is None:
            return node.serial in self.numbers
        return node.is_layer or any(self._is_listed(inner) for inner in node.inside) or bool(node.around)

    def _step(self, node: Node, around: Node) -> Step:
        if node.module is None:
            return self._function(node, around)
        return self._layer(node, around) if node.is_layer else self._module(node, around)

    def _layer(self, node: Node, around: Node) -> Step:
        module = node.module
        assert module is not None
        name, settings = module.torch, module.settings
        find = LAYERS.get(name)
        counterpart = find(name, settings, self._call(node)) if find else Counterpart()
        notes = [*node.around, *module.notes, *counterpart.notes, *self._tied(node)]
        if not self._is_read(node):
            notes.append("its output is not used")
        return Step(
            "layer", local(node, around), node.name, module.type, self.numbers[node.serial],
            counterpart.kind, settings, torch_text(name, settings) if name else module.type.rpartition(".")[2],
            self._input_values(node, around), self._values(node.outputs, around), counterpart.calls,
            _keras_text(counterpart), tuple(_defaults(name, settings, counterpart)), tuple(notes),
        )  # fmt: skip

    def _tied(self, node: Node) -> Iterator[str]:
        """Notes on parameters of a layer that are those of another one."""
        assert node.module is not None
        path = node.module.path
        for name in node.module.parameters:
            if other := self._graph.tensors[f"{path}.{name}".lstrip(".")].same_as:
                owner = self._graph.modules[other.rpartition(".")[0]].torch
                reverse = owner == "Embedding" and node.module.torch == "Linear"
                instead = ": call a layers.ReversibleEmbedding with reverse=True instead" if reverse else ""
                yield f"its {name} is {other}{instead}"

    def _function(self, node: Node, around: Node) -> Step:
        number, function = self.numbers[node.serial], canonical(node.name)
        if node.serial in self._moves:
            return self._move(node, around)
        arguments = bound(node)
        counterpart, keras_text = of_function(node.name, arguments, self._call(node))
        notes = [*counterpart.notes, *self._weights(node, counterpart, around)]
        relative = keras_text
        if function in OPERATORS and not keras_text:
            keras_text, relative = (self._broadcast(node, around, origin) for origin in (0, number))
        owner = layer_of(function)
        usual = {key: value for key, value in parameters(owner).items() if key != "mode"} if owner else {}
        written = expression(node, lambda tensor: self._names.of(tensor, around), usual)
        alike = expression(node, lambda tensor: self._names.of(tensor, around, number), usual)
        settings = {key: value for key, value in arguments.items() if not any(True for _ in traced_tensors(value))}
        if "index" in settings:
            settings["index"] = index(settings["index"], lambda tensor: self._names.of(tensor, around))
        return Step(
            "function", function, "", node.name, number, counterpart.kind if self._row(node) else "", settings,
            written, self._input_values(node, around), self._values(node.outputs, around), counterpart.calls,
            keras_text, tuple(_defaults(owner, settings, counterpart)) if owner else (), tuple(notes),
            relative=(alike, relative, *(self._names.of(tensor, around, number) for tensor in node.inputs)),
        )  # fmt: skip

    def _broadcast(self, node: Node, around: Node, origin: int = 0) -> str:
        """The layout in Keras of operands that are broadcast over an image: ``scale as b 1 1 c``."""
        operands = [(tensor, self._flow.of(tensor)) for tensor in node.inputs]
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

    def _move(self, node: Node, around: Node) -> Step:
        move, functions = self._moves[node.serial].move, self._moves[node.serial].nodes
        keras_text, notes = of_move(move)
        first = functions[0].inputs[0]
        sizes = "".join(f" {name}={size}" for name, size in move.sizes.items())
        name = " ".join(canonical(call.name) if canonical(call.name) != "getitem" else "[None]" for call in functions)
        number, moved = self.numbers[node.serial], f"{move}{sizes}"
        source = self._names.of(first, around, number)
        return Step(
            "function", name, "", " ".join(call.name for call in functions), number,
            settings={"rearrange": str(move), **move.sizes}, torch=f"{self._names.of(first, around)}: {moved}",
            inputs=(self._value(first, around),), outputs=self._values(node.outputs, around),
            keras_text=keras_text, notes=notes, relative=(f"{source}: {moved}", keras_text, source),
        )  # fmt: skip

    def _call(self, node: Node) -> TorchCall:
        """The facts about a call that its counterpart may depend on."""
        inputs = [*node.inputs]
        used = {output.source.index for output in node.outputs if self._readers.get(output.source)}
        used |= {output.source.index for output in self._graph.root.outputs if output.source.node == node.serial}
        arguments = {key: _kind(value) for key, value in node.kwargs.items() if value is not None}
        axes = self._flow.of(inputs[0]) if inputs else None
        # A packed sequence has no axes to follow.
        if node.module is not None and inputs and any(kind == "packed" for kind in arguments.values()):
            axes = None
        return TorchCall(inputs[0].shape if inputs else (), axes, arguments, frozenset(used))

    def _is_read(self, node: Node) -> bool:
        finals = {output.source for output in self._graph.root.outputs}
        return any(self._readers.get(output.source) or output.source in finals for output in node.outputs)

    def _row(self, node: Node) -> str:
        """The module that owns all weights of a function, so that a row of the table can name it."""
        names = [tensor.source.name for tensor in node.inputs if tensor.source.kind == "parameter"]
        owners = {name.rpartition(".")[0] for name in names}
        standard = {name.rpartition(".")[2] for name in names} <= {"weight", "bias"}
        return owners.pop() if names and standard and len(owners) == 1 else ""

    def _weights(self, node: Node, counterpart: Counterpart, around: Node) -> list[str]:
        """Notes on the row for the weights that are passed to a function."""
        names = [tensor.source.name for tensor in node.inputs if tensor.source.kind in ("parameter", "buffer")]
        if not names:
            return []
        if not layer_of(canonical(node.name)):
            return []  # the module that reads them has the note
        if counterpart.kind and (owner := self._row(node)):
            return [] if owner == around.name.partition("#")[0] else [f"a row for {owner} moves its weights"]
        return [f"no row of a kind: write tensors rows for {', '.join(names)}"]

    def _input_values(self, node: Node, around: Node) -> tuple[Value, ...]:
        if node.module is None:
            return tuple(self._value(tensor, around) for tensor in node.inputs)
        named_tensors = ((path, tensor) for name, value in node.kwargs.items() for path, tensor in paths(name, value))
        return tuple(self._value(tensor, around, path) for path, tensor in named_tensors)

    def _values(self, tensors: Sequence[TracedTensor], around: Node) -> tuple[Value, ...]:
        return tuple(self._value(tensor, around) for tensor in tensors)

    def _value(self, tensor: TracedTensor, around: Node, name: str = "") -> Value:
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
