"""Lower functions that make tensors of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wdport.porting.functions import canonical
from wdport.porting.graph import Node, TracedTensor
from wdport.porting.lowering.arithmetic import elementwise
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import (
    KerasValue,
    Placed,
    keras_dtype,
)
from wdport.porting.lowering.needs import sizes_in
from wdport.porting.lowering.rules import NotLoweredError, lowers


@lowers("arange")
def _arange(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    listed = [lowering.size(value) for value in node.args]
    named = {key: lowering.size(node.kwargs[key]) for key in ("start", "end", "step") if key in node.kwargs}
    names = ("end",) if len(listed) == 1 else ("start", "end", "step")
    named |= dict(zip(names, listed, strict=False))
    start, end, step = named.get("start", 0), named["end"], named.get("step", 1)
    args = (end,) if start == 0 and step == 1 else (start, end) if step == 1 else (start, end, step)
    return lowering.placed(
        lowering.emit("ops.arange", *args, dtype=keras_dtype(node.outputs[0].dtype)), node.outputs[0]
    )


_FILLED: Mapping[str, float] = {"zeros": 0.0, "new_zeros": 0.0, "ones": 1.0, "new_ones": 1.0, "empty": 0.0}


@lowers(*_FILLED, "full", "new_full", "full_like", "new_empty", "empty_like")
def _filling(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    output, name = node.outputs[0], node.name.rpartition(".")[2]
    listed: list[Any] = list(node.args[1:] if name.startswith("new_") or name.endswith("_like") else node.args)
    dtype = keras_dtype(output.dtype)
    if name == "full_like":
        value = listed[0] if listed else node.kwargs["fill_value"]
        return elementwise(lowering, node, "ops.full_like", node.args[0], value, dtype=dtype)
    if name in ("new_empty", "empty_like"):
        raise NotLoweredError("a tensor without values")
    fill: Any = node.kwargs.get("fill_value")
    if "full" in name and fill is None:
        fill = listed.pop()
    shape = node.kwargs.get("size", listed[0] if len(listed) == 1 and isinstance(listed[0], tuple) else tuple(listed))
    shape = lowering.size(shape if isinstance(shape, tuple) else (shape,))
    if fill is None:
        return lowering.placed(lowering.emit("ops.ones" if _FILLED[name] else "ops.zeros", shape, dtype=dtype), output)
    fill = lowering.plain(fill) if isinstance(fill, TracedTensor) else fill
    return lowering.placed(lowering.emit("ops.full", shape, fill, dtype=dtype), output)


@lowers("fill", "zero")
def _overwritten(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    value = (*node.args[1:], *node.kwargs.values(), 0)[0]
    if isinstance(value, (int, float)) and value == 0:
        return elementwise(lowering, node, "ops.zeros_like", node.args[0])
    return elementwise(lowering, node, "ops.full_like", node.args[0], value)


@lowers("tensor", "as_tensor", "scalar_tensor")
def _tensor(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """A tensor of numbers, some of which are sizes."""
    (data,) = node.args[:1] or (node.kwargs.get("data"),)
    if isinstance(data, TracedTensor):
        return lowering.place(data)
    if not any(True for _ in sizes_in((data,))):
        raise NotLoweredError("a tensor of numbers")
    value = lowering.emit("ops.convert_to_tensor", lowering.size(data), dtype=keras_dtype(node.outputs[0].dtype))
    return lowering.placed(value, node.outputs[0])


@lowers("eye")
def _eye(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    sizes = [lowering.size(value) for value in node.args]
    return lowering.placed(lowering.emit("ops.eye", *sizes, dtype=keras_dtype(node.outputs[0].dtype)), node.outputs[0])


@lowers("linspace")
def _linspace(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    names = ("start", "end", "steps")
    named = {key: node.kwargs[key] for key in names if key in node.kwargs} | dict(zip(names, node.args, strict=False))
    start, end, steps = (lowering.size(named[name]) for name in names)
    value = lowering.emit("ops.linspace", start, end, steps, dtype=keras_dtype(node.outputs[0].dtype))
    return lowering.placed(value, node.outputs[0])


@lowers("meshgrid")
def _meshgrid(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> list[Placed]:
    listed = node.args[0] if len(node.args) == 1 and isinstance(node.args[0], tuple) else node.args
    tensors = [lowering.plain(tensor) for tensor in listed]  # type: ignore[arg-type]
    indexing = node.kwargs.get("indexing") or "ij"
    value = lowering.emit("ops.meshgrid", *tensors, indexing=indexing)
    return [lowering.placed(KerasValue("step", step=value.step, index=index), output)
            for index, output in enumerate(node.outputs)]  # fmt: skip


@lowers("one_hot")
def _one_hot(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    classes = arguments.get("num_classes", next(iter(arguments.get("more", ())), -1))
    if classes == -1:
        raise NotLoweredError("one_hot of as many classes as there are values")
    value = lowering.emit("ops.one_hot", lowering.plain(arguments["input"]), lowering.size(classes), dtype="int32")
    return lowering.placed(value, node.outputs[0])


@lowers("tril", "triu")
def _band(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor = arguments["input"]
    diagonal = next(iter(arguments.get("more", ())), arguments.get("diagonal", 0))
    shifted = {} if isinstance(diagonal, int) and diagonal == 0 else {"k": lowering.size(diagonal)}
    value = lowering.emit(f"ops.{canonical(node.name)}", lowering.plain(tensor), **shifted)
    return lowering.placed(value, node.outputs[0])
