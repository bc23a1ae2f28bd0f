"""What a graph needs: the nodes that its outputs depend on, and the layout that the readers of a tensor want."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from wdport.mapping.kinds import FUNCTIONS, MODULES
from wdport.porting.functions import canonical
from wdport.porting.graph import (
    STOCHASTIC_DEPTH,
    FunctionCall,
    Graph,
    Node,
    SizeExpression,
    TensorSource,
    TorchModule,
    TracedTensor,
    expressions_in,
)


def sizes_in(value: Any) -> Iterator[TensorSource]:
    """The tensors whose sizes are read in nested arguments."""
    for expression in expressions_in(value):
        yield from _sources(expression)


def _sources(expression: object) -> Iterator[TensorSource]:
    if isinstance(expression, SizeExpression):
        if expression.tensor is not None:
            yield expression.tensor
        for operand in expression.operands:
            yield from _sources(operand)


def is_image(node: Node) -> bool:
    """Whether a layer or a function is given images, whose channels are last in Keras."""
    if node.module is not None:
        name = node.module.torch
    else:
        function = canonical(node.name)
        name = FUNCTIONS[function].module if function in FUNCTIONS else ""
        if function == "pad":
            return False
    return name in MODULES and MODULES[name].output == "image"


_PASSING = frozenset((
    "add", "sub", "mul", "div", "pow", "rsub", "rdiv", "cat", "reshape", "flatten", "pad",
    "maximum", "minimum", "clamp", "getitem", "chunk", "split", "neg", "exp", "log", "sqrt", "rsqrt", "abs", "where",
    "to", "float", "unflatten", "contiguous", "clone", "squeeze", "unsqueeze", "stack", "expand",
))  # fmt: skip


def passes_layout(node: Node) -> bool:
    """Whether a node whose output is wanted with channels last should have its inputs so."""
    if node.same is not None:
        return True
    if node.module is not None:
        name = node.module.torch
        return name == STOCHASTIC_DEPTH or (name in MODULES and MODULES[name].output == "")
    function = canonical(node.name)
    elementwise = function in FUNCTIONS and MODULES[FUNCTIONS[function].module].output == ""
    return function in _PASSING or elementwise


def needed_nodes(graph: Graph) -> set[int]:
    """The nodes that the model's outputs need, also for sizes."""
    left = [tensor.source for tensor in graph.root.outputs]
    serials: set[int] = set()
    while left:
        source = left.pop()
        if source.kind == "node" and source.node not in serials:
            serials.add(source.node)
            node = graph.nodes[source.node]
            left += [tensor.source for tensor in node.inputs]
            left += [*sizes_in((node.args, dict(node.kwargs)))]
            left += [node.base[0]] if node.base is not None else []
    return serials


def repeated_functions(graph: Graph, needed: Collection[int]) -> dict[int, tuple[FunctionCall, ...]]:
    """The calls of the author's functions around each node, without those of functions of one step, and of those that
    a module calls once."""
    steps: dict[tuple[int, int], int] = {}
    calls: dict[tuple[int, tuple[str, int]], set[int]] = {}
    for node in graph.nodes:
        for one in node.functions if node.serial in needed and node.same is None else ():
            steps[node.parent, one.serial] = steps.get((node.parent, one.serial), 0) + 1
            calls.setdefault((node.parent, one.key), set()).add(one.serial)
    once: dict[tuple[str, tuple[str, int]], None] = {}
    for (parent, key), serials in calls.items():
        if len(serials) < 2 or any(steps[parent, serial] < 2 for serial in serials):
            once[_type_of(graph, parent), key] = None
    return {
        node.serial: tuple(one for one in node.functions if (_type_of(graph, node.parent), one.key) not in once)
        for node in graph.nodes
    }


def _type_of(graph: Graph, serial: int) -> str:
    module = graph.nodes[serial].module if serial >= 0 else None
    return module.type if module is not None else ""


def read_outputs(graph: Graph) -> dict[int, set[int]]:
    """The indices of the outputs of each node that are read."""
    read: dict[int, set[int]] = {}
    listed = [tensor for node in graph.nodes if node.module is None or node.is_layer for tensor in node.inputs]
    for tensor in (*listed, *graph.root.outputs):
        if tensor.source.kind == "node":
            read.setdefault(tensor.source.node, set()).add(tensor.source.index)
    return read


def channels_last_tensors(graph: Graph, needed: set[int]) -> set[TensorSource]:
    """The tensors that a reader wants with channels last, found from the last node to the first."""
    sources: set[TensorSource] = set()
    for node in reversed(graph.nodes):
        if node.serial not in needed or not (node.module is None or node.is_layer) or not node.outputs:
            continue
        tensor = next(iter(node.inputs), None)
        if tensor is None or len(tensor.shape) < 3:
            continue
        if is_image(node) and tensor.source.kind != "parameter":
            sources.add(tensor.source)
        elif any(output.source in sources for output in node.outputs) and passes_layout(node):
            rank = len(node.outputs[0].shape)
            sources |= {operand.source for operand in node.inputs if len(operand.shape) >= min(rank, 3)}
    return sources


def asks_mask(graph: Graph, tensor: TracedTensor) -> bool:
    """Whether a value depends on whole numbers alone, such as whether a mask hides anything."""
    left, visited = [tensor], set()
    while left:
        current = left.pop()
        if current.kind in ("float", "complex"):
            return False
        if current.source.kind == "node" and current.source not in visited:
            visited.add(current.source)
            left += graph.nodes[current.source.node].inputs
    return tensor.kind == "bool"


def padded_before(graph: Graph) -> frozenset[str]:
    """Convolutions that a layer of their own pads: one at the same place in another instance of a class has a stride,
    with which Keras's ``same`` pads other sides than PyTorch."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path, module in graph.modules.items():
        if re.fullmatch(r"Conv\dd", module.torch) and module.settings.get("padding_mode") == "zeros":
            owner = path.rpartition(".")[0]
            if graph.modules[owner].torch == "Sequential" and not _pads(module):
                continue
            while owner and graph.modules[owner].torch in ("Sequential", "ModuleList", "ModuleDict"):
                owner = owner.rpartition(".")[0]
            place = path.removeprefix(f"{owner}.")
            groups.setdefault((graph.modules[owner].type, place), []).append(path)
    return frozenset(path for paths in groups.values() if len(paths) > 1 and _has_both(graph, paths) for path in paths)


def _pads(module: TorchModule) -> bool:
    padding = module.settings["padding"]
    return not isinstance(padding, str) and max(padding) > 0


def _has_both(graph: Graph, paths: Sequence[str]) -> bool:
    """Whether some of these convolutions have a stride and a padding, and others no stride."""
    modules = [graph.modules[path] for path in paths]
    strided = [max(module.settings["stride"]) > 1 for module in modules]
    return not all(strided) and any(s and _pads(module) for s, module in zip(strided, modules, strict=True))
