"""Lower functions that compare a prediction with a target."""

from __future__ import annotations

from typing import Any

from wdport.porting.functions import canonical
from wdport.porting.graph import Node, TracedTensor
from wdport.porting.lowering.arithmetic import aligned, common_order
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.holes import defaults_of, parameter_names
from wdport.porting.lowering.keras_graph import KerasSize, KerasValue, Order, Placed
from wdport.porting.lowering.rules import NotLoweredError, lowers, named_arguments
from wdport.porting.replay import find_function

REDUCTIONS = ("none", "mean", "sum", "batchmean")


def _options(node: Node) -> dict[str, Any]:
    """The arguments of a loss, with their defaults."""
    function = canonical(node.name)
    options = named_arguments(node, parameter_names(node.name), **defaults_of(find_function(node.name)))
    if options["reduction"] not in REDUCTIONS or options.get("size_average") is not None or (
        options.get("reduce") is not None or options.get("label_smoothing")):  # fmt: skip
        raise NotLoweredError(f"{function} with label_smoothing, size_average or reduce")
    return options


@lowers("nll_loss", "cross_entropy")
def _of_classes(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    function, options = canonical(node.name), _options(node)
    if options["target"].kind != "int" or len(options["input"].shape) < 2:
        raise NotLoweredError(f"{function} with probabilities, or without a batch axis")
    value, target = (lowering.plain(options[name]) for name in ("input", "target"))
    weight = None if options["weight"] is None else lowering.plain(options["weight"])
    if function == "cross_entropy":
        value = lowering.emit("ops.log_softmax", value, axis=1)
    more = {"weight": weight, "ignored": options["ignore_index"], "reduction": options["reduction"]}
    usual = {"weight": None, "ignored": -100, "reduction": "mean"}
    stated = {key: one for key, one in more.items() if one != usual[key]}
    return lowering.placed(lowering.emit("helpers.nll_loss", value, target, **stated), node.outputs[0])


@lowers("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy",
        "binary_cross_entropy_with_logits")  # fmt: skip
def _of_values(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    function, options = canonical(node.name), _options(node)
    names = ("input", "target", "weight", "pos_weight")
    tensors = {name: options[name] for name in names if isinstance(options.get(name), TracedTensor)}
    if "weight" in tensors and not function.startswith("binary"):
        raise NotLoweredError(f"{function} with weights")
    order = common_order(lowering, list(tensors.values()), max(len(one.shape) for one in tensors.values()))
    values = {name: aligned(lowering, tensor, order) for name, tensor in tensors.items()}
    x, target = values["input"], values["target"]
    if function == "kl_div":
        value = _divergence(lowering, x, target, options["log_target"])
    elif function == "binary_cross_entropy":
        value = lowering.emit("helpers.binary_cross_entropy", x, target)
    elif function == "binary_cross_entropy_with_logits":
        value = _of_logits(lowering, x, target, values.get("pos_weight"))
    else:
        value = _of_difference(lowering, lowering.emit("-", x, target), options.get("beta", options.get("delta")),
                               function)  # fmt: skip
    if "weight" in values:
        value = lowering.emit("*", value, values["weight"])
    return _reduced(lowering, node, value, order, options["reduction"])


def _of_difference(lowering: GraphLowering, difference: KerasValue, limit: float | None, function: str) -> KerasValue:
    """A square or an absolute value; of a difference above the limit, its line."""
    if function == "mse_loss":
        return lowering.emit("ops.square", difference)
    size = lowering.emit("ops.abs", difference)
    if not limit:
        return size
    inner = lowering.emit("ops.minimum", size, limit)
    value = lowering.emit("*", inner, lowering.emit("-", size, lowering.emit("*", 0.5, inner)))
    return value if function == "huber_loss" or limit == 1 else lowering.emit("/", value, limit)


def _divergence(lowering: GraphLowering, x: KerasValue, target: KerasValue, is_logarithm: bool) -> KerasValue:
    if is_logarithm:
        return lowering.emit("*", lowering.emit("ops.exp", target), lowering.emit("-", target, x))
    # Zero times its logarithm is zero.
    positive = lowering.emit("ops.where", lowering.emit("==", target, 0), 1.0, target)
    return lowering.emit("*", target, lowering.emit("-", lowering.emit("ops.log", positive), x))


def _of_logits(lowering: GraphLowering, x: KerasValue, target: KerasValue, weight: KerasValue | None) -> KerasValue:
    likely = lowering.emit("ops.log_sigmoid", x)
    if weight is not None:
        factor = lowering.emit("+", lowering.emit("*", lowering.emit("-", weight, 1), target), 1)
        likely = lowering.emit("*", factor, likely)
    return lowering.emit("-", lowering.emit("*", lowering.emit("-", 1, target), x), likely)


def _reduced(lowering: GraphLowering, node: Node, value: KerasValue, order: Order, reduction: str) -> Placed:
    if reduction == "none":
        return lowering.placed(value, node.outputs[0], order)
    total = lowering.emit("ops.mean" if reduction == "mean" else "ops.sum", value)
    if reduction == "batchmean":
        total = lowering.emit("/", total, KerasSize("size", tensor=value, axis=order.index(0)))
    return lowering.placed(total, node.outputs[0])
