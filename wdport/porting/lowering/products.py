"""Lower products of tensors, attention and Fourier transforms."""

from __future__ import annotations

from typing import Any

from wdport.mapping.kinds.kind import layer
from wdport.porting.functions import canonical
from wdport.porting.graph import Node, TracedTensor
from wdport.porting.lowering.attention import attend
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import Placed
from wdport.porting.lowering.layers import without_slope
from wdport.porting.lowering.rules import NotLoweredError, lowers, named_arguments


@lowers("matmul", "rmatmul", "mv", "dot")
def _matmul(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    first, second = node.inputs[:2]
    if canonical(node.name) == "rmatmul":
        first, second = second, first
    return lowering.placed(lowering.emit("@", lowering.plain(first), lowering.plain(second)), node.outputs[0])


@lowers("addmm", "baddbmm", "addbmm")
def _addmm(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensors = [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, TracedTensor)]
    if node.kwargs.get("beta", 1) != 1 or node.kwargs.get("alpha", 1) != 1 or "addbmm" in node.name.split(".")[-1][:6]:
        raise NotLoweredError("a product with factors")
    added, first, second = map(lowering.plain, tensors[:3])
    return lowering.placed(lowering.emit("+", lowering.emit("@", first, second), added), node.outputs[0])


@lowers("outer")
def _outer(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    first, second = (lowering.plain(value) for value in node.inputs[:2])
    return lowering.placed(lowering.emit("ops.outer", first, second), node.outputs[0])


@lowers("einsum")
def _einsum(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    operands = [lowering.plain(tensor) for tensor in arguments["operands"]]
    return lowering.placed(
        lowering.emit("ops.einsum", arguments["equation"].replace(" ", ""), *operands), node.outputs[0]
    )


@lowers("linear")
def _linear(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    weight = lowering.moved(lowering.place(arguments["weight"]), (1, 0))
    value = lowering.emit("@", lowering.plain(arguments["input"]), weight)
    if arguments.get("bias") is not None:
        value = lowering.emit("+", value, lowering.plain(arguments["bias"]))
    return lowering.placed(value, node.outputs[0])


@lowers("bilinear")
def _bilinear(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    first, second, weight, *bias = map(lowering.plain, node.inputs)
    value = lowering.emit("ops.einsum", "...i,oij,...j->...o", first, weight, second)
    return lowering.placed(lowering.emit("+", value, bias[0]) if bias else value, node.outputs[0])


@lowers("embedding")
def _embedding(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    table, ids = lowering.plain(arguments["weight"]), lowering.plain(arguments["input"])
    rows = lowering.placed(lowering.emit("ops.take", table, ids, axis=0), node.outputs[0])
    return without_slope(lowering, rows, ids, arguments.get("padding_idx"))


@lowers("scaled_dot_product_attention")
def _attention(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    values = [lowering.plain(tensor) for tensor in (query, key, value)]
    if arguments.get("dropout_p"):
        raise NotLoweredError("attention that drops scores in inference, too")
    if arguments.get("enable_gqa") and query.shape[-3] != key.shape[-3]:
        groups = int(query.shape[-3]) // int(key.shape[-3])
        values[1:] = [lowering.emit("ops.repeat", tensor, groups, axis=len(query.shape) - 3) for tensor in values[1:]]
    more: dict[str, Any] = {}
    if arguments.get("attn_mask") is not None:
        more["mask"] = lowering.plain(arguments["attn_mask"])
    if arguments.get("is_causal"):
        more["causal"] = True
    if arguments.get("scale") is not None:
        more["scale"] = arguments["scale"]
    weights = lowering.emit("helpers.attention_weights", *values[:2], **more)
    if node.rate:
        drop = layer("Dropout", {"rate": node.rate})
        weights = lowering.layer(drop, weights, torch=lowering.unnamed(drop))
    return lowering.placed(lowering.emit("@", weights, values[2]), node.outputs[0])


@lowers("multi_head_attention")
def _packed_attention(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> list[Placed]:
    names = ("query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k",
             "bias_v", "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias", "training",
             "key_padding_mask", "need_weights", "attn_mask", "use_separate_proj_weight")  # fmt: skip
    options = named_arguments(node, names)
    if options.get("training") and options.get("dropout_p"):
        raise NotLoweredError("attention that drops scores in inference, too")
    extra = ("bias_k", "bias_v", "key_padding_mask", "attn_mask")
    if any(options.get(name) is not None for name in extra) or options.get("add_zero_attn"):
        raise NotLoweredError("multi_head_attention_forward with masks or more keys")
    if options.get("use_separate_proj_weight") or options["in_proj_weight"] is None:
        raise NotLoweredError("multi_head_attention_forward with separate weights")
    packed = [None if options[name] is None else lowering.plain(options[name])
              for name in ("in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias")]  # fmt: skip
    tokens = [lowering.moved(lowering.place(options[name]), (1, 0, 2)) for name in names[:3]]
    output, weights = attend(lowering, tokens, packed, int(options["embed_dim_to_check"]), int(options["num_heads"]))
    if options.get("average_attn_weights") is not False and len(node.outputs) > 1:
        weights = lowering.emit("ops.mean", weights, axis=1)
    values = (output, (1, 0, 2)), (weights, None)
    return [lowering.placed(value, tensor, order)
            for (value, order), tensor in zip(values, node.outputs, strict=False)]  # fmt: skip


@lowers("rfft", "irfft", "conj")
def _fourier(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """Complex numbers are a real and an imaginary part."""
    function, tensor = canonical(node.name), node.inputs[0]
    if function == "conj":
        placed = lowering.place(tensor)
        return lowering.placed(lowering.emit("helpers.conjugate", placed.value), node.outputs[0], placed.order)
    names = ("input", "n", "dim", "norm")
    options: dict[str, Any] = {
        "n": None,
        "dim": -1,
        "norm": None,
        **dict(zip(names, node.args, strict=False)),
        **node.kwargs,
    }
    if options["norm"] not in (None, "backward"):
        raise NotLoweredError(f"{function} with another norm")
    rank = len(tensor.shape)
    dim = int(options["dim"]) % rank
    order = (*(axis for axis in range(rank) if axis != dim), dim)
    placed = lowering.place(tensor)
    if function == "irfft" and placed.order != order:
        raise NotLoweredError("irfft along another axis than rfft")
    length = {} if options["n"] is None else {"fft_length": lowering.size(options["n"])}
    value = lowering.emit(f"ops.{function}", lowering.moved(placed, order), **length)
    return lowering.placed(value, node.outputs[0], order)


@lowers("spmm", "smm", "hspmm")
def _sparse(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    first, second = node.inputs[:2]
    return lowering.placed(lowering.emit("@", lowering.plain(first), lowering.plain(second)), node.outputs[0])
