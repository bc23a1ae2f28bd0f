"""Track the axes of every tensor through a traced run, and the axes of the outputs of functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wdport.mapping.kinds import FUNCTIONS, MODULES
from wdport.mapping.kinds.kind import Atom, Axes, Group, OutputAxes
from wdport.porting.functions import bound, canonical, dims, order_of
from wdport.porting.graph import Graph, Node, Slice, TensorSource, TracedTensor, numbers, traced_tensors
from wdport.porting.outline.axes import RANKS, AxisMove, atom_size, image, last, named, permute, regroup, unique
from wdport.recording.inputs import Input


def product(a: Axes, b: Axes, output: TracedTensor) -> Axes | None:
    """Axes of a matrix product: rows of the first factor and columns of the second."""
    if len(a) < 2 or len(b) < 2 or len(output.shape) != max(len(a), len(b)):
        return None
    batch = a[:-2] if len(a) >= len(b) else b[:-2]
    return unique(plain((*batch, a[-2], b[-1])))


def summed(equation: str, operands: Sequence[Axes]) -> Axes | None:
    left, arrow, right = equation.replace(" ", "").partition("->")
    # Without an arrow the order of the outputs is alphabetical; neither form is followed.
    if not arrow or "..." in equation:
        return None
    groups: dict[str, Group] = {}
    for letters, axes in zip(left.split(","), operands, strict=False):
        groups |= {letter: group for letter, group in zip(letters, axes, strict=False) if group}
    return unique(plain(tuple(groups.get(letter, ()) for letter in right)))


def plain(axes: Axes) -> Axes:
    """The axes without image channels, which the output of a product is not known to have."""
    return tuple(tuple(replace(atom, channel=False) if atom.channel else atom for atom in group) for group in axes)


def stacked(axes: Axes, output: TracedTensor, dim: int) -> Axes:
    axis = dim % len(output.shape)
    return unique([*axes[:axis], (Atom("n", output.shape[axis]),), *axes[axis:]])


def without(axes: Axes, gone: Sequence[int]) -> Axes:
    return tuple(group for axis, group in enumerate(axes) if axis not in gone)


def indexed(axes: Axes, index: object) -> Axes | None:
    """Axes after indexing: slices keep an axis, numbers remove one, ``None`` adds one."""
    items = list(index) if isinstance(index, tuple) else [index]
    # The axes of advanced indexing depend on the shapes and places of the index arrays.
    if any(isinstance(item, (TracedTensor, tuple)) for item in items):
        return None
    used = sum(item is not None and item is not ... for item in items)
    if ... not in items:
        items.append(...)
    groups: list[Group] = []
    rest = list(axes)
    for item in items:
        if item is ...:
            count = len(axes) - used
            groups += rest[:count]
            rest = rest[count:]
        elif item is None:
            groups.append(())
        elif isinstance(item, Slice):
            groups.append(rest.pop(0))
        elif rest and numbers(item):
            rest.pop(0)
        else:
            return None
    return tuple(groups)


def broadcast(operands: Sequence[Axes], output: TracedTensor) -> Axes | None:
    """Axes after broadcasting, aligned at the last axis: each is named by the first tensor with an axis of its size."""
    groups: list[Group] = []
    for back, size in enumerate(reversed(output.shape), 1):
        group = next((axes[-back] for axes in operands if len(axes) >= back and atom_size(axes[-back]) == size), None)
        if group is None:
            group = (Atom("b" if str(size) == "b" else "n", size),)
        groups.append(group)
    return unique(groups[::-1])


RESHAPES = frozenset((
    "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel", "view_as_real",
))  # fmt: skip


class AxisFlow:
    """The axes of every tensor of a run, by its source, and the moves of those that rearrange one.

    Axes that the user did not name get their names from the layers that read them, which takes two passes.
    """

    def __init__(self, graph: Graph, inputs: Sequence[Input]) -> None:
        self._learned: dict[tuple[str, int], tuple[str, int, bool]] = {}
        self._declared = {model_input.name: model_input for model_input in inputs}
        # The second pass begins with the names that layers gave to the inputs in the first.
        for _ in range(2):
            self.axes: dict[TensorSource, Axes] = {}
            self.moves: dict[int, AxisMove] = {}
            self._loose: dict[Atom, tuple[str, int]] = {}
            for node in graph.nodes:
                self._follow(node)

    def of(self, tensor: TracedTensor) -> Axes:
        axes = self.axes.get(tensor.source)
        if axes is None or [atom_size(group) for group in axes] != list(tensor.shape):
            axes = self._input(tensor) if tensor.source.kind == "input" else named(tensor.shape)
            self.axes[tensor.source] = axes
        return axes

    def _input(self, tensor: TracedTensor) -> Axes:
        """Axes of an input of the model: named by the user, by the layers that read them, or by their number."""
        declared = self._declared.get(tensor.source.name)
        labels = declared.axes if declared and len(declared.axes) == len(tensor.shape) else ("_",) * len(tensor.shape)
        default = tuple(g[0].name if g else "c" for g in named(tensor.shape))
        plain = RANKS.get(len(tensor.shape), labels) if declared else default
        groups: list[Group] = []
        for index, (label, size) in enumerate(zip(labels, tensor.shape, strict=True)):
            name, space, channel = self._learned.get((tensor.source.name, index), (plain[index], -1, False))
            atom = Atom(name if label.startswith("_") else label, size, space, channel)
            self._loose[atom] = (tensor.source.name, index)
            groups.append((atom,) if size != 1 or channel or space >= 0 else ())
        return unique(groups)

    def _follow(self, node: Node) -> None:
        if node.module is not None and not node.is_layer:
            return
        if node.module is not None:
            self._layer(node, node.module.torch)
            return
        name, inputs = canonical(node.name), node.inputs
        if not inputs or not node.outputs:
            return
        move = self.move(node, name)
        if move is not None:
            self.moves[node.serial] = move
            self.axes[node.outputs[0].source] = move.after
            return
        for index, output in enumerate(node.outputs):
            self.axes[output.source] = self._fitting(self._function(node, name, output, index), output.shape)

    def _fitting(self, axes: Axes | None, shape: Sequence[int]) -> Axes:
        """The axes with the sizes of the tensor; an atom of another size becomes a new atom of the same name."""
        if axes is None or len(axes) != len(shape):
            return named(shape)
        groups: list[Group] = []
        for group, size in zip(axes, shape, strict=True):
            if atom_size(group) == size:
                groups.append(group)
            elif len(group) == 1:
                atom = replace(group[0], size=size)
                if group[0] in self._loose:
                    self._loose[atom] = self._loose[group[0]]
                groups.append((atom,) if size != 1 or atom.channel or atom.space >= 0 else ())
            else:
                groups.append((Atom("b" if str(size) == "b" else "n", size),) if size != 1 else ())
        return unique(groups)

    def move(self, node: Node, name: str) -> AxisMove | None:
        """The rearrangement that a function performs."""
        tensor = node.inputs[0]
        if len(node.outputs) != 1:
            return None
        shape = node.outputs[0].shape
        if name in RESHAPES or (name == "getitem" and _only_new_axes(node)):
            return regroup(self.of(tensor), shape)
        order = order_of(node, len(tensor.shape))
        return permute(self.of(tensor), order) if order is not None else None

    def _layer(self, node: Node, name: str) -> None:
        tensor = next(traced_tensors(list(node.kwargs.values())), None)
        if tensor is None or not node.outputs:
            return
        axes, rule = self.of(tensor), _rule(name)
        if rule == "image" and len(tensor.shape) > 2:
            axes = self._as_image(tensor, axes)
        for index, output in enumerate(node.outputs):
            self.axes[output.source] = self._fitting(self._output_axes(node, rule, axes, output, index), output.shape)

    def _output_axes(self, node: Node, rule: OutputAxes, axes: Axes, output: TracedTensor, index: int) -> Axes | None:
        if rule == "image" and len(output.shape) > 2:
            return image(output.shape, axes)
        if rule == "features":
            return _features(axes, output) if index == 0 else None
        if rule == "flat":
            move = regroup(axes, output.shape)
            if move is not None:
                self.moves[node.serial] = move
            return move.after if move else None
        return axes if len(axes) == len(output.shape) else None

    def _as_image(self, tensor: TracedTensor, axes: Axes) -> Axes:
        image_axes = image(tensor.shape, axes)
        for old, new in zip(axes, image_axes, strict=True):
            if len(old) == 1 and len(new) == 1 and old[0] in self._loose:
                self._learned.setdefault(self._loose[old[0]], (new[0].name, new[0].space, new[0].channel))
        if not any(atom.channel for group in axes for atom in group):
            self.axes[tensor.source] = image_axes
        return image_axes

    def _function(self, node: Node, name: str, output: TracedTensor, index: int) -> Axes | None:
        inputs, arguments = node.inputs, bound(node)
        axes, rank = self.of(inputs[0]), len(inputs[0].shape)
        rule = _rule(FUNCTIONS[name].module) if name in FUNCTIONS else ""
        if rule == "image" and rank > 2:
            return image(output.shape, self._as_image(inputs[0], axes))
        if rule == "features":
            return _features(axes, output)
        if name == "matmul":
            return product(axes, self.of(inputs[1]), output) if len(inputs) > 1 else None
        if name == "einsum":
            return summed(str(arguments["equation"]), [self.of(tensor) for tensor in inputs])
        # Rows of the query, features of the value.
        if name == "scaled_dot_product_attention":
            return plain((*axes[:-1], self.of(inputs[2])[-1]))
        if name in ("cat", "split", "chunk", "tensor_split", "narrow", "index_select", "pad"):
            return axes
        if name in ("stack", "unbind", "select"):
            dim = int(arguments.get("dim", 0))
            return stacked(axes, output, dim) if name == "stack" else without(axes, [dim % rank])
        if name == "getitem":
            return indexed(axes, arguments.get("index"))
        if output.shape == inputs[0].shape:
            return axes
        if "dim" in arguments and len(output.shape) < rank:
            return without(axes, dims(arguments["dim"], rank) or [])
        if name == "expand":
            return broadcast([axes], output)
        if len(output.shape) == rank and "keepdim" in arguments:
            return axes
        return broadcast([self.of(tensor) for tensor in inputs], output)


def _rule(name: str) -> OutputAxes:
    """How the output axes of a class of ``torch.nn`` follow from its input axes."""
    return MODULES[name].output if name in MODULES else ""


def _features(axes: Axes, output: TracedTensor) -> Axes:
    """The axes with new features at the end, in place of the last one or after it."""
    return last(axes if len(axes) == len(output.shape) else (*axes, ()), output.shape[-1])


def _only_new_axes(node: Node) -> bool:
    index = node.args[1] if len(node.args) > 1 else None
    items = index if isinstance(index, tuple) else (index,)
    selects_all = all(item is None or item is ... or item == Slice(None, None, None) for item in items)
    return selects_all and any(item is None for item in items)
