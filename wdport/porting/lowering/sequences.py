"""Lower layers of sequences: recurrent ones and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wdport.mapping.kinds.kind import KerasCall, TorchCall, layer
from wdport.porting.graph import Node, Slice, TorchModule, TracedTensor, traced_tensors
from wdport.porting.lowering.attention import attend
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import FloatDtype, Indices, KerasLayer, KerasSize, KerasValue, Placed
from wdport.porting.lowering.rules import NotLoweredError, lowers_layers
from wdport.porting.outline.counterparts import LAYERS


@lowers_layers("LSTM", "GRU", "RNN")
def _recurrent(lowering: GraphLowering, node: Node) -> list[Placed]:
    """``LSTM``, ``GRU`` and ``RNN``: a layer of Keras for each layer, and the last states."""
    module = node.module
    assert module is not None
    settings, tensor = module.settings, node.inputs[0]
    used = lowering.read.get(node.serial, {0})
    if len(tensor.shape) != 3:
        raise NotLoweredError("a sequence without a batch axis")
    counterpart = LAYERS[module.torch](module.torch, settings, TorchCall(tensor.shape, None, {}, frozenset({0})))
    if not counterpart.calls:
        raise NotLoweredError("; ".join(counterpart.notes))
    order = (0, 1, 2) if settings.get("batch_first") else (1, 0, 2)
    value = lowering.moved(lowering.place(tensor), order)
    starts = [lowering.plain(start) for start in traced_tensors(node.kwargs.get("hx"))]
    both, several = bool(settings.get("bidirectional")), len(counterpart.calls) > 1
    kind, lstm = counterpart.kind, module.torch == "LSTM"
    states: list[list[KerasValue]] = []
    keep = bool(used - {0}) or bool(starts)
    # Layers of one module are a list in the port.
    paths = [f"{module.path}.{index}".lstrip(".") if several else module.path
             for index in range(len(counterpart.calls))]  # fmt: skip
    first = next((layer.name for layer in lowering.result.layers.values() if layer.torch == paths[0]), "")
    base = first.partition("_")[0] or f"l{len(lowering.result.layers)}"
    for index, call in enumerate(counterpart.calls):
        if keep:
            call = _with_states(call)
        name = f"{base}_{index}"
        lowering.result.layers.setdefault(name, KerasLayer(name, call, paths[index], kind))
        initial = {}
        if starts:
            rows = [2 * index, 2 * index + 1] if both else [index]
            initial["initial_state"] = tuple(_row(lowering, start, row) for row in rows for start in starts)
        rate = float(settings.get("dropout") or 0.0)
        if index and rate:
            # PyTorch drops what a layer passes on to the next one.
            drop = layer("Dropout", {"rate": rate})
            value = lowering.layer(drop, value, torch=f"{module.path}_drop{index}".lstrip("."))
        result = lowering.emit("layer", value, layer=name, **initial)
        value = KerasValue("step", step=result.step, index=0) if keep else result
        count = (2 if lstm else 1) * (2 if both else 1)
        states.append([KerasValue("step", step=result.step, index=1 + state) for state in range(count)] if keep else [])
    if not first:
        keras = f"{base}_<layer>" if several else f"{base}_0"
        lowering.result.rows.append({"torch": module.path, "keras": keras, "kind": kind})
    outputs = [lowering.placed(value, node.outputs[0], order)]
    for which in range(len(node.outputs) - 1):
        if keep:
            step = 2 if lstm else 1
            parts = [state for after in states for state in after[which::step]]
            stacked = (lowering.emit("ops.stack", tuple(parts), axis=0) if len(parts) > 1
                       else lowering.emit("ops.expand_dims", parts[0], 0))  # fmt: skip
            outputs.append(lowering.placed(stacked, node.outputs[1 + which]))
    return outputs


def _row(lowering: GraphLowering, value: KerasValue, row: int) -> KerasValue:
    return lowering.emit("index", value, Indices((row,)))


def _with_states(call: KerasCall) -> KerasCall:
    inner = call.arguments.get("layer")
    if isinstance(inner, KerasCall):
        return KerasCall(call.name, {**call.arguments, "layer": _with_states(inner)}, call.origin)
    return KerasCall(call.name, {**call.arguments, "return_state": True}, call.origin)


@lowers_layers("MultiheadAttention")
def _attention(lowering: GraphLowering, node: Node) -> Any:
    """``MultiheadAttention``."""
    module, arguments = node.module, dict[str, Any](node.kwargs)
    assert module is not None
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    used = lowering.read.get(node.serial, {0})
    masks = {name: arguments[name] for name in ("attn_mask", "key_padding_mask") if arguments.get(name) is not None}
    call = TorchCall(query.shape, None, {}, frozenset({0}))
    counterpart = LAYERS[module.torch](module.torch, module.settings, call)
    if not counterpart.calls or len(query.shape) != 3:
        raise NotLoweredError("; ".join(counterpart.notes) or "attention without a batch axis")
    order = (0, 1, 2) if module.settings.get("batch_first") else (1, 0, 2)
    q, k, v = (lowering.moved(lowering.place(tensor), order) for tensor in (query, key, value))
    if any(_is_added(lowering, mask) for mask in masks.values()):
        output, weights = _with_added_masks(lowering, module, (q, k, v), masks)
        if 1 in used and arguments.get("average_attn_weights") is not False:
            weights = lowering.emit("ops.mean", weights, axis=1)
        values = (output, order), (weights, None)
        return [lowering.placed(value, tensor, order)
                for (value, order), tensor in zip(values, node.outputs, strict=False)]  # fmt: skip
    more: dict[str, Any] = {}
    visible = _visible(lowering, masks, int(module.settings["num_heads"]))
    if visible is not None:
        more["attention_mask"] = visible
    scores = 1 in used
    if scores:
        more["return_attention_scores"] = True
    (main,) = counterpart.calls
    kind = "attention_packed"
    has_layer = any(layer.torch == module.path for layer in lowering.result.layers.values())
    result = lowering.layer(main, q, v, k, torch=module.path, kind=kind, **more)
    if not has_layer:
        name = lowering.result.steps[result.step].layer
        lowering.result.rows.append({"torch": module.path, "keras": name, "kind": kind})
    if not scores:
        return [lowering.placed(result, node.outputs[0], order)]
    first, second = (KerasValue("step", step=result.step, index=index) for index in (0, 1))
    if arguments.get("average_attn_weights") is not False:
        second = lowering.emit("ops.mean", second, axis=1)
    return [lowering.placed(first, node.outputs[0], order), lowering.placed(second, node.outputs[1])]


def _is_added(lowering: GraphLowering, mask: TracedTensor) -> bool:
    """Whether a mask is added to the scores, and has other values than 0 and -inf."""
    return mask.kind != "bool" and not set(np.unique(lowering.values.get(mask.source, 1.0))) <= {0.0, -np.inf}


def _with_added_masks(
    lowering: GraphLowering, module: TorchModule, tokens: Sequence[KerasValue], masks: Mapping[str, TracedTensor]
) -> tuple[KerasValue, KerasValue]:
    """Keras's layer takes boolean masks alone: the attention in steps."""
    prefix, names = (
        f"{module.path}.".lstrip("."),
        ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"),
    )
    if module.settings.get("add_zero_attn") or not {"in_proj_weight"} <= module.parameters.keys() or (
        "bias_k" in module.parameters):  # fmt: skip
        raise NotLoweredError("a mask that is added to the scores, with other values than 0 and -inf")
    packed = [lowering.plain(lowering.held(prefix + name)) if prefix + name in lowering.graph.tensors else None
              for name in names]  # fmt: skip
    added = None
    for name, mask in masks.items():
        value = lowering.plain(mask)
        if mask.kind == "bool":
            value = lowering.emit("ops.where", value, -math.inf, 0.0)
        if name == "key_padding_mask":
            value = lowering.emit("index", value, Indices((Slice(None, None, None), None, None)))
        elif len(mask.shape) == 3:
            raise NotLoweredError("a mask for every head")
        added = value if added is None else lowering.emit("+", added, value)
    width, heads, rate = (module.settings[name] for name in ("embed_dim", "num_heads", "dropout"))
    return attend(lowering, tokens, packed, width, heads, added, rate)


