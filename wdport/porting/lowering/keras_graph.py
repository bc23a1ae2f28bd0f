"""A lowered graph, as data: steps with their operands, layers and variables of the port, and rows of its table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any, Literal

import numpy as np

from wdport.mapping.kinds.kind import KerasCall
from wdport.models.interface import Array
from wdport.porting.graph import Graph, Guard, Node, Slice

Order = tuple[int, ...]
"""The axes of PyTorch's tensor in the order of the Keras tensor."""


MOST_NUMBERS = 16
"""Numbers of a constant that are written out."""


@dataclass(frozen=True)
class KerasValue:
    """The source of a Keras tensor: the ``name`` of an input or a variable, constant ``step``, or a step's output."""

    kind: Literal["step", "input", "variable", "constant"]
    name: str = ""
    step: int = -1
    index: int | None = None


@dataclass(frozen=True)
class KerasSize:
    """A number computed from sizes: the size of an axis of a tensor, or an operator of two operands."""

    operator: str
    operands: tuple[KerasSize | float, ...] = ()
    tensor: KerasValue | None = None
    axis: int = 0


@dataclass(frozen=True)
class Indices:
    """An index of a tensor: slices, numbers, ``None``, ``...`` and tensors, one for each axis."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class FloatDtype:
    """The dtype of floating-point values in the port's own precision."""


@dataclass(frozen=True)
class FloatLimit:
    """A limit of floating-point numbers in the port's own precision, as ``torch.finfo`` has it: ``min``, ``max``,
    ``tiny`` or ``eps``."""

    name: str


def nested(value: Any, sizes: bool = True) -> Iterator[Any]:
    """An argument and everything that it is made of; without ``sizes``, no tensors whose sizes are read."""
    yield value
    inner: Sequence[Any] = ()
    if isinstance(value, KerasSize):
        inner = (value.tensor, *value.operands) if sizes else ()
    elif isinstance(value, Indices):
        inner = value.items
    elif isinstance(value, Slice):
        inner = (value.start, value.stop, value.step)
    elif isinstance(value, Mapping):
        inner = tuple(value.values())
    elif isinstance(value, (tuple, list)):
        inner = value
    for item in inner:
        yield from nested(item, sizes)


_FINFO = np.finfo(np.float64)
_LIMITS = {float(getattr(_FINFO, name)): FloatLimit(name) for name in ("min", "max", "tiny", "eps")}


def with_limits(value: Any) -> Any:
    """Nested arguments in which the limits of float64, the precision of PyTorch's run, are those of the port."""
    if isinstance(value, float):
        return _LIMITS.get(value, value)
    return tuple(map(with_limits, value)) if type(value) is tuple else value


def keras_dtype(dtype: str) -> Any:
    """A dtype of PyTorch's run in Keras: floating-point values have the port's precision."""
    if dtype in ("float64", "float32"):
        return FloatDtype()
    return {"int64": "int32"}.get(dtype, dtype)


CHECK = "helpers.check_sizes"
"""The call of a step that has no result."""


@dataclass(frozen=True)
class KerasStep:
    """One call.

    Attributes:
        serial: its position among all steps.
        node: the serial of the node of PyTorch that it belongs to.
        call: a function of ``keras.ops`` or ``keras.activations`` such as ``ops.mean``, an operator such as ``+``,
            ``index`` for an index, ``layer`` for a call of the layer ``layer``, or ``hole``.
        args: its positional arguments: :class:`KerasValue`, :class:`KerasSize`, numbers, texts, and tuples of these.
        kwargs: its named arguments.
        layer: the name of the layer.
    """

    serial: int
    node: int
    call: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    layer: str = ""

    @property
    def arguments(self) -> Iterator[Any]:
        """All that its arguments are made of."""
        return nested((self.args, self.kwargs))


@dataclass(frozen=True)
class KerasLayer:
    """A layer of the port: its constructor, the module of PyTorch whose weights it has, and the row's kind, if any."""

    name: str
    call: KerasCall
    torch: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Alias:
    """A variable of a layer that is read directly: the tensor's path in the PyTorch model, the layer's path there, and
    the variable's name in the layer."""

    path: str
    torch: str
    variable: str


@dataclass(frozen=True)
class Hole:
    """A node without a counterpart.

    Attributes:
        node: the node.
        what: why it has none.
        method: a name for the method that stands for it; "" if nothing after it can be known.
        parameters: the names of the method's parameters.
        text: the call in PyTorch, with these names.
        shapes: those of the operands and outputs in the traced run.
        constant: the constant that the method stands for, instead of a call.
        example: Python expressions of operands as in the traced run, by name.
    """

    node: Node
    what: str
    method: str = ""
    parameters: tuple[str, ...] = ()
    text: str = ""
    shapes: str = ""
    constant: int | None = None
    example: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> object:
        """What is equal where one method will do."""
        return self.text, self.parameters, self.what


@dataclass(frozen=True)
class Placed:
    """A tensor of PyTorch's run in the port: its value, and the order of its axes there."""

    value: KerasValue
    order: Order
    shape: tuple[int, ...]
    dtype: str

    @property
    def plain(self) -> bool:
        """Whether the axes are in PyTorch's order."""
        return self.order == tuple(range(len(self.order)))


