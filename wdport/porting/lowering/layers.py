"""Lower a call of a layer, or of the function of PyTorch that computes the same, to layers of Keras."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wdport.mapping.kinds import FUNCTIONS, KINDS, MODULES
from wdport.mapping.kinds.kind import Atom, Counterpart, KerasCall, TorchCall, layer
from wdport.porting.functions import bound, canonical
from wdport.porting.graph import STOCHASTIC_DEPTH, Node, expressions_in
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.joins import pad_function
from wdport.porting.lowering.keras_graph import (
    KerasValue,
    Order,
    Placed,
    axes_text,
    axis_letters,
    channels_last,
    identity,
    weight_in_keras,
    word_of,
)
from wdport.porting.lowering.rules import LAYER, LAYER_RULES, RULES, NotLoweredError, Rule, lowers, lowers_layers
from wdport.porting.outline.axes import image, named
from wdport.porting.outline.counterparts import LAYERS, defaults, function_settings
from wdport.porting.settings import equal


@lowers(LAYER)
def lower_layer(lowering: GraphLowering, node: Node, _: dict[str, Any]) -> Any:
    """Lower one call of a module that counts as a layer."""
    module = node.module
    assert module is not None
    name, tensors = module.torch, node.inputs
    if not tensors:
        raise NotLoweredError(f"{name or module.type} is called without a tensor")
    if changes := [note for note in module.notes if "row reads" not in note]:
        raise NotLoweredError("; ".join(changes))
    if any(weight.endswith("_orig") for weight in module.parameters):
        raise NotLoweredError("a hook computes its weight: fold it first")
    if name in LAYER_RULES:
        return LAYER_RULES[name](lowering, node)
    if name not in LAYERS:
        raise NotLoweredError(f"{module.type} has no counterpart")
    if name in _SAME_AS_FUNCTION and not module.parameters:
        return RULES[_SAME_AS_FUNCTION[name]](lowering, node, {**module.settings, "input": tensors[0]})
    tied = _tied(lowering, node) if name in ("Linear", "Embedding") else None
    return tied or _called(lowering, node, name, module.settings, module.path)


@lowers_layers(STOCHASTIC_DEPTH)
def _stochastic_depth(lowering: GraphLowering, node: Node) -> Placed:
    """Dropout of whole samples."""
    assert node.module is not None
    placed, output = lowering.place(node.inputs[0]), node.outputs[0]
    noise = (None, *[1] * (len(output.shape) - 1))
    drop = layer("Dropout", {"rate": node.module.settings["rate"], "noise_shape": noise})
    return lowering.placed(lowering.layer(drop, placed.value, torch=node.module.path), output, placed.order)


def _tied(lowering: GraphLowering, node: Node) -> Placed | None:
    """A dense layer or an embedding whose weight is a variable already, such as that of another layer."""
    module = node.module
    assert module is not None
    path = f"{module.path}.weight".lstrip(".")
    held = lowering.graph.tensors.get(path)
    first, holder = lowering.shared_with(path)
    owner = {"linear": "Linear", "embedding": "Embedding"}.get(holder.kind, "") if holder is not None else ""
    weight: KerasValue | None = None
    if owner:
        weight = lowering.alias(first, "embeddings" if owner == "Embedding" else "kernel")
    elif held is not None and path in lowering.result.variables:
        # Read before, in PyTorch's order, which is that of an embedding.
        owner, weight = "Embedding", lowering.plain(lowering.held(path))
    if weight is None:
        return None
    # The kernel of a dense layer is transposed in Keras.
    if (owner == "Embedding") == (module.torch == "Linear"):
        weight = lowering.emit("ops.transpose", weight)
    value, output = lowering.plain(node.inputs[0]), node.outputs[0]
    if module.torch == "Embedding":
        # Keras loads a model by calling it with floating-point numbers, which layers.Embedding casts too.
        numbers = lowering.emit("ops.cast", value, "int32")
        rows = lowering.placed(lowering.emit("ops.take", weight, numbers, axis=0), output)
        return without_slope(lowering, rows, value, module.settings.get("padding_idx"))
    result = lowering.emit("@", value, weight)
    if "bias" in module.parameters:
        result = lowering.emit("+", result, lowering.plain(lowering.held(f"{module.path}.bias".lstrip("."))))
    return lowering.placed(result, output)


def without_slope(lowering: GraphLowering, rows: Placed, ids: KerasValue, padding: int | None) -> Placed:
    """Rows of an embedding, of which that of ``padding_idx`` has no gradient."""
    if padding is None:
        return rows
    is_padding = lowering.emit("ops.expand_dims", lowering.emit("==", ids, padding), -1)
    fixed = lowering.emit("ops.stop_gradient", rows.value)
    return lowering.placed(lowering.emit("ops.where", is_padding, fixed, rows.value), rows.shape)


def lower_function(lowering: GraphLowering, node: Node, arguments: Mapping[str, Any]) -> Any:
    """Lower a function of ``torch.nn.functional`` that is equivalent to a layer, and has no weights or those of one
    module."""
    function = canonical(node.name)
    name = FUNCTIONS[function].module
    weights = [tensor for tensor in node.inputs[1:] if tensor.source.kind in ("parameter", "buffer")]
    owners = {_own_name(lowering, tensor.source.name).rpartition(".")[0] for tensor in weights}
    names = {tensor.source.name.rpartition(".")[2] for tensor in weights}
    owner = next(iter(owners), "")
    if len(weights) != len(node.inputs) - 1 or len(owners) > 1 or not names <= _STANDARD:
        raise NotLoweredError(f"{function} with weights that are computed")
    if weights and (not owner or _is_shared(lowering, owner, names)):
        raise NotLoweredError(f"{function} with weights that others read")
    if "pool" in function and any(True for _ in expressions_in({**arguments, "input": None})):
        raise NotLoweredError(f"{function} whose window is computed from sizes")
    settings = function_settings(function, arguments)
    if "dropout" in function and arguments.get("training", settings.get("training")):
        if settings.get("p") == 0:
            return lowering.place(arguments["input"])
        raise NotLoweredError(f"{function} that drops values in inference, too")
    return _called(lowering, node, name, settings, owner)


def _own_name(lowering: GraphLowering, name: str) -> str:
    """The name that a tensor has in the module that calls a function with it, if it has one there."""
    tensors, caller = lowering.graph.tensors, lowering.graph.nodes[lowering.node.parent].module
    if lowering.shared_with(name)[1] is not None:
        raise NotLoweredError(f"{name} is the weight of another layer")
    inner = f"{caller.path if caller is not None else ''}.{name.rpartition('.')[2]}".lstrip(".")
    return inner if inner in tensors and name in (inner, tensors[inner].same_as) else name


def _is_shared(lowering: GraphLowering, path: str, names: set[str]) -> bool:
    """Whether a module is called itself, or has other weights than those of these names, or other calls read them."""
    module = lowering.graph.modules[path]
    if not {*module.parameters} <= names:
        return True
    readers = {(node.module.path if node.module is not None else canonical(node.name))
               for node in lowering.graph.nodes if node.module is None or node.is_layer
               if (node.module is not None and node.module.path == path and node.module.torch)
               or any(tensor.source.name.rpartition(".")[0] == path and tensor.source.kind == "parameter"
                      for tensor in node.inputs)}  # fmt: skip
    return len(readers) > 1


_STANDARD = frozenset({"weight", "bias", "running_mean", "running_var"})

_SAME_AS_FUNCTION = {"Flatten": "flatten", "Unflatten": "unflatten", "PixelShuffle": "pixel_shuffle",
                     "PixelUnshuffle": "pixel_unshuffle", "ChannelShuffle": "channel_shuffle"}  # fmt: skip


def _called(lowering: GraphLowering, node: Node, name: str, settings: Mapping[str, Any], path: str) -> Any:
    tensor, output = node.inputs[0], node.outputs[0]
    placed, rule = lowering.place(tensor), MODULES[name].output
    rank = len(tensor.shape)
    if rule == "image" and (digit := re.search(r"(\d)d$", name)) and rank < int(digit[1]) + 1 + (not _is_norm(name)):
        raise NotLoweredError(f"{name} of an input without a batch axis")
    order = _order(rule, placed, rank, name)
    axes = image(tensor.shape) if order == channels_last(rank) and rank > 2 else named(tensor.shape)
    if rank > 2 and order == identity(rank) and rule != "image":
        axes = tuple((atom,) for atom in named_atoms(tensor.shape))
    used = frozenset(lowering.read.get(node.serial, {0}))
    call = TorchCall(tensor.shape, axes, {}, used, node.module is not None and path in lowering.padded_before)
    if name.startswith("Adaptive") and isinstance(sizes := settings.get("output_size"), tuple):
        free = [axis for axis, size in enumerate(sizes, 2) if size is None and lowering.is_free(tensor, axis)]
        if free:
            raise NotLoweredError(f"{name} that keeps a size that is free")
    if (
        name in _COMPOSED
        and "Transpose" not in name
        and (settings.get("ceil_mode") or settings.get("size") is not None)
    ):
        # The layer's arguments would depend on the size of the input.
        return _OWN_RULES[_COMPOSED[name]](lowering, node, {**settings, "input": tensor})
    counterpart = LAYERS[name](name, settings, call)
    if not counterpart.calls:
        composed = _COMPOSED.get(name)
        if composed is not None:
            return _OWN_RULES[composed](lowering, node, {**settings, "input": tensor})
        raise NotLoweredError("; ".join(counterpart.notes) or f"{name} has no counterpart")
    value = lowering.moved(placed, order)
    if name == "Softmin":
        value = lowering.emit("ops.negative", value)
    if name == "Linear" and rank == 1:
        # A Dense layer takes no vector.
        value = lowering.emit("ops.expand_dims", value, 0)
        return lowering.placed(lowering.emit("ops.squeeze", _chain(lowering, counterpart, value, path), 0), output)
    value = _chain(lowering, counterpart, value, path)
    out_rank = len(output.shape)
    if rule == "image":
        return lowering.placed(value, output, channels_last(out_rank))
    if name == "Embedding":
        padding = settings.get("padding_idx")
        return without_slope(lowering, lowering.placed(value, output), lowering.plain(tensor), padding)
    if rule == "features":
        return lowering.placed(value, output)
    return lowering.placed(value, output, order)


def _is_norm(name: str) -> bool:
    return name.startswith("BatchNorm")


def named_atoms(shape: Sequence[int]) -> list[Any]:
    """Axes without any image among them."""
    return [Atom(f"x{index}", size) for index, size in enumerate(shape)]


def _order(rule: str, placed: Placed, rank: int, name: str) -> Order:
    if rule == "image":
        return channels_last(rank)
    if rule == "features" or name in ("LayerNorm", "RMSNorm", "PReLU"):
        return channels_last(rank) if name == "PReLU" else identity(rank)
    # Value by value, or along an axis that the layer's argument names.
    return placed.order if placed.order in (identity(rank), channels_last(rank)) else identity(rank)


def _chain(lowering: GraphLowering, counterpart: Counterpart, value: KerasValue, path: str) -> KerasValue:
    """The calls of a counterpart, one after the other; the last layer that has weights is the row's."""
    layers = [call for call in counterpart.calls if call.name.startswith("layers.")]
    weighted = [call for call in layers if not call.name.startswith(_WITHOUT_WEIGHTS)]
    main = (weighted or layers or [counterpart.calls[-1]])[-1]
    is_module = lowering.node.module is not None
    parent = lowering.graph.modules[path.rpartition(".")[0]] if is_module and "." in path else None
    for call in counterpart.calls:
        if parent is not None and parent.torch == "Sequential" and _is_activation(call):
            activation = call.name.partition(".")[2]
            value = lowering.layer(layer("Activation", {"activation": activation}), value, torch=path)
            continue
        if not call.name.startswith("layers."):
            arguments = dict(call.arguments)
            widths = (arguments.pop("pad_width"),) if "pad_width" in arguments else ()
            name = pad_function(str(arguments.get("mode"))) if call.name == "ops.pad" else call.name
            value = lowering.emit(name, value, *widths, **arguments)
            continue
        if not is_module and call.name in _FUNCTIONS:
            value = lowering.emit(_FUNCTIONS[call.name](call), value, **_arguments(call))
            continue
        is_own = call is main and (is_module or bool(path))
        has_row = is_own and counterpart.kind in KINDS and bool(KINDS[counterpart.kind].parts)
        place = path if call is main else f"{path}_{_word(call)}"
        if call is main and path and not is_module:
            # The module that calls the function is a class of the port, and the layer is its attribute.
            place = f"{path}.{word_of(call)}"
        fed = value
        has_layer = has_row and any(layer.torch == place and layer.kind for layer in lowering.result.layers.values())
        if has_row and not has_layer and any(one.rpartition(".")[0] == path for one in lowering.result.variables):
            raise NotLoweredError(f"{path} is called after its weights were read")
        value = lowering.layer(
            call, value, torch=place or lowering.unnamed(call), kind=counterpart.kind if has_row else ""
        )
        if has_row and not has_layer:
            step = lowering.result.steps[value.step]
            row = {"torch": path, "keras": step.layer, "kind": counterpart.kind}
            tensors = _tensor_rows(lowering, path, step.layer, fed, counterpart.kind)
            lowering.result.rows += tensors or [row | _axes(lowering, fed, path)]
    return value


