"""Lower functions that compute along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wdport.porting.functions import canonical, dims
from wdport.porting.graph import Node, TracedTensor
from wdport.porting.lowering.arithmetic import elementwise
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import (
    KerasSize,
    KerasValue,
    Placed,
    keras_dtype,
)
from wdport.porting.lowering.rules import NotLoweredError, lowers, named_arguments

_REDUCTIONS = {"sum": "ops.sum", "mean": "ops.mean", "amax": "ops.max", "amin": "ops.min", "prod": "ops.prod",
               "any": "ops.any", "all": "ops.all", "logsumexp": "ops.logsumexp", "var": "ops.var", "std": "ops.std",
               "max": "ops.max", "min": "ops.min", "argmax": "ops.argmax", "argmin": "ops.argmin"}  # fmt: skip


def reduced(lowering: GraphLowering, call: str, placed: Placed, output: TracedTensor, axes: Sequence[int] | None,
            keep: bool, **kwargs: Any) -> Placed:  # fmt: skip
    """A reduction over axes of PyTorch's tensor; all if none are options."""
    if axes is None:
        return lowering.placed(lowering.emit(call, placed.value, **kwargs), output)
    places = tuple(sorted(placed.order.index(axis) for axis in axes))
    rank = len(placed.order)
    last = places == (rank - 1,)
    axis: Any = -1 if last else places[0] if len(places) == 1 else places
    if keep:
        kwargs["keepdims"] = True
    value = lowering.emit(call, placed.value, axis=axis, **kwargs)
    if keep:
        return lowering.placed(value, output, placed.order)
    rest = [index for index in placed.order if index not in axes]
    numbers = sorted(rest)
    return lowering.placed(value, output, tuple(numbers.index(index) for index in rest))


