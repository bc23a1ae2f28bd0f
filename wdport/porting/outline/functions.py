"""The record of a run of a PyTorch model as data: calls of modules and functions, their tensors, and the canonical
names of functions and of their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import torch

from wdport.mapping.kinds import FUNCTIONS

if TYPE_CHECKING:
    import torch


Depends = Literal["constant", "parameter", "input"]
"""What a value depends on: constants in the code, weights and buffers, or the model's inputs; the last one applies."""


class Size(int):
    """An integer; ``text`` is its representation: ``b`` for the batch size."""

    text: str

    def __new__(cls, value: int, text: str = "") -> Size:
        size = super().__new__(cls, value)
        size.text = text or str(value)
        return size

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


@dataclass(frozen=True)
class TensorSource:
    """The source of a tensor: the ``name`` of an input, a parameter, a buffer or a plain attribute, or output ``index``
    of the event ``event``."""

    kind: Literal["input", "parameter", "buffer", "constant", "event"]
    name: str = ""
    event: int = -1
    index: int = 0


@dataclass(frozen=True)
class TracedTensor:
    """A tensor that was passed to or from a call."""

    source: TensorSource
    shape: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class Slice:
    start: object
    stop: object
    step: object


@dataclass
class Event:
    """One call.

    Attributes:
        serial: its position among all events.
        name: name of the function, such as ``torch.Tensor.view``, or of the call, such as ``conv1#2``.
        args: its positional arguments; tensors are :class:`TracedTensor`.
        kwargs: its named arguments. All tensors of a module are here, by the names of its parameters.
        outputs: its output tensors.
        several: whether they are a list, even a list of one.
        module: the module that was called.
        is_layer: whether the module is one layer, so that nothing inside it is an event.
        parent: the serial of the enclosing module call; -1 for the model's own.
        depends: what its outputs depend on.
        inside: the events inside a module call.
        around: notes on the call that its arguments do not show.
    """

    serial: int
    name: str
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    outputs: tuple[TracedTensor, ...] = ()
    several: bool = False
    module: torch.nn.Module | None = None
    is_layer: bool = True
    parent: int = -1
    depends: Depends = "constant"
    inside: list[Event] = field(default_factory=list)
    around: list[str] = field(default_factory=list)

    @property
    def inputs(self) -> list[TracedTensor]:
        return list(traced_tensors([*self.args, *self.kwargs.values()]))


@dataclass(frozen=True)
class Trace:
    """A run: the event of the model itself, with all others inside it, and every event by its serial."""

    root: Event
    events: Sequence[Event]
    reads: tuple[str, ...]
    """Modules whose Python code reads values that depend on the inputs, such as in a branch."""


def traced_tensors(value: object) -> Iterator[TracedTensor]:
    """The tensors in nested tuples and mappings, in order."""
    if isinstance(value, TracedTensor):
        yield value
    elif isinstance(value, Mapping):
        yield from traced_tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from traced_tensors(item)


_ALIASES: Mapping[str, str] = MappingProxyType({
    "truediv": "div", "divide": "div", "true_divide": "div", "rtruediv": "rdiv", "multiply": "mul", "rmul": "mul",
    "radd": "add", "subtract": "sub", "floordiv": "floor_divide", "mod": "remainder",
    "concat": "cat", "concatenate": "cat", "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim",
    "clip": "clamp", "bmm": "matmul", "mm": "matmul", "absolute": "abs", "negative": "neg", "view": "reshape",
    "view_as": "reshape", "reshape_as": "reshape", "expand_as": "expand", "broadcast_to": "expand",
    "and": "logical_and", "or": "logical_or", "xor": "logical_xor", "invert": "logical_not", "greater": "gt",
    "less": "lt", "t": "T", "adjoint": "mT", "H": "T", "multi_head_attention_forward": "multi_head_attention",
    **{alias: function.name for function in FUNCTIONS.values() for alias in function.aliases},
})  # fmt: skip

