"""Lower functions that compute value by value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wdport.porting.functions import canonical
from wdport.porting.graph import Node, TracedTensor
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import FloatDtype, KerasSize, KerasValue, Order, Placed, identity, keras_dtype
from wdport.porting.lowering.rules import NotLoweredError, lowers, named_arguments

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "floor_divide": "//", "remainder": "%", "gt": ">",
    "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip


Operand = Any


def common_order(lowering: GraphLowering, operands: Sequence[Operand], rank: int) -> Order:
    """The layout of a result of this rank: that of the first operand of the same rank that is not in PyTorch's."""
    for operand in operands:
        if isinstance(operand, TracedTensor) and len(operand.shape) == rank:
            placed = lowering.place(operand)
            if not placed.plain:
                return placed.order
    return identity(rank)


def aligned(lowering: GraphLowering, operand: Operand, order: Order) -> Any:
    """An operand as it is broadcast over a tensor with this order of axes."""
    if not isinstance(operand, TracedTensor):
        return lowering.size(operand)
    placed, rank = lowering.place(operand), len(order)
    missing = rank - len(operand.shape)
    if missing == 0:
        return lowering.moved(placed, order)
    value = lowering.moved(placed, identity(len(operand.shape)))
    if order == identity(rank) or not operand.shape or math.prod(operand.shape) == 1:
        return value
    # Only the axes that are there: those before them are added by broadcasting, unless they move.
    fixed = operand.source.kind in ("parameter", "buffer", "constant")
    sizes = [1 if int(size) == 1 else int(size) if fixed else KerasSize("size", tensor=value, axis=axis)
             for axis, size in enumerate(operand.shape)]  # fmt: skip
    padded = (*(1 for _ in range(missing)), *sizes)
    target = [padded[axis] for axis in order]
    present = [axis for axis in order if axis >= missing]
    if present == sorted(present):
        while target and target[0] == 1:
            target.pop(0)
        return lowering.emit("ops.reshape", value, tuple(target))
    value = lowering.emit("ops.reshape", value, padded)
    return lowering.emit("ops.transpose", value, order)


def elementwise(lowering: GraphLowering, node: Node, call: str, *operands: Operand, **kwargs: Any) -> Placed:
    """A call on operands that are broadcast."""
    output = node.outputs[0]
    order = common_order(lowering, operands, len(output.shape))
    values = [aligned(lowering, operand, order) for operand in operands]
    if output.kind == "float" and call in _COMPUTING:
        values = [as_float(lowering, value) if isinstance(operand, TracedTensor) and operand.kind in ("int", "bool")
                  else value for value, operand in zip(values, operands, strict=True)]  # fmt: skip
    return lowering.placed(lowering.emit(call, *values, **kwargs), output, order)


_COMPUTING = ("+", "-", "*", "/", "**", "ops.maximum", "ops.minimum", "ops.exp", "ops.log", "ops.sin", "ops.cos",
              "ops.sqrt", "ops.rsqrt", "ops.log1p", "ops.tanh", "ops.sigmoid", "ops.reciprocal")  # fmt: skip
"""Calls whose result in Keras has 32 bits for integers, whatever the port's precision is."""


def as_float(lowering: GraphLowering, value: KerasValue) -> KerasValue:
    """Integers as numbers of the port's precision; a range is made so."""
    step = lowering.result.steps[value.step] if value.kind == "step" and value.index is None else None
    if step is not None and step.call == "ops.arange":
        return lowering.emit(step.call, *step.args, dtype=FloatDtype())
    return lowering.emit("ops.cast", value, FloatDtype())