def _is_activation(call: KerasCall) -> bool:
    """Whether a function of Keras is an activation that a layer is given by its name."""
    declared = defaults(call.name)
    return call.name.startswith("activations.") and all(
        key in declared and equal(value, declared[key]) for key, value in call.arguments.items()
    )


def _tensor_rows(
    lowering: GraphLowering, path: str, layer_name: str, fed: KerasValue, kind: str
) -> list[dict[str, str]]:
    """The rows of the weights of a module that is never called, as in ``F.linear(x, self.dense.weight)``, or that
    computes more than the layer: verify has no layer there to compare."""
    module = lowering.graph.modules[path]
    is_called = any(node.module is not None and node.module.path == path for node in lowering.graph.nodes)
    if is_called and _is_all(lowering, path, fed):
        return []
    rows = []
    # The class whose function the module calls, of which it may be a subclass.
    torch = next((one.module for one in KINDS[kind].functions), module.torch) if is_called else module.torch
    statistics = {name: shape for name, shape in module.buffers.items() if shape}
    for name, shape in {**module.parameters, **statistics}.items():
        variable, order = weight_in_keras(torch, name, len(shape))
        if not variable and len(shape) == 1:
            names = (f"{{{name}}}",), (name,)
            variable = next((part.keras[0] for part in KINDS[kind].parts if part.torch in names), "")
        if not variable and is_called:
            raise NotLoweredError(f"{path} computes more than its layer")
        if not variable:
            return []
        rule = axes_text(axis_letters(len(order)), order) if order != identity(len(order)) else "identity"
        rows.append({"torch": f"{path}.{name}", "keras": f"{layer_name}/{variable}", "rule": rule})
    return rows