OPERATORS = frozenset((
    "add", "sub", "mul", "div", "matmul", "pow", "floor_divide", "remainder", "gt", "lt", "ge", "le", "eq", "ne",
    "logical_and", "logical_or", "logical_xor", "rsub", "rdiv", "rpow", "rmatmul", "rfloordiv", "rmod", "neg",
    "logical_not",
))  # fmt: skip
"""Functions with an operator in Python."""

PARAMETERS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    **{function.name: function.parameters for function in FUNCTIONS.values()},
    **dict.fromkeys(OPERATORS, ("input", "other")),
    **dict.fromkeys(("cumsum", "cumprod", "argsort"), ("input", "dim")),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "prod", "max", "min", "argmax", "argmin", "any", "all",
                     "logsumexp"), ("input", "dim", "keepdim")),
    "var": ("input", "dim", "correction"), "std": ("input", "dim", "correction"),
    "median": ("input", "dim", "keepdim"), "norm": ("input", "p", "dim", "keepdim"),
    "transpose": ("input", "dim0", "dim1"), "movedim": ("input", "source", "destination"),
    "cat": ("tensors", "dim"), "stack": ("tensors", "dim"), "hstack": ("tensors",), "vstack": ("tensors",),
    "chunk": ("input", "chunks", "dim"), "split": ("input", "split_size_or_sections", "dim"),
    "tensor_split": ("input", "indices_or_sections", "dim"), "unbind": ("input", "dim"),
    "getitem": ("input", "index"), "setitem": ("input", "index", "value"), "select": ("input", "dim", "index"),
    "narrow": ("input", "dim", "start", "length"), "index_select": ("input", "dim", "index"),
    "gather": ("input", "dim", "index"), "flip": ("input", "dims"), "roll": ("input", "shifts", "dims"),
    "einsum": ("equation", "operands"), "baddbmm": ("input", "batch1", "batch2"),
    "unflatten": ("input", "dim", "sizes"), "clamp": ("input", "min", "max"), "normalize": ("input", "p", "dim", "eps"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale",
                                     "enable_gqa"),
    "pad": ("input", "pad", "mode", "value"), "masked_fill": ("input", "mask", "value"),
    "where": ("condition", "input", "other"),
    "repeat_interleave": ("input", "repeats", "dim"),
})  # fmt: skip
"""Parameters of functions in order, as far as they are used."""

RENAMED: Mapping[str, str] = MappingProxyType({"axis": "dim", "self": "input", "unbiased": "correction", "x": "input"})
"""Other names of parameters."""


def canonical(name: str) -> str:
    """``add`` for ``torch.Tensor.add_`` and ``torch.Tensor.__radd__``."""
    tail = name.rpartition(".")[2]
    if tail.startswith("__") and tail.endswith("__"):
        tail = tail[2:-2]
    # In-place forms: add_ for add.
    elif tail.endswith("_") and not tail.startswith("_"):
        tail = tail.rstrip("_")
    return _ALIASES.get(tail, tail)


def bound(event: Event) -> dict[str, Any]:
    """The arguments of a function by name; those beyond the known parameters are under ``more``."""
    name = canonical(event.name)
    order = PARAMETERS.get(name, ("input",))
    if name == "einsum":
        operands = event.args[1] if len(event.args) == 2 and isinstance(event.args[1], tuple) else event.args[1:]
        return {"equation": event.args[0], "operands": operands}
    arguments: dict[str, Any] = dict(zip(order, event.args, strict=False))
    if len(event.args) > len(order):
        arguments["more"] = event.args[len(order) :]
    return {**arguments, **{RENAMED.get(key, key): value for key, value in event.kwargs.items()}}


def numbers(value: object) -> list[int]:
    """The integers in nested tuples."""
    # In Python a bool is an integer.
    if isinstance(value, (bool, TracedTensor)):
        return []
    if isinstance(value, int):
        return [value]
    return [n for item in value for n in numbers(item)] if isinstance(value, (list, tuple)) else []