@lowers(*OPERATORS)
def _operator(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    function = canonical(node.name)
    first, second = arguments["input"], arguments["other"]
    if node.outputs[0].kind == "complex":
        if function != "mul":
            raise NotLoweredError(f"{function} of complex numbers")
        both = [lowering.place(operand) for operand in (first, second)]
        if both[0].order != both[1].order:
            raise NotLoweredError("a product of complex numbers in two layouts")
        value = lowering.emit("helpers.complex_product", *(operand.value for operand in both))
        return lowering.placed(value, node.outputs[0], both[0].order)
    if arguments.get("alpha", 1) != 1:
        return _scaled(lowering, node, first, second, arguments["alpha"])
    if arguments.get("rounding_mode") == "floor":
        function = "floor_divide"
    result = elementwise(lowering, node, OPERATORS[function], first, second)
    if arguments.get("rounding_mode") == "trunc":
        if node.outputs[0].kind != "float":
            raise NotLoweredError("division of whole numbers with rounding_mode trunc")
        result = lowering.placed(lowering.emit("ops.trunc", result.value), node.outputs[0], result.order)
    return result


def _scaled(lowering: GraphLowering, node: Node, first: Operand, second: Operand, factor: Any) -> Placed:
    """A sum with a factor of the second operand."""
    output = node.outputs[0]
    order = common_order(lowering, (first, second), len(output.shape))
    a, b = (aligned(lowering, operand, order) for operand in (first, second))
    b = lowering.emit("*", b, lowering.size(factor))
    return lowering.placed(lowering.emit(OPERATORS[canonical(node.name)], a, b), output, order)


_REVERSED = {"rsub": "-", "rdiv": "/", "rpow": "**", "rfloordiv": "//", "rmod": "%"}


@lowers(*_REVERSED)
def _reversed(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    return elementwise(lowering, node, _REVERSED[canonical(node.name)], arguments["other"], arguments["input"])


_UNARY = {
    name: f"ops.{name}"
    for name in (
        "abs", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor", "isfinite", "isinf", "isnan", "log", "log10",
        "log1p", "log2", "reciprocal", "round", "rsqrt", "sign", "sin", "sinh", "sqrt", "square", "tan", "trunc",
        "zeros_like", "ones_like", "arctan", "logical_not",
    )
} | {"neg": "ops.negative", "atan": "ops.arctan", "asin": "ops.arcsin", "acos": "ops.arccos", "special_erf": "ops.erf",
     "special_expm1": "ops.expm1", "logical_not": "ops.logical_not", "bitwise_not": "ops.logical_not",
     "sigmoid": "ops.sigmoid", "tanh": "ops.tanh", "relu": "ops.relu"}  # fmt: skip


@lowers(*_UNARY)
def _unary(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    name = canonical(node.name)
    if node.inputs[0].kind == "complex":
        return _complex_part(lowering, node, name)
    if set(node.kwargs) - {"input", "dtype", "device", "out", "memory_format"} or len(node.args) > 1:
        raise NotLoweredError(f"{name} with other arguments")
    if name in ("logical_not", "bitwise_not"):
        kind = "logical" if node.outputs[0].kind == "bool" else "bitwise"
        return elementwise(lowering, node, f"ops.{kind}_not", arguments["input"])
    if name.endswith("_like") and "dtype" in node.kwargs:
        return elementwise(lowering, node, _UNARY[name], arguments["input"], dtype=keras_dtype(node.outputs[0].dtype))
    return elementwise(lowering, node, _UNARY[name], arguments["input"])


@lowers("real", "imag")
def _part(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    if node.inputs[0].kind != "complex":
        raise NotLoweredError(f"{canonical(node.name)} of a tensor that is not complex")
    return _complex_part(lowering, node, canonical(node.name))


def _complex_part(lowering: GraphLowering, node: Node, name: str) -> Placed:
    """A real number of each complex one: a part or the absolute value."""
    placed = lowering.place(node.inputs[0])
    if placed.value.kind != "step" or placed.value.index is not None:
        raise NotLoweredError(f"{name} of complex numbers")
    parts = [KerasValue("step", step=placed.value.step, index=index) for index in (0, 1)]
    if name in ("real", "imag"):
        return lowering.placed(parts[name == "imag"], node.outputs[0], placed.order)
    squares = [lowering.emit("ops.square", part) for part in parts]
    value = lowering.emit("ops.sqrt", lowering.emit("+", *squares))
    return lowering.placed(value, node.outputs[0], placed.order)


_BINARY = {"maximum": "ops.maximum", "minimum": "ops.minimum", "logical_and": "ops.logical_and",
           "logical_or": "ops.logical_or", "logical_xor": "ops.logical_xor", "atan2": "ops.arctan2",
           "bitwise_and": "ops.logical_and", "bitwise_or": "ops.logical_or", "bitwise_xor": "ops.logical_xor",
           "lshift": "ops.left_shift", "rshift": "ops.right_shift", "logaddexp": "ops.logaddexp"}  # fmt: skip


@lowers(*_BINARY)
def _binary(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    first, second = arguments["input"], arguments.get("other", arguments.get("more", (None,))[0])
    name = canonical(node.name)
    if name.startswith(("logical", "bitwise")) and node.outputs[0].kind != "bool":
        return elementwise(lowering, node, f"ops.bitwise_{name.rpartition('_')[2]}", first, second)
    return elementwise(lowering, node, _BINARY[name], first, second)


@lowers("clamp", "clamp_min", "clamp_max")
def _clamp(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    more = list(arguments.get("more", ()))
    low, high = arguments.get("min"), arguments.get("max")
    if node.name.rstrip("_").endswith("clamp_min"):
        low = more[0] if more else low
    if node.name.rstrip("_").endswith("clamp_max"):
        high = more[0] if more else high
    placed = arguments["input"]
    if low is not None and high is not None:
        return elementwise(lowering, node, "ops.clip", placed, low, high)
    return elementwise(
        lowering, node, "ops.maximum" if high is None else "ops.minimum", placed, low if high is None else high
    )


@lowers("where")
def _where(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    operands = [arguments[name] for name in ("condition", "input", "other") if name in arguments]
    if node.name == "torch.Tensor.where":
        operands = [node.args[1], node.args[0], node.args[2]]
    return elementwise(lowering, node, "ops.where", *operands)


@lowers("masked_fill")
def _masked_fill(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    return elementwise(lowering, node, "ops.where", arguments["mask"], arguments["value"], arguments["input"])


@lowers("copy")
def _copied(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """A tensor that takes the values of another, in its own shape and dtype."""
    output, tensor = node.outputs[0], node.inputs[1]
    order = identity(len(output.shape))
    value = aligned(lowering, tensor, order)
    if tensor.shape != output.shape:
        places = lowering.place(node.inputs[0])
        shape = tuple(KerasSize("size", tensor=places.value, axis=places.order.index(axis)) for axis in order)
        value = lowering.emit("ops.broadcast_to", value, shape)
    if tensor.dtype != output.dtype:
        value = lowering.emit("ops.cast", value, keras_dtype(output.dtype))
    return lowering.placed(value, output)


@lowers("prelu")
def _prelu(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """A slope below zero for every channel, or one for all."""
    tensor, slope = node.inputs[:2]
    placed = lowering.place(tensor)
    weight = lowering.plain(slope)
    if slope.shape[0] != 1:
        weight = lowering.emit("ops.reshape", weight, tuple(-1 if axis == 1 else 1 for axis in placed.order))
    below = lowering.emit("*", weight, lowering.emit("ops.minimum", placed.value, 0))
    value = lowering.emit("+", lowering.emit("ops.relu", placed.value), below)
    return lowering.placed(value, node.outputs[0], placed.order)


@lowers("lerp")
def _lerp(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    first, last, weight = named_arguments(node, ("input", "end", "weight")).values()
    output = node.outputs[0]
    order = common_order(lowering, (first, last, weight), len(output.shape))
    a, b, share = (aligned(lowering, operand, order) for operand in (first, last, weight))
    value = lowering.emit("+", a, lowering.emit("*", share, lowering.emit("-", b, a)))
    return lowering.placed(value, output, order)


@lowers("addcmul", "addcdiv")
def _addcmul(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    first, second = arguments["more"][:2]
    output = node.outputs[0]
    order = common_order(lowering, (arguments["input"], first, second), len(output.shape))
    operator = "*" if canonical(node.name) == "addcmul" else "/"
    product = lowering.emit(operator, aligned(lowering, first, order), aligned(lowering, second, order))
    if (factor := node.kwargs.get("value", 1)) != 1:
        product = lowering.emit("*", product, factor)
    return lowering.placed(lowering.emit("+", aligned(lowering, arguments["input"], order), product), output, order)


@lowers("to", "float", "double", "long", "int", "bool", "type", "type_as", "half", "bfloat16", "byte")
def _cast(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    placed = lowering.place(tensor)
    if tensor.dtype == output.dtype:
        return placed
    value = placed.value
    if output.dtype == "float16" and tensor.kind == "float":
        # PyTorch rounds float64 values to float32 on the way.
        value = lowering.emit("ops.cast", value, "float32")
    value = lowering.emit("ops.cast", value, keras_dtype(output.dtype))
    return lowering.placed(value, output, placed.order)
