"""Functions of torch: their canonical names, their arguments by name, and those that return their input unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from wdport.mapping.kinds import FUNCTIONS
from wdport.porting.graph import Node, Slice, TracedTensor, expressions_in, numbers, traced_tensors

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
    "rot90": ("input", "k", "dims"),
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


def is_custom(name: str) -> bool:
    """Whether a function is an operator of ``torch.ops``, whose name says nothing of what it computes."""
    return name.startswith("torch.ops.")


def bound(node: Node) -> dict[str, Any]:
    """The arguments of a function by name; those beyond the known parameters are under ``more``."""
    name = canonical(node.name)
    order = PARAMETERS.get(name, ("input",))
    if name == "einsum":
        operands = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
        return {"equation": node.args[0], "operands": operands}
    arguments: dict[str, Any] = dict(zip(order, node.args, strict=False))
    if len(node.args) > len(order):
        arguments["more"] = node.args[len(order) :]
    return {**arguments, **{RENAMED.get(key, key): value for key, value in node.kwargs.items()}}


def dims(value: object, rank: int) -> list[int] | None:
    """Indices of axes, counted from the front; ``None`` if none are given."""
    indices = numbers(value)
    return [index % rank if rank else index for index in indices] if indices else None


def first(node: Node) -> TracedTensor | None:
    return next(traced_tensors([*node.args, *node.kwargs.values()]), None)


def order_of(node: Node, rank: int) -> Sequence[int] | None:
    """The order of the axes after a transpose; ``None`` for another function."""
    name, arguments = canonical(node.name), bound(node)
    if name == "permute":
        return dims([*node.args[1:], *node.kwargs.values()], rank)
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


def _is_known(short: str, output: TracedTensor, arguments: object) -> bool:
    """Whether the sizes of a reshape show that it does nothing: numbers, or sizes that are all different."""
    sizes = [int(size) for size in output.shape if size != 1]
    return len(set(sizes)) == len(sizes) or not (short.endswith("_as") or any(True for _ in expressions_in(arguments)))


RESHAPES = frozenset({"view", "reshape", "view_as", "reshape_as"})
"""Functions that do nothing if their sizes are those of the input, which equal sizes do not show."""

SIXTEEN = frozenset({"float16", "bfloat16"})


def is_identity(short: str, inputs: Sequence[TracedTensor], output: TracedTensor, arguments: object) -> bool:
    """Whether a function returns its input unchanged, such as a cast to a wider dtype or a full slice."""
    if not inputs or inputs[0].shape != output.shape or inputs[0].kind != output.kind:
        return False
    # What is computed with values of 16 bits is rounded to 16 bits, so that a wider dtype matters.
    if inputs[0].dtype != output.dtype and {inputs[0].dtype, output.dtype} & SIXTEEN:
        return False
    if short in _IDENTITIES:
        return True
    if short in _NEUTRAL and isinstance(arguments, tuple) and len(arguments[0]) == 2 and not arguments[1]:
        other = arguments[0][1]
        return isinstance(other, (int, float)) and not isinstance(other, bool) and other == _NEUTRAL[short]
    if short == "pad" and isinstance(arguments, tuple):
        return not any(numbers([arguments[0][1:2], arguments[1].get("pad", ())]))
    if short in RESHAPES and not _is_known(short, output, arguments):
        return False
    # The shape is unchanged, as tested above, so these do nothing.
    if short in ("view", "reshape", "expand", "expand_as", "view_as", "flatten", "broadcast_to", "squeeze"):
        return bool(output.shape)
    if short == "__getitem__":
        index = arguments[0][1] if isinstance(arguments, tuple) else None
        items = index if isinstance(index, tuple) else (index,)
        return all(item is ... or (isinstance(item, Slice) and item.step in (None, 1)) for item in items)
    return False