@dataclass
class KerasGraph:
    """A lowered graph.

    Attributes:
        steps: the calls, in order.
        layers: the layers by name.
        variables: names of the parameters and buffers that are read directly, by path in the PyTorch model.
        aliases: variables of layers that are read directly, by name.
        computed: the paths of the buffers that the port computes, or has as constants.
        constants: arrays.
        inputs: the inputs, as they are placed.
        outputs: the outputs, as they are placed.
        checked: the comparisons of sizes that the port checks.
        holes: the nodes without a counterpart, by the step that stands for each.
        refused: the node after which nothing is known; the graph ends there.
        rows: rows of the table, as fields.
    """

    steps: list[KerasStep] = field(default_factory=list)
    layers: dict[str, KerasLayer] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, Alias] = field(default_factory=dict)
    computed: dict[str, None] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)
    inputs: dict[str, Placed] = field(default_factory=dict)
    outputs: list[Placed] = field(default_factory=list)
    checked: list[Guard] = field(default_factory=list)
    holes: dict[int, Hole] = field(default_factory=dict)
    refused: Hole | None = None
    rows: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def hole(self) -> Hole | None:
        """The first node without a counterpart."""
        return next(iter(self.holes.values()), self.refused)


UNREAD = "inference does not read it"


@dataclass(frozen=True)
class Start:
    """The values of a buffer in a new PyTorch model, and how its constructor computes them, if that is short."""

    values: Array
    formula: KerasGraph | None = None

    @property
    def constant(self) -> Any:
        """The number that every element is, or all of them if they are few; ``None`` if they are many."""
        if self.values.size and (self.values == self.values.flat[0]).all():
            return float(self.values.flat[0])
        return self.values.tolist() if self.values.size <= MOST_NUMBERS else None

    @property
    def is_written(self) -> bool:
        return self.formula is not None or self.constant is not None


def rows_besides(lowered: KerasGraph, torch: Graph) -> Iterator[Mapping[str, str]]:
    """The rows of the tensors that no step reads: those that are another one, and those that are dropped."""
    covered = {row["torch"] for row in lowered.rows if "kind" not in row}
    inside = tuple(f"{row['torch']}." if row["torch"] else "" for row in lowered.rows if "kind" in row)
    used = {name for name in torch.tensors if name in covered or name.startswith(inside)}
    firsts = {torch.tensors[name].same_as or name: name for name in sorted(used, reverse=True)}
    for name, held in torch.tensors.items():
        if name in used:
            continue
        owner, first = torch.modules[name.rpartition(".")[0]], firsts.get(held.same_as or name)
        # Counts of batches have no variable.
        if first is not None and "int" not in held.dtype:
            yield {"torch": name, "same_as": first}
        elif held.kind == "parameter" or name.rpartition(".")[2] in owner.buffers:
            yield {"torch": name, "drop": UNREAD}


def identity(rank: int) -> Order:
    return tuple(range(rank))


def axis_letters(rank: int) -> str:
    """Names for the axes of a tensor of PyTorch."""
    return {1: "b", 2: "bc", 3: "bct", 4: "bchw", 5: "bcdhw"}.get(rank, ascii_lowercase[:rank])


def axes_text(axes: Sequence[str], order: Sequence[int], names: Sequence[str] = "") -> str:
    """Axes in PyTorch and, if their order is another one there, their ``names`` in the port, as a table states them."""
    plain = list(order) == sorted(order)
    return " ".join(axes) + ("" if plain else f" -> {' '.join((names or axes)[axis] for axis in order)}")


def weight_in_keras(kind: str, name: str, rank: int) -> tuple[str, Order]:
    """The variable of a layer for a weight of a class of torch, and the order of its axes; "" if it is not known."""
    variables = {"Linear": "kernel", "Embedding": "embeddings", **{f"Conv{axes}d": "kernel" for axes in (1, 2, 3)}}
    if kind not in variables or name != "weight":
        return "bias" if kind in variables and name == "bias" else "", identity(rank)
    order = (1, 0) if kind == "Linear" else (*range(2, rank), 1, 0) if kind.startswith("Conv") else identity(rank)
    return variables[kind], order


def channels_last(rank: int) -> Order:
    """The order of an image of PyTorch, ``b c h w``, with channels last."""
    return (0, *range(2, rank), 1) if rank > 2 else identity(rank)


def inverse(order: Sequence[int]) -> Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def unused(name: str, used: Collection[str]) -> str:
    """The name, or the name with the first number from 2 on that is not used."""
    candidate, count = name, 1
    while candidate in used:
        count += 1
        candidate = f"{name}{'_' if name[-1].isdigit() else ''}{count}"
    return candidate


def word_of(call: KerasCall) -> str:
    """A name for an attribute that holds a layer: its class in lower case with underscores."""
    return snake(call.name)


def snake(name: str) -> str:
    """The last part of a class's name in lower case with underscores."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.rpartition(".")[2]).lower()