def _is_all(lowering: GraphLowering, path: str, fed: KerasValue) -> bool:
    """Whether a module computes only what its layer does, up to the order of axes; ``fed`` is the layer's input."""
    graph, node = lowering.graph, lowering.node
    caller = graph.nodes[node.parent]
    if node.module is not None or caller.module is None or caller.module.path != path:
        return True
    if not any(placed.value == fed for tensor in caller.inputs if (placed := lowering.places.get(tensor.source))):
        return False
    source = caller.outputs[0].source
    while source.kind == "node" and source.node != node.serial:
        step = graph.nodes[source.node]
        if step.same is None and canonical(step.name) not in _PERMUTING:
            return False
        source = step.inputs[0].source
    return source.kind == "node" and len(caller.outputs) == 1


def _axes(lowering: GraphLowering, value: KerasValue, path: str) -> dict[str, str]:
    """The axes of a layer whose value is the input of a module of PyTorch, which permutes it and calls a function."""
    caller = lowering.graph.nodes[lowering.node.parent]
    if lowering.node.module is not None or caller.module is None or caller.module.path != path:
        return {}
    placed = lowering.places.get(caller.inputs[0].source) if caller.inputs else None
    if placed is None or placed.value != value or placed.plain:
        return {}
    return {"axes": axes_text(axis_letters(len(placed.order)), placed.order)}