def dims(value: object, rank: int) -> list[int] | None:
    """Indices of axes, counted from the front; ``None`` if none are given."""
    indices = numbers(value)
    return [index % rank if rank else index for index in indices] if indices else None


def first(event: Event) -> TracedTensor | None:
    return next(traced_tensors([*event.args, *event.kwargs.values()]), None)


def order_of(event: Event, rank: int) -> Sequence[int] | None:
    """The order of the axes after a transpose; ``None`` for another function."""
    name, arguments = canonical(event.name), bound(event)
    if name == "permute":
        return dims([*event.args[1:], *event.kwargs.values()], rank)
    if name in ("T", "mT"):
        # mT swaps the last two axes, T reverses all.
        return [*range(rank - 2), rank - 1, rank - 2] if name == "mT" else list(range(rank))[::-1]
    if name == "transpose":
        a, b = (int(arguments[key]) % rank for key in ("dim0", "dim1"))
        order = list(range(rank))
        order[a], order[b] = order[b], order[a]
        return order
    if name == "movedim":
        sources, targets = dims(arguments["source"], rank) or [], dims(arguments["destination"], rank) or []
        rest = [axis for axis in range(rank) if axis not in sources]
        # In the order of the targets, so that an inserted axis does not move one that is in its place already.
        for target, source in sorted(zip(targets, sources, strict=True)):
            rest.insert(target, source)
        return rest
    return None


_IDENTITIES = frozenset((
    "contiguous", "detach", "data", "alias", "requires_grad_", "cpu", "cuda", "pin_memory", "view_as_real_",
    "share_memory_", "to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "bool", "clone",
    "__copy__", "__deepcopy__", "_to_copy", "identity", "real",
))  # fmt: skip
"""Functions that do not change a tensor if its shape and its kind stay the same."""

_NEUTRAL: Mapping[str, float] = {
    **dict.fromkeys(("mul", "__mul__", "__rmul__", "div", "__truediv__", "true_divide", "mul_", "div_"), 1.0),
    **dict.fromkeys(("add", "__add__", "__radd__", "sub", "__sub__", "add_", "sub_"), 0.0),
}
"""The number with which an arithmetic function does not change a tensor."""


def kind_of(tensor: torch.Tensor) -> str:
    """The kind of a tensor's values: float, int, bool or complex."""
    if tensor.dtype.is_complex:
        return "complex"
    return "float" if tensor.dtype.is_floating_point else "bool" if tensor.dtype == torch.bool else "int"


def is_identity(short: str, inputs: Sequence[TracedTensor], output: torch.Tensor, arguments: object) -> bool:
    """Whether a function returns its input unchanged, such as a cast to the same dtype or a full slice."""
    if not inputs or inputs[0].shape != tuple(output.shape) or inputs[0].kind != kind_of(output):
        return False
    if short in _IDENTITIES:
        return True
    if short in _NEUTRAL and isinstance(arguments, tuple) and len(arguments[0]) == 2 and not arguments[1]:
        other = arguments[0][1]
        return isinstance(other, (int, float)) and not isinstance(other, bool) and other == _NEUTRAL[short]
    shape = tuple(output.shape)
    if short == "pad" and isinstance(arguments, tuple):
        return not any(numbers([arguments[0][1:2], arguments[1].get("pad", ())]))
    # The shape is unchanged, as tested above, so these do nothing.
    if short in ("view", "reshape", "expand", "expand_as", "view_as", "flatten", "broadcast_to", "squeeze"):
        return bool(shape)
    if short == "__getitem__":
        index = arguments[0][1] if isinstance(arguments, tuple) else None
        items = index if isinstance(index, tuple) else (index,)
        return all(item is ... or (isinstance(item, Slice) and item.step in (None, 1)) for item in items)
    return False
