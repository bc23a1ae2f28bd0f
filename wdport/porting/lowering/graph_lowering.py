"""Lower a graph: go through the nodes that the outputs need, and keep where every tensor is and in which layout.

Convolutions and the like want their input with channels last; what computes value by value keeps the layout of its
input; everything else reads tensors in PyTorch's order. A transpose is written only where values move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wdport.mapping.kinds import KINDS
from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.functions import OPERATORS, SIXTEEN, bound, canonical, is_custom
from wdport.porting.graph import Graph, Node, Size, SizeExpression, SizeFloat, TensorSource, TracedTensor, numbers
from wdport.porting.lowering.holes import lower_as_hole
from wdport.porting.lowering.keras_graph import (
    CHECK,
    MOST_NUMBERS,
    Alias,
    Hole,
    KerasGraph,
    KerasLayer,
    KerasSize,
    KerasStep,
    KerasValue,
    Order,
    Placed,
    channels_last,
    identity,
    keras_dtype,
    weight_in_keras,
    with_limits,
    word_of,
)
from wdport.porting.lowering.needs import (
    asks_mask,
    channels_last_tensors,
    needed_nodes,
    padded_before,
    read_outputs,
    repeated_functions,
    sizes_in,
)
from wdport.porting.lowering.rules import COMPLEX, LAYER, RANDOM, RULES, NotLoweredError, NotTrustedError
from wdport.porting.lowering.two_sizes import Sizes
from wdport.porting.tracing import Construction


def _changes(node: Node) -> bool:
    """Whether a function changes its first tensor in place."""
    short = node.name.rpartition(".")[2]
    return node.module is None and (short == "__setitem__" or (short.endswith("_") and not short.endswith("__")))


def _is_long(values: Any) -> bool:
    """Whether whole numbers are outside of the range of int32, which Keras's have, other than what an infinite number
    becomes."""
    array = np.asarray(0 if values is None else values)
    infinite = np.iinfo(np.int64).min - _INT32.min
    return array.dtype.kind == "i" and bool(((array > _INT32.max) | ((array < _INT32.min) & (array > infinite))).any())


_INT32 = np.iinfo(np.int32)

_UNKNOWN = (KeyError, IndexError, TypeError, ValueError)
"""What a rule raises that does not know the arguments of a call."""


class GraphLowering:
    """The state of one lowering."""

    def __init__(
        self, graph: Graph, values: Mapping[TensorSource, Any], construction: Construction | None = None,
        other: Graph | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.values, self.result = graph, values, KerasGraph()
        self._construction = construction or Construction()
        self._buffers: dict[tuple[str, tuple[int, int]], Placed] = {}
        self.places: dict[TensorSource, Placed] = {}
        self.read = read_outputs(graph)
        self._moved: dict[tuple[KerasValue, Order, tuple[int, int]], KerasValue] = {}
        self._needed = needed_nodes(graph)
        self.functions = repeated_functions(graph, self._needed)
        self.padded_before = padded_before(graph)
        self.wants_channels_last = channels_last_tensors(graph, self._needed)
        self._sized = Sizes(graph, other)
        self._reads = [read for read in graph.value_reads if not asks_mask(graph, read.tensor)]
        self._counts: dict[tuple[int, str], int] = {}
        self.node: Node = graph.root

    def run(self) -> None:
        for tensor in self.graph.root.inputs:
            if tensor.source.kind == "input" and tensor.source not in self.places:
                rank, name = len(tensor.shape), tensor.source.name
                order = channels_last(rank) if tensor.source in self.wants_channels_last else identity(rank)
                placed = Placed(KerasValue("input", name), order, tensor.shape, tensor.dtype)
                self.result.inputs[name] = self.places[tensor.source] = placed
        for node in self.graph.nodes:
            end = self._sized.end
            if end is not None and end.serial <= node.serial and not self._reads_before(end.serial):
                self.result.refused = Hole(self.graph.nodes[end.serial], end.why)
                return
            if self._reads_before(node.serial):
                break
            if not self._check_sizes(node.serial):
                return
            if node.serial not in self._needed or not (node.module is None or node.is_layer):
                continue
            try:
                self._lower(node)
            except NotTrustedError as error:
                self.result.refused = Hole(node, str(error))
                return
        if self._reads:
            read = self._reads[0]
            what = "Python code reads a value that depends on the inputs, such as in a branch"
            self.result.refused = Hole(Node(read.before, read.function, place=read.place), what)
            return
        if (end := self._sized.end) is not None:
            self.result.refused = Hole(self.graph.root, end.why)
            return
        if not self._check_sizes(len(self.graph.nodes)):
            return
        try:
            self.node = self.graph.root
            self.result.outputs = [self._output(tensor) for tensor in self.graph.root.outputs]
        except NotLoweredError as error:
            self.result.refused = Hole(self.graph.root, str(error))

    def _check_sizes(self, serial: int) -> bool:
        """Have the port check the sizes that are known before a node, and with which the code may take another way;
        whether that is possible."""
        guards = [guard for guard in self._sized.doubtful if guard.size.after <= serial]
        for guard in guards:
            self._sized.doubtful.remove(guard)
            # In the call of the module that makes the tensor, or that gets the input.
            maker = guard.size.after - 1
            self.node = self.graph.nodes[maker] if maker >= 0 else self.graph.root
            try:
                size = self._expression(guard.size)
            except NotTrustedError as error:
                self.result.refused = Hole(self.node, f"compares {guard.size} with {guard.other}, and {error}")
                return False
            self.emit(CHECK, self.emit(guard.held, size, guard.other))
            self.result.checked.append(guard)
        return True

    def _output(self, tensor: TracedTensor) -> Placed:
        """An output of the model: an image with channels last, or else in PyTorch's order."""
        placed = self.place(tensor)
        if placed.order in (identity(len(placed.shape)), channels_last(len(placed.shape))) or tensor.kind == "complex":
            return placed
        return replace(placed, value=self.plain(tensor), order=identity(len(placed.shape)))

    def _reads_before(self, serial: int) -> bool:
        """Whether Python code reads a value before a node."""
        return bool(self._reads) and self._reads[0].before <= serial

    def _lower(self, node: Node) -> None:
        self.node = node
        if _changes(node) and node.inputs[0].source.kind in ("parameter", "buffer"):
            raise NotTrustedError(f"{canonical(node.name)} changes {node.inputs[0].source.name} in place")
        if (node.same is not None and node.module is None) or self._assigns_itself(node):
            # A cast between floating-point types, or a function that does nothing.
            placed = self.place(node.inputs[0])
            if node.detaches:
                placed = replace(placed, value=self.emit("ops.stop_gradient", placed.value))
            self.places[node.outputs[0].source] = placed
            return
        before = self._state()
        try:
            listed = self._by_rule(node)
        except NotTrustedError:
            raise
        except NotLoweredError as error:
            self._restore(before)
            small = all(np.prod(output.shape) <= MOST_NUMBERS for output in node.outputs)
            if small and self._is_fixed(node) and not self._sized.unexplained(node):
                listed = [self.rounded(self.constant(self.values[output.source]), output) for output in node.outputs]
            else:
                listed = lower_as_hole(self, node, str(error))
        for output, result in zip(node.outputs, listed, strict=False):
            if tuple(map(int, result.shape)) != tuple(map(int, output.shape)):
                raise AssertionError(f"{node.name}: {result.shape} is not {output.shape}")
            self.places[output.source] = replace(result, dtype=output.dtype)
        if node.base is not None:
            self.places[node.base[1].source] = self._written_back(node)

    def _assigns_itself(self, node: Node) -> bool:
        """Whether a function in place changed a part already that is assigned to itself, as in ``x[:, 0] += 1``."""
        if node.module is not None or canonical(node.name) != "setitem":
            return False
        arguments = bound(node)
        value = arguments["value"]
        changed = self.graph.nodes[value.source.node] if getattr(value, "source", None) in self.places and (
            value.source.kind == "node") else None  # fmt: skip
        if changed is None or changed.base is None or changed.base[1].source != arguments["input"].source:
            return False
        view = self.graph.nodes[changed.inputs[0].source.node]
        return canonical(view.name) == "getitem" and bound(view)["index"] == arguments["index"]

    def _by_rule(self, node: Node) -> list[Placed]:
        """Where the outputs of a node are, by the rule of its function."""
        if reason := self._sized.unexplained(node):
            raise NotLoweredError(reason)
        function = canonical(node.name)
        if is_custom(node.name):
            raise NotLoweredError(f"{function} is an operator of torch.ops")
        if function in RANDOM and node.module is None:
            raise NotLoweredError(f"{function} gives other values at every call")
        if any(_is_long(self.values.get(output.source)) for output in node.outputs) or (
            node.module is None and function in OPERATORS and any(map(_is_long, numbers(node.args)))
        ):
            raise NotLoweredError(f"{function} of whole numbers that 32 bits do not hold")
        is_complex = any(tensor.kind == "complex" for tensor in (*node.inputs, *node.outputs))
        if is_complex and function not in COMPLEX:
            raise NotLoweredError(f"{function} of complex numbers")
        rule = RULES.get(LAYER if node.module is not None else function)
        if rule is None:
            raise NotLoweredError(f"{function} has no counterpart")
        try:
            placed = rule(self, node, {} if node.module is not None else bound(node))
        except _UNKNOWN as error:
            raise NotLoweredError(f"{function} with arguments that are not known: {error}") from error
        return [placed] if isinstance(placed, Placed) else list(placed)

    def _state(self) -> list[Any]:
        """How much there is of everything that a rule may add to."""
        return [len(part) for part in self._parts]

    @property
    def _parts(self) -> tuple[Any, ...]:
        result = self.result
        return (result.steps, result.rows, result.constants, result.layers, result.variables, result.aliases,
                result.computed, self.places, self._moved, self._buffers)  # fmt: skip

    def _restore(self, state: Sequence[int]) -> None:
        """Take back what a rule added that has failed."""
        for part, length in zip(self._parts, state, strict=True):
            while len(part) > length:
                part.pop() if isinstance(part, list) else part.popitem()

    def _written_back(self, node: Node) -> Placed:
        """The tensor of which a function in place changed a view."""
        assert node.base is not None
        before, after = node.base
        view = next(iter(node.inputs))
        reader = self.graph.nodes[view.source.node] if view.source.kind == "node" else None
        if reader is None or reader.inputs[0].source != before or canonical(reader.name) != "getitem":
            raise NotTrustedError(f"{canonical(node.name)} changes a view of a tensor")
        index = bound(reader)["index"]
        arguments = {"input": reader.inputs[0], "index": index, "value": node.outputs[0]}
        try:
            placed: Placed = RULES["setitem"](self, node, arguments)
        except NotLoweredError as error:
            raise NotTrustedError(f"{canonical(node.name)} changes a view of a tensor: {error}") from error
        return replace(placed, dtype=after.dtype)

    def _is_fixed(self, node: Node) -> bool:
        """Whether a node gives the same values at every call: it depends on no input and no size."""
        left, visited = [node], set()
        while left:
            current = left.pop()
            if current.serial in visited:
                continue
            visited.add(current.serial)
            if current.depends == "input" or any(True for _ in sizes_in((current.args, dict(current.kwargs)))):
                return False
            if any(tensor.source.kind in ("parameter", "input") for tensor in current.inputs):
                return False
            if canonical(current.name) in RANDOM or current.outdated or current.base is not None:
                return False
            left += [self.graph.nodes[t.source.node] for t in current.inputs if t.source.kind == "node"]
        return all(output.source in self.values and output.kind != "complex" for output in node.outputs)

    def is_free(self, tensor: TracedTensor, axis: int) -> bool:
        """Whether an axis has another size in the other run."""
        return self._sized.is_free(tensor, axis)

    def place(self, tensor: TracedTensor) -> Placed:
        """A tensor of PyTorch's run, as it is placed."""
        return self._source(tensor.source, tensor)

    def _source(self, source: TensorSource, tensor: TracedTensor) -> Placed:
        if source in self.places:
            return self.places[source]
        held = self.graph.tensors.get(source.name) if source.kind in ("parameter", "buffer") else None
        if held is not None and not self.is_variable(source.name):
            # Not kept among the places: another module computes it again.
            return self._made_buffer(source)
        if held is not None and (placed := self._layer_variable(source.name, tensor)) is not None:
            return placed
        if held is not None:
            name = self.result.variables.setdefault(source.name, f"v{len(self.result.variables)}")
            value = KerasValue("variable", name)
            if not any(row["torch"] == source.name for row in self.result.rows):
                self.result.rows.append({"torch": source.name, "keras": name, "rule": "identity"})
            placed = Placed(value, identity(len(tensor.shape)), tensor.shape, tensor.dtype)
        elif source.kind == "constant":
            placed = self.rounded(self.constant(self.graph.constants[source.index]), tensor)
        else:
            changed = source.kind == "node" and source.index > len(self.graph.nodes[source.node].outputs)
            if changed:
                name = canonical(self.graph.nodes[source.node].name)
                raise NotTrustedError(f"reads a tensor whose memory {name} changed in place through another one")
            raise NotTrustedError(f"reads {source.name or source.kind}, which was not lowered")
        self.places[source] = placed
        return placed

    def _layer_variable(self, name: str, tensor: TracedTensor) -> Placed | None:
        """A weight of a layer that has it as its variable; ``None`` if no layer has."""
        path, layer = name, self.holder(name)
        if layer is None:
            path, layer = self.shared_with(name)
        if layer is None:
            return None
        owner, _, last = path.rpartition(".")
        kind = next((one.module for one in KINDS[layer.kind].functions), self.graph.modules[owner].torch)
        variable, order = weight_in_keras(kind, last, len(tensor.shape))
        value = self.alias(path, variable) if variable else None
        if value is None:
            raise NotLoweredError(f"reads {name}, a weight of a layer, by itself")
        return Placed(value, order, tensor.shape, tensor.dtype)

    def is_variable(self, name: str) -> bool:
        """Whether a parameter or buffer is a variable of the port, whose values the checkpoint has."""
        held, owner = self.graph.tensors[name], self.graph.modules[name.rpartition(".")[0]]
        return held.kind == "parameter" or ("float" in held.dtype and name.rpartition(".")[2] in owner.buffers)

    def _made_buffer(self, source: TensorSource) -> Placed:
        """A buffer that is not a variable: computed as the constructor does, or a constant."""
        key = (source.name, self._call(self.node))
        self.result.computed[source.name] = None
        if key not in self._buffers:
            before = self._state()
            try:
                self._buffers[key] = self._computed_buffer(source.name)
            except (NotLoweredError, *_UNKNOWN):
                self._restore(before)
                self._buffers[key] = self.constant(self.values[source], f"the buffer {source.name}")
        return self._buffers[key]

    def formula(self, name: str) -> KerasGraph | None:
        """How the constructor computes a buffer, as a graph of its own; ``None`` if that is not known."""
        before = self.result, self._moved
        self.result, self._moved = KerasGraph(), {}
        try:
            self.result.outputs = [replace(placed := self._computed_buffer(name), value=self.moved(
                placed, identity(len(placed.shape))), order=identity(len(placed.shape)))]  # fmt: skip
            return None if self.result.holes or self.result.variables else self.result
        except (NotLoweredError, *_UNKNOWN):
            return None
        finally:
            self.result, self._moved = before

    def _computed_buffer(self, name: str) -> Placed:
        construction = self._construction
        source = construction.sources.get(name)
        if source is None or source.kind != "node":
            raise NotLoweredError("a buffer that the constructor does not compute")
        left, needed = [source], set()
        while left:
            current = left.pop()
            if current.kind == "node" and current.node not in needed:
                needed.add(current.node)
                node = construction.nodes[current.node]
                left += [tensor.source for tensor in _read_by(node)] + ([node.base[0]] if node.base else [])
        before = self.graph, self.places
        nodes = [construction.nodes[serial] for serial in sorted(needed)]
        self.graph = replace(self.graph, nodes=construction.nodes, constants=construction.constants)
        self.places = {}
        try:
            for node in nodes:
                if node.same is not None or canonical(node.name) == "copy" or self._assigns_itself(node):
                    self.places[node.outputs[0].source] = self.place(_read_by(node)[0])
                    continue
                rule = RULES.get(canonical(node.name))
                if rule is None or (canonical(node.name) in RANDOM and not _is_overwritten(node, nodes)):
                    raise NotLoweredError(f"{canonical(node.name)} in a constructor")
                placed = rule(self, node, bound(node))
                listed = [placed] if isinstance(placed, Placed) else list(placed)
                for output, result in zip(node.outputs, listed, strict=False):
                    self.places[output.source] = replace(result, dtype=output.dtype)
                if node.base is not None:
                    self.places[node.base[1].source] = self._written_back(node)
            return self.places[source]
        finally:
            self.graph, self.places = before

    def constant(self, array: Any, name: str = "a tensor that the code holds") -> Placed:
        """A constant of the port; one of many numbers is a hole."""
        array = np.asarray(array)
        if array.ndim == 0 and array.dtype.kind == "f" and with_limits(float(array)) != float(array):
            return Placed(self.emit("ops.full", (), float(array)), (), (), str(array.dtype))
        if array.size > MOST_NUMBERS and array.dtype.kind in "fiub":
            return self._many_numbers(array, name)
        self.result.constants.append(array)
        value = KerasValue("constant", step=len(self.result.constants) - 1)
        return Placed(value, identity(array.ndim), array.shape, str(array.dtype))

    def rounded(self, placed: Placed, tensor: TracedTensor) -> Placed:
        """A constant in 16 bits if PyTorch's is: so is what is computed with it."""
        if tensor.dtype not in SIXTEEN:
            return placed
        return replace(placed, value=self.emit("ops.cast", placed.value, tensor.dtype), dtype=tensor.dtype)

    def _many_numbers(self, array: Any, name: str) -> Placed:
        dtype = keras_dtype(str(array.dtype))
        if (array == array.flat[0]).all():
            value = self.emit("ops.full", array.shape, array.flat[0].item(), dtype=dtype)
        else:
            what = f"{array.size} numbers, and how they are computed is not known"
            self.result.constants.append(array)
            value = self.emit("hole")
            self.result.holes[value.step] = Hole(self.node, what, "numbers", (), name, f"-> {array.shape}",
                                                 len(self.result.constants) - 1)  # fmt: skip
        return Placed(value, identity(array.ndim), array.shape, str(array.dtype))

    def emit(self, call: str, *args: Any, layer: str = "", **kwargs: Any) -> KerasValue:
        """Add a step; returns its output."""
        steps = self.result.steps
        named = {key: with_limits(value) for key, value in kwargs.items()}
        steps.append(KerasStep(len(steps), self.node.serial, call, with_limits(args), named, layer))
        return KerasValue("step", step=len(steps) - 1)

    def alias(self, path: str, variable: str) -> KerasValue | None:
        """A variable of the layer that holds a tensor; ``None`` if there is no such layer."""
        layer = self.holder(path)
        if layer is None:
            return None
        alias = Alias(path, layer.torch, variable)
        name = next((name for name, other in self.result.aliases.items() if other == alias), "")
        name = name or f"a{len(self.result.aliases)}"
        self.result.aliases[name] = alias
        return KerasValue("variable", name)

    def holder(self, path: str) -> KerasLayer | None:
        """The layer that has a tensor of the PyTorch model as its variable."""
        owner = path.rpartition(".")[0]
        for row in self.result.rows:
            layer = self.result.layers.get(row["keras"].partition("/")[0])
            if layer is not None and layer.kind and row["torch"] == (owner if "kind" in row else path):
                return layer
        return None

    def shared_with(self, path: str) -> tuple[str, KerasLayer | None]:
        """Another name of a tensor of the PyTorch model, and the layer that has that as its variable."""
        tensors = self.graph.tensors
        first = (tensors[path].same_as or path) if path in tensors else ""
        for name, held in tensors.items():
            if name != path and first in (name, held.same_as) and (layer := self.holder(name)) is not None:
                return name, layer
        return "", None

    def layer(self, call: KerasCall, value: Any, *more: Any, torch: str, kind: str = "", **kwargs: Any) -> KerasValue:
        """Add a layer, unless this place in the PyTorch model has it already, and a call of it."""
        name = next((layer.name for layer in self.result.layers.values()
                     if (layer.torch, layer.kind, layer.call) == (torch, kind, call)), "")  # fmt: skip
        if not name:
            name = f"l{len(self.result.layers)}"
            self.result.layers[name] = KerasLayer(name, call, torch, kind)
        return self.emit("layer", value, *more, layer=name, **kwargs)

    def unnamed(self, call: KerasCall) -> str:
        """A place for a layer that is a function in PyTorch: the module that calls it, and the layer's class."""
        owner = self.graph.nodes[self.node.parent].module if self.node.parent >= 0 else None
        word = word_of(call)
        count = self._counts[self.node.parent, word] = self._counts.get((self.node.parent, word), 0) + 1
        return f"{owner.path if owner else ''}.{word}{count if count > 1 else ''}".lstrip(".")

    def moved(self, placed: Placed, order: Order) -> KerasValue:
        """The tensor with its axes in another order."""
        if placed.order == order:
            return placed.value
        # Once in every call of a module or a function, so that no value leaves it unseen.
        key = (placed.value, order, self._call(self.node))
        if key not in self._moved:
            axes = tuple(placed.order.index(axis) for axis in order)
            self._moved[key] = self.transposed(placed.value, axes)
        return self._moved[key]

    def transposed(self, value: KerasValue, axes: Order) -> KerasValue:
        """A transpose; one of a transpose in the same call of a module is one."""
        step = self.result.steps[value.step] if value.kind == "step" and value.index is None else None
        if step is not None and step.call == "ops.transpose" and len(step.args) == 2 and self._is_near(step):
            axes = tuple(step.args[1][axis] for axis in axes)
            value = step.args[0]
        return value if axes == identity(len(axes)) else self.emit("ops.transpose", value, axes)

    def _is_near(self, step: KerasStep) -> bool:
        """Whether a step belongs to the same call of a module or a function."""
        return self._call(self.graph.nodes[step.node]) == self._call(self.node)

    def _call(self, node: Node) -> tuple[int, int]:
        """The innermost call around a node: that of a module, and that of a function in it."""
        functions = self.functions[node.serial]
        return node.parent, functions[-1].serial if functions else -1

    def plain(self, tensor: TracedTensor) -> KerasValue:
        """The tensor with its axes in PyTorch's order."""
        return self.moved(self.place(tensor), identity(len(tensor.shape)))

    def held(self, path: str) -> TracedTensor:
        """A parameter or buffer of the model."""
        held = self.graph.tensors[path]
        return TracedTensor(TensorSource(held.kind, path), held.shape, held.dtype)

    def placed(self, value: KerasValue, output: TracedTensor | Sequence[int], order: Order | None = None) -> Placed:
        shape = output.shape if isinstance(output, TracedTensor) else tuple(output)
        return Placed(value, order or identity(len(shape)), tuple(shape), "")

    def size(self, value: Any) -> Any:
        """A number of the call, with sizes as they are computed in the port; nested ones too."""
        if isinstance(value, (tuple, list)):
            return tuple(self.size(item) for item in value)
        if isinstance(value, (Size, SizeFloat)) and value.expression is not None:
            return self._expression(value.expression)
        if isinstance(value, TracedTensor):
            return self.plain(value)
        return int(value) if isinstance(value, Size) else value

    def _expression(self, expression: SizeExpression | float) -> KerasSize | float:
        if not isinstance(expression, SizeExpression):
            return expression
        if expression.tensor is None:
            operands = tuple(self._expression(operand) for operand in expression.operands)
            return KerasSize(expression.operator, operands)
        placed = self.places.get(expression.tensor)
        # A parameter's sizes are numbers.
        if expression.tensor.kind in ("parameter", "buffer", "constant") or placed is None:
            shape = self._shape_of(expression.tensor)
            if shape is None:
                raise NotTrustedError("reads the size of a tensor that was not lowered")
            return int(shape[expression.axis])
        return KerasSize("size", tensor=placed.value, axis=placed.order.index(expression.axis))

    def _shape_of(self, source: TensorSource) -> Sequence[int] | None:
        if source.kind in ("parameter", "buffer"):
            return self.graph.tensors[source.name].shape
        return self.graph.constants[source.index].shape if source.kind == "constant" else None


def _is_overwritten(node: Node, nodes: Sequence[Node]) -> bool:
    """Whether nothing but functions that overwrite it reads a tensor without values."""
    readers = {canonical(reader.name) for reader in nodes
               if any(tensor.source.node == node.serial for tensor in reader.inputs)}  # fmt: skip
    return canonical(node.name) == "empty" and bool(readers) and readers <= {"zero", "fill"}


def _read_by(node: Node) -> list[TracedTensor]:
    """The tensors that a node reads: a copy does not read what it replaces."""
    return node.inputs[1:] if canonical(node.name) == "copy" else node.inputs