@lowers(*_REDUCTIONS)
def _reduction(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Any:
    name, tensor = canonical(node.name), arguments["input"]
    if isinstance(arguments.get("dim"), TracedTensor):
        # torch.max of two tensors.
        return elementwise(lowering, node, {"max": "ops.maximum", "min": "ops.minimum"}[name], tensor, arguments["dim"])
    axes, keep = dims(arguments.get("dim"), len(tensor.shape)), arguments.get("keepdim") is True
    placed = lowering.place(tensor)
    if name in ("sum", "mean") and tensor.kind in ("bool", "int"):
        dtype = keras_dtype(node.outputs[0].dtype)
        placed = lowering.placed(lowering.emit("ops.cast", placed.value, dtype), tensor.shape, placed.order)
    if name in ("var", "std"):
        return _variance(lowering, node, arguments, placed, axes, keep)
    if name in ("argmax", "argmin"):
        if axes is None:
            raise NotLoweredError(f"{name} over all axes")
        result = reduced(lowering, _REDUCTIONS[name], placed, node.outputs[0], axes, keep)
        return lowering.placed(lowering.emit("ops.cast", result.value, "int32"), node.outputs[0], result.order)
    first = reduced(lowering, _REDUCTIONS[name], placed, node.outputs[0], axes, keep)
    if name in ("max", "min") and len(node.outputs) == 2:
        if 1 not in lowering.read.get(node.serial, set()):
            return [first]
        second = reduced(lowering, f"ops.arg{name}", placed, node.outputs[1], axes, keep)
        return [first, second]
    return first


def _variance(
    lowering: GraphLowering,
    node: Node,
    arguments: dict[str, Any],
    placed: Placed,
    axes: Sequence[int] | None,
    keep: bool,
) -> Placed:  # fmt: skip
    correction = arguments.get("correction", 1)
    correction = {True: 1, False: 0}.get(correction, correction)
    tensor = arguments["input"]
    result = reduced(lowering, "ops.var", placed, node.outputs[0], axes, keep)
    value = result.value
    if correction:
        count: Any = 1
        for axis in axes if axes is not None else range(len(tensor.shape)):
            size = _size(lowering, placed, axis)
            count = size if count == 1 else _times(count, size)
        value = lowering.emit("*", value, lowering.emit("/", count, lowering.emit("-", count, correction)))
    if canonical(node.name) == "std":
        value = lowering.emit("ops.sqrt", value)
    return lowering.placed(value, node.outputs[0], result.order)


def _size(lowering: GraphLowering, placed: Placed, axis: int) -> Any:
    return KerasSize("size", tensor=placed.value, axis=placed.order.index(axis))


def _times(first: Any, second: Any) -> Any:
    return KerasSize("*", (first, second))


@lowers("norm", "vector_norm", "linalg_norm", "linalg_vector_norm")
def _norm(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    is_linear = "linalg" in node.name or "ord" in node.kwargs
    options = named_arguments(node, ("input", "ord" if is_linear else "p", "dim", "keepdim"), dim=None, keepdim=False)
    tensor, p = node.inputs[0], options.get("p", options.get("ord", 2))
    axes, keep = dims(options["dim"], len(tensor.shape)), options["keepdim"] is True
    is_matrix = "vector" not in node.name and options.get("ord") is not None
    if is_matrix and len(axes if axes is not None else tensor.shape) == 2:
        raise NotLoweredError(f"a norm of matrices of order {p}")
    if p not in ("fro", None, 2, 2.0, 1, 1.0):
        raise NotLoweredError(f"a norm of order {p}")
    placed = lowering.place(tensor)
    power = lowering.emit("ops.abs" if p in (1, 1.0) else "ops.square", placed.value)
    result = reduced(lowering, "ops.sum", Placed(power, placed.order, placed.shape, ""), node.outputs[0], axes, keep)
    if p in (1, 1.0):
        return result
    return lowering.placed(lowering.emit("ops.sqrt", result.value), node.outputs[0], result.order)


@lowers("normalize")
def _normalize(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, p, eps = arguments["input"], arguments.get("p", 2.0), arguments.get("eps", 1e-12)
    if p != 2:
        raise NotLoweredError(f"normalisation by a norm of order {p}")
    placed = lowering.place(tensor)
    axis = placed.order.index(int(arguments.get("dim", 1)) % len(tensor.shape))
    square = lowering.emit("ops.square", placed.value)
    norm = lowering.emit("ops.sqrt", lowering.emit("ops.sum", square, axis=axis, keepdims=True))
    value = lowering.emit("/", placed.value, lowering.emit("ops.maximum", norm, eps))
    return lowering.placed(value, node.outputs[0], placed.order)


@lowers("softmax", "log_softmax", "cumsum", "cumprod", "argsort", "sort")
def _along(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    name, tensor = canonical(node.name), arguments["input"]
    if arguments.get("descending") or node.kwargs.get("dtype") not in (None, "torch.float32", "torch.float64"):
        raise NotLoweredError(f"{name} with other arguments")
    placed = lowering.place(tensor)
    axis = placed.order.index(int(arguments.get("dim", -1)) % len(tensor.shape))
    axis = -1 if axis == len(placed.order) - 1 else axis
    value = placed.value
    if tensor.kind == "bool":
        value = lowering.emit("ops.cast", value, "int32")
    if name == "sort":
        if 1 in lowering.read.get(node.serial, set()):
            raise NotLoweredError("sort whose indices are read")
        return [lowering.placed(lowering.emit("ops.sort", value, axis=axis), node.outputs[0], placed.order)]  # type: ignore[return-value]
    return lowering.placed(lowering.emit(f"ops.{name}", value, axis=axis), node.outputs[0], placed.order)


@lowers("topk")
def _topk(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> list[Placed]:
    tensor = arguments["input"]
    k, *rest = arguments.get("more", ()) or (arguments.get("k"),)
    dim = rest[0] if rest else arguments.get("dim", -1)
    if int(dim) % len(tensor.shape) != len(tensor.shape) - 1 or arguments.get("largest", True) is not True:
        raise NotLoweredError("topk along another axis than the last, or of the smallest")
    result = lowering.emit("ops.top_k", lowering.plain(tensor), lowering.size(k))
    return [lowering.placed(KerasValue("step", step=result.step, index=index), output)
            for index, output in enumerate(node.outputs)]  # fmt: skip


@lowers("layer_norm")
def _layer_norm(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """A normalisation over the last axes, whose scale may be computed."""
    options = named_arguments(
        node, ("input", "normalized_shape", "weight", "bias", "eps"), weight=None, bias=None, eps=1e-5
    )
    value, axes = lowering.plain(options["input"]), tuple(range(-len(options["normalized_shape"]), 0))
    mean, variance = (lowering.emit(call, value, axis=axes, keepdims=True) for call in ("ops.mean", "ops.var"))
    scale = lowering.emit("ops.rsqrt", lowering.emit("+", variance, float(options["eps"])))
    value = lowering.emit("*", lowering.emit("-", value, mean), scale)
    for name, call in (("weight", "*"), ("bias", "+")):
        if options[name] is not None:
            value = lowering.emit(call, value, lowering.plain(options[name]))
    return lowering.placed(value, node.outputs[0])


@lowers("batch_norm")
def _batch_norm(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """A normalisation by the statistics of the batch, whose scale may be computed."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    options = named_arguments(node, names, weight=None, bias=None, training=False, eps=1e-5)
    if not options["training"] or options.get("running_mean") is not None:
        raise NotLoweredError("batch_norm with weights that are computed")
    tensor = arguments["input"]
    placed, rank = lowering.place(tensor), len(tensor.shape)
    axes = tuple(sorted(placed.order.index(axis) for axis in range(rank) if axis != 1))
    value = placed.value
    mean, variance = (lowering.emit(call, value, axis=axes, keepdims=True) for call in ("ops.mean", "ops.var"))
    scale = lowering.emit("ops.rsqrt", lowering.emit("+", variance, float(options["eps"])))
    value = lowering.emit("*", lowering.emit("-", value, mean), scale)
    shape = tuple(-1 if axis == 1 else 1 for axis in placed.order)
    for name, call in (("weight", "*"), ("bias", "+")):
        if options[name] is not None:
            factor = lowering.emit("ops.reshape", lowering.plain(options[name]), shape)
            value = lowering.emit(call, value, factor)
    return lowering.placed(value, node.outputs[0], placed.order)


@lowers("pairwise_distance")
def _distance(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    names = ("x1", "x2", "p", "eps", "keepdim")
    options = named_arguments(node, names, p=2.0, eps=1e-6, keepdim=False)
    if options["p"] != 2:
        raise NotLoweredError(f"a distance of order {options['p']}")
    difference = lowering.emit("-", lowering.plain(options["x1"]), lowering.plain(options["x2"]))
    square = lowering.emit("ops.square", lowering.emit("+", difference, options["eps"]))
    more: dict[str, Any] = {"keepdims": True} if options["keepdim"] else {}
    total = lowering.emit("ops.sum", square, axis=-1, **more)
    return lowering.placed(lowering.emit("ops.sqrt", total), node.outputs[0])


@lowers("cosine_similarity")
def _cosine(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    names = ("x1", "x2", "dim", "eps")
    options = named_arguments(node, names, dim=1, eps=1e-8)
    values = [lowering.plain(options[name]) for name in ("x1", "x2")]
    axis = options["dim"]
    norms = [lowering.emit("ops.sqrt", lowering.emit("ops.sum", lowering.emit("ops.square", value), axis=axis))
             for value in values]  # fmt: skip
    product = lowering.emit("ops.sum", lowering.emit("*", *values), axis=axis)
    lengths = [lowering.emit("ops.maximum", norm, options["eps"]) for norm in norms]
    return lowering.placed(lowering.emit("/", product, lowering.emit("*", *lengths)), node.outputs[0])
