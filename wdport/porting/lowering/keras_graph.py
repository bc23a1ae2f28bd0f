"""A lowered graph, as data: steps with their operands, layers and variables of the port, and rows of its table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.graph import Node

Order = tuple[int, ...]
"""The axes of PyTorch's tensor in the order of the Keras tensor."""


@dataclass(frozen=True)
class KerasValue:
    """The source of a Keras tensor: the ``name`` of an input or a variable, constant ``step``, or a step's output."""

    kind: Literal["step", "input", "variable", "constant"]
    name: str = ""
    step: int = -1
    index: int | None = None


@dataclass(frozen=True)
class KerasSize:
    """An integer computed from sizes: the size of an axis of a tensor, or an operator of two operands."""

    operator: str
    operands: tuple[KerasSize | int, ...] = ()
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
class KerasStep:
    """One call.

    Attributes:
        serial: its position among all steps.
        node: the serial of the node of PyTorch that it belongs to.
        call: a function of ``keras.ops`` or ``keras.activations`` such as ``ops.mean``, an operator such as ``+``,
            ``index`` for an index, or ``layer`` for a call of the layer ``layer``.
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
    """A node without a counterpart, and why."""

    node: Node
    what: str


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
        hole: the first node without a counterpart.
        rows: rows of the table, as fields.
    """

    steps: list[KerasStep] = field(default_factory=list)
    layers: dict[str, KerasLayer] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, Alias] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    constants: list[Any] = field(default_factory=list)
    inputs: dict[str, Placed] = field(default_factory=dict)
    outputs: list[Placed] = field(default_factory=list)
    hole: Hole | None = None
    rows: list[Mapping[str, str]] = field(default_factory=list)


def identity(rank: int) -> Order:
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """The order of an image of PyTorch, ``b c h w``, with channels last."""
    return (0, *range(2, rank), 1) if rank > 2 else identity(rank)


def inverse(order: Sequence[int]) -> Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def word_of(call: KerasCall) -> str:
    """A name for an attribute that holds a layer: its class in lower case with underscores."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", call.name.rpartition(".")[2]).lower()