def _visible(lowering: GraphLowering, masks: Mapping[str, TracedTensor], heads: int) -> KerasValue | None:
    """What a query sees, from the masks of PyTorch, which are true, or -inf, where it does not."""
    visible = None
    for name, mask in masks.items():
        value = lowering.plain(mask)
        sees = (lowering.emit("ops.logical_not", value) if mask.kind == "bool"
                else lowering.emit("==", value, 0.0))  # fmt: skip
        if name == "key_padding_mask":
            sees = lowering.emit("ops.expand_dims", sees, 1)
        elif len(mask.shape) == 3:
            raise NotLoweredError("a mask for every head")
        else:
            sees = lowering.emit("ops.expand_dims", sees, 0)
        visible = sees if visible is None else lowering.emit("ops.logical_and", visible, sees)
    return visible


@lowers_layers("GRUCell", "RNNCell", "LSTMCell")
def _cell(lowering: GraphLowering, node: Node) -> list[Placed]:
    """One step of a cell; without states, they are zeros."""
    module, tensor = node.module, node.inputs[0]
    assert module is not None
    counterpart = LAYERS[module.torch](module.torch, module.settings, TorchCall(tensor.shape))
    if not counterpart.calls or len(tensor.shape) != 2:
        raise NotLoweredError("; ".join(counterpart.notes) or "a cell without a batch axis")
    (call,) = counterpart.calls
    has_layer = any(layer.torch == module.path for layer in lowering.result.layers.values())
    value = lowering.plain(tensor)
    states = [lowering.plain(state) for state in traced_tensors(node.kwargs.get("hx"))]
    if not states:
        shape = (KerasSize("size", tensor=value, axis=0), module.settings["hidden_size"])
        states = [lowering.emit("ops.zeros", shape, dtype=FloatDtype())] * len(node.outputs)
    result = lowering.layer(call, value, tuple(states), torch=module.path, kind=counterpart.kind)
    if not has_layer:
        name = lowering.result.steps[result.step].layer
        lowering.result.rows.append({"torch": module.path, "keras": name, "kind": counterpart.kind})
    output, after = (KerasValue("step", step=result.step, index=index) for index in (0, 1))
    values = [output] if len(node.outputs) == 1 else [output, lowering.emit("index", after, Indices((1,)))]
    return [lowering.placed(value, output) for value, output in zip(values, node.outputs, strict=True)]
