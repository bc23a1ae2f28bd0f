"""Weights that PyTorch does not train, as their ``requires_grad`` says."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.graph import Graph
from wdport.porting.lowering.keras_graph import KerasGraph

_OTHERWISE = ("layers.BatchNormalization", "layers.MultiHeadAttention")
"""Layers that compute something else in training if they are not trainable, or that train the layers inside them."""


def freeze(lowered: KerasGraph, graph: Graph) -> list[str]:
    """Make the layers of which PyTorch trains no weight not trainable; returns the parameters of others that it does
    not train."""
    left: dict[str, None] = {}
    for row in lowered.rows:
        # A row of a layer, or of one of its weights.
        layer = row["keras"].partition("/")[0].replace("<layer>", "*")
        names = [name for name in lowered.layers if fnmatchcase(name, layer)]
        held = {row["torch"]} if "rule" in row else set()
        held |= {other["torch"] for other in lowered.rows if "rule" in row and other["keras"].startswith(f"{layer}/")}
        parameters = {name: tensor.trained for name, tensor in graph.tensors.items() if tensor.kind == "parameter"
                      and (name in held or ("kind" in row and name.startswith(f"{row['torch']}.")))}  # fmt: skip
        if not names or all(parameters.values()):
            continue
        if any(parameters.values()) or lowered.layers[names[0]].call.name in _OTHERWISE:
            left |= dict.fromkeys(name for name, trained in parameters.items() if not trained)
            continue
        for name in names:
            lowered.layers[name] = replace(lowered.layers[name], call=_untrained(lowered.layers[name].call))
    return list(left)


def _untrained(call: KerasCall) -> KerasCall:
    if isinstance(inner := call.arguments.get("layer"), KerasCall):
        return replace(call, arguments={**call.arguments, "layer": _untrained(inner)})
    return replace(call, arguments={**call.arguments, "trainable": False})