_PERMUTING = ("permute", "transpose", "movedim", "T", "mT", "contiguous")

_FUNCTIONS: Mapping[str, Callable[[KerasCall], str]] = {
    "layers.ReLU": lambda call: "ops.relu6" if call.arguments.get("max_value") else "ops.relu",
    "layers.LeakyReLU": lambda _: "ops.leaky_relu",
    "layers.ELU": lambda _: "ops.elu",
    "layers.Softmax": lambda _: "ops.softmax",
}
"""Functions of Keras for the layers of activations that are functions in PyTorch too."""


def _arguments(call: KerasCall) -> dict[str, Any]:
    return {key: value for key, value in call.arguments.items() if key != "max_value"}


def _word(call: KerasCall) -> str:
    """What a layer next to the row's does."""
    return "pad" if "Padding" in call.name else "crop" if "Cropping" in call.name else "layer"


_WITHOUT_WEIGHTS = ("layers.ZeroPadding", "layers.Cropping")


_COMPOSED = {**{f"ConvTranspose{rank}d": f"conv_transpose{rank}d" for rank in (1, 2, 3)},
             "Upsample": "interpolate", "UpsamplingNearest2d": "interpolate", "UpsamplingBilinear2d": "interpolate",
             **{f"{which}Pool{rank}d": f"{which.lower()}_pool{rank}d" for which in ("Avg", "Max")
                for rank in (1, 2, 3)}}  # fmt: skip
"""Functions whose rule lowers a module that Keras has no layer for."""

_REGISTERED: set[str] = set()

_OWN_RULES: dict[str, Rule] = {}
"""Rules of functions that are no layer of Keras in every case."""


def _as_layer_or_rule(name: str) -> Any:
    other = RULES.get(name)
    if other is not None:
        _OWN_RULES[name] = other

    def rule(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Any:
        if node.module is not None and other is not None:
            return other(lowering, node, arguments)
        try:
            return lower_function(lowering, node, arguments)
        except NotLoweredError:
            if other is None:
                raise
            return other(lowering, node, arguments)

    return rule


def register() -> None:
    """Functions that are equivalent to a layer are lowered as the layer; where that is not possible, by their rule."""
    for function in FUNCTIONS:
        if function not in _REGISTERED:
            RULES[function] = _as_layer_or_rule(function)
            _REGISTERED.add(function)


def function_arguments(node: Node) -> dict[str, Any]:
    return bound(node)
