"""Find the cause of a difference by changing PyTorch's run until it produces the Keras model's value.

One function between the modules is left out, or gets other arguments, and the graph runs again. If the Keras model's
value appears, which did not occur before, that change is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from wdport.mapping.kinds.activations import ACTIVATIONS
from wdport.models.interface import Array
from wdport.porting.fingerprints import Print
from wdport.porting.replay import Arguments, Change, steps
from wdport.porting.torch_run import TorchRun, TorchValue

MOST_RUNS = 150
"""Maximum number of changed runs of PyTorch for one value."""

MOST_SUSPECTS = 40
"""Maximum number of values that are computed otherwise: each in several ways, and each way is a run of the model."""

_PLAIN = frozenset({"linear", "detach", "cpu", "view", "reshape", "unsqueeze", "squeeze", "size", "contiguous", "to"})
"""Functions that are not changed in the search for a cause."""


def values_between(run: TorchRun, starts: Iterable[Array], end: Array) -> list[TorchValue]:
    """PyTorch's values from which ``end`` is computed, it included, back to the ``starts``."""
    first = {value.number for array in starts for value in run.prints.find(Print(np.asarray(array)))}
    left = [value.number for value in run.prints.find(Print(np.asarray(end)))]
    between = dict[int, TorchValue]()
    while left:
        number = left.pop()
        if number not in between and number not in first:
            between[number] = run.values[number]
            left += run.values[number].sources
    return list(between.values())


def mends(run: TorchRun, port_value: Array, suspects: Iterable[TorchValue]) -> list[str]:
    """Explain the Keras model's value ``port_value`` by a change to one of ``suspects``, tried from the last one on:
    one sentence, or none."""
    goal, left = Print(np.asarray(port_value)), MOST_RUNS
    # Zeros and integers occur in many places, so that their occurrence proves nothing.
    if goal.empty or goal.exact:
        return []
    changeable = (value for value in suspects if value.by not in _PLAIN)
    for value in sorted(changeable, key=lambda value: -value.number)[:MOST_SUSPECTS]:
        for text, change in _changes(value, run):
            # Each change runs the whole model, up to the value.
            if left <= 0:
                return []
            left -= 1
            if _occurs(run, value.node, change, goal):
                return [text]
    return []


def _occurs(run: TorchRun, serial: int, change: Change, goal: Print) -> bool:
    """Whether the value occurs in a run with the call ``serial`` of the graph changed."""
    inputs = {f"input_{index}": array for index, array in enumerate(run.inputs)}
    try:
        calls = steps(run.graph, run.module, inputs, {}, {serial: change})
        return any(node.serial >= serial and _has_print(result, goal) for node, result in calls)
    except Exception:  # a change that the rest of the model does not take
        return False


def _has_print(result: object, goal: Print) -> bool:
    import torch

    if not isinstance(result, torch.Tensor) or not result.is_floating_point() or not result.numel():
        return False
    high, low = float(result.max()), float(result.min())
    if not np.isfinite(high) and not np.isfinite(low):
        return False
    # The extremes are compared first; a print sorts all values.
    near = 1e-7 * goal.size
    if np.isfinite(high) and np.isfinite(low) and max(abs(high), abs(low)) > 0:
        top, bottom = goal.extremes
        if (high > 0 and top > 0 and abs(high - top) > near) or (low < 0 and bottom < 0 and abs(low - bottom) > near):
            return False
    return Print(result.detach().cpu().numpy()).same(goal)


def _changes(value: TorchValue, run: TorchRun) -> Iterator[tuple[str, Change]]:
    """Other ways to compute a value, each with a sentence on what the Keras model does."""
    name = value.by.strip("_")
    # Flags such as inplace are no part of what is computed.
    plain = [argument for argument in value.arguments.values()
             if isinstance(argument, (int, float, str)) and not isinstance(argument, bool)]  # fmt: skip
    # Of many numbers, their order in a call of torch's internals says nothing.
    arguments = ", ".join(map(str, plain)) if len(plain) < 3 else ""
    place = f"{name} ({arguments})" if arguments and len(arguments) < 40 else name
    place = f"{place}, which makes {value.names[0]}" if value.names and value.names[0] != name else place
    source = next((run.values[number].text.strip("_") for number in value.sources), "")
    behind = f" (after {source})" if source else ""
    shape = value.result.array.shape
    if name in _ACTIVATIONS:
        for other, function in _activations().items():
            if other != name:
                yield f"activation {other} where PyTorch has {place}{behind}", _substitute(function)
    # Either operand: a skipped addition leaves the first or the second.
    for index in (0, 1):
        yield f"lacks {place}{behind}", partial(_passed, index, shape)
    yield from _argument_changes(name, place, behind, value)


def _passed(index: int, shape: tuple[int, ...], _: Callable[..., Any], call: Arguments) -> Any:
    """Return the function's input in place of its output."""
    argument = call[0][index]
    return argument if tuple(argument.shape) == shape else argument.expand(shape)


_ACTIVATIONS = frozenset(name for activation in ACTIVATIONS if activation.common for name in activation.functions)


def _activations() -> dict[str, Callable[[Any], Any]]:
    from torch.nn import functional as f

    functions = {name: getattr(f, name) for name in sorted(_ACTIVATIONS)}
    gelus = {"gelu by tanh": partial(f.gelu, approximate="tanh"), "gelu by erf": f.gelu}
    slopes = {f"leaky_relu with negative_slope {slope:g}": partial(f.leaky_relu, negative_slope=slope)
              for slope in (0.1, 0.2, 0.3)}  # fmt: skip
    return {**functions, **gelus, **slopes}


def _argument_changes(name: str, place: str, behind: str, value: TorchValue) -> Iterator[tuple[str, Change]]:
    """The same function with other arguments, or its opposite."""
    import torch
    from torch.nn import functional as f

    if name in ("softmax", "log_softmax"):
        for axis in range(value.result.array.ndim):
            change = _substitute(partial(getattr(f, name), dim=axis))
            yield f"{name} over axis {axis} where PyTorch has another (dim)", change
    if name == "leaky_relu":
        for slope in (0.01, 0.1, 0.2, 0.3):
            change = _substitute(partial(f.leaky_relu, negative_slope=slope))
            yield f"negative_slope {slope:g} where PyTorch has another{behind}", change
    if name in ("add", "iadd", "sub", "mul", "div", "truediv", "maximum", "minimum"):
        for other in ("add", "sub", "mul", "maximum", "minimum"):
            if other != name:
                yield f"{other} where PyTorch has {place}{behind}", _substitute(getattr(torch, other), 2)
        yield f"swapped operands where PyTorch has {place}{behind}", lambda g, call: g(call[0][1], call[0][0])
    if name in ("masked_fill", "masked_fill_"):
        yield (f"the inverted mask where PyTorch has {place}",
               lambda g, call: call[0][0].masked_fill(~call[0][1], *call[0][2:], **call[1]))  # fmt: skip
        yield (f"the mask with its axes swapped where PyTorch has {place}",
               lambda g, call: call[0][0].masked_fill(call[0][1].mT, *call[0][2:], **call[1]))  # fmt: skip
    if name == "where":
        yield (f"the inverted mask where PyTorch has {place}",
               lambda g, call: torch.where(call[0][0], call[0][2], call[0][1]))  # fmt: skip
    if name == "scaled_dot_product_attention":
        yield from _masks("attn_mask")
        yield "no mask where PyTorch has a causal one (is_causal)", _with(is_causal=False, attn_mask=None)
        yield "a causal mask where PyTorch has none or another (is_causal)", _with(is_causal=True, attn_mask=None)
        for text, settings in _SCORES.items():
            yield text, _scores(**settings)
        yield "attention without its scale 1/sqrt(head width)", _with(scale=1.0)
    if name == "multi_head_attention_forward":
        yield from _packed()
    if name in ("cat", "concat"):
        yield (f"another order of concatenation where PyTorch has {place}",
               lambda g, call: g(list(call[0][0])[::-1], *call[0][1:], **call[1]))  # fmt: skip
    if name == "pad":
        for mode in ("constant", "reflect", "replicate", "circular"):
            yield (f"padding with {'zeros' if mode == 'constant' else mode} where PyTorch has another mode (mode)",
                   _substitute(partial(f.pad, mode=mode), 2))  # fmt: skip
    if (other_pool := _OTHER_POOLS.get(name)) is not None:
        yield f"{other_pool} where PyTorch has {place}", partial(_pooled, getattr(f, other_pool))
    if name == "interpolate":
        yield "interpolation with another align_corners than PyTorch's", _other_corners
        for mode in ("nearest", "nearest-exact", "bilinear", "linear", "bicubic", "trilinear"):
            yield f"interpolation {mode} where PyTorch has another (mode)", _interpolation(mode)
    for first, second in (("mean", "amax"), ("sum", "mean"), ("mean", "sum"), ("amax", "mean"), ("max", "mean")):
        if name == first:
            yield f"{second.removeprefix('a')} where PyTorch has {place}", _method(second)
    if name in ("transpose", "permute", "movedim", "swapaxes"):
        yield (f"a reshape where PyTorch moves axes ({place}): the values are in another order",
               lambda g, call: call[0][0].reshape(g(*call[0], **call[1]).shape))  # fmt: skip
    if name == "getitem":
        yield f"the other end of an axis where PyTorch reads one ({place})", _negated_index


_OTHER_POOLS = {f"{one}_pool{rank}d": f"{other}_pool{rank}d" for rank in (1, 2, 3)
                for one, other in (("avg", "max"), ("max", "avg"))}  # fmt: skip


def _pooled(other: Callable[..., Any], _: Callable[..., Any], call: Arguments) -> Any:
    """Another pooling with the same windows."""
    names = ("kernel_size", "stride", "padding")
    windows = {**dict(zip(names, call[0][1:4], strict=False)), **{key: call[1][key] for key in names if key in call[1]}}
    return other(call[0][0], **windows)


def _with(**arguments: object) -> Change:
    """The same function with these arguments."""
    return lambda function, call: function(*call[0], **{**call[1], **arguments})


def _masks(key: str) -> Iterator[tuple[str, Change]]:
    """Attention without the mask that is its argument ``key``, and with the inverted mask."""
    import torch

    def inverted(function: Callable[..., Any], call: Arguments) -> Any:
        mask = call[1][key]
        other = ~mask if mask.dtype == torch.bool else torch.where(mask == 0, float("-inf"), 0.0).to(mask.dtype)
        return function(*call[0], **{**call[1], key: other})

    yield f"lacks the mask of attention ({key})", _with(**{key: None})
    yield f"the inverted mask of attention ({key})", inverted


def _packed() -> Iterator[tuple[str, Change]]:
    """``torch.nn.MultiheadAttention`` with other arguments."""
    yield from _masks("attn_mask")
    yield from _masks("key_padding_mask")

    def heads(count: int) -> Change:
        return lambda g, call: g(*call[0][:4], count, *call[0][5:], **call[1])

    # The shapes of the weights do not depend on the number of heads.
    for count in (1, 2, 3, 4, 6, 8, 12, 16, 32):
        yield f"num_heads {count} where PyTorch has another number of heads", heads(count)


def _substitute(other: Callable[..., Any], count: int = 1) -> Change:
    """Replace the function by another one of its first ``count`` arguments."""
    return lambda _, call: other(*call[0][:count])


_SCORES: Mapping[str, dict[str, Any]] = {
    "softmax over the queries (axis -2) where PyTorch's attention has the keys": {"axis": -2},
    "an anticausal mask where PyTorch has a causal mask": {"upper": True},
    "an anticausal mask, and softmax over the queries (axis -2)": {"upper": True, "axis": -2},
}


def _scores(axis: int = -1, upper: bool = False) -> Change:
    """Attention of (..., T, K) step by step, with other settings."""
    import torch

    def change(_: Callable[..., Any], call: Arguments) -> Any:
        query, key, value = call[0][:3]
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if call[1].get("is_causal") or upper:
            ones = torch.ones(scores.shape[-2:], dtype=torch.bool)
            scores = scores.masked_fill(~(ones.triu() if upper else ones.tril()), float("-inf"))
        if (mask := call[1].get("attn_mask")) is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        # A row that is masked throughout is NaN after the softmax.
        return scores.softmax(axis).nan_to_num() @ value

    return change


def _method(name: str) -> Change:
    return lambda _, call: getattr(call[0][0], name)(*call[0][1:], **call[1])


def _interpolation(mode: str) -> Change:
    sizes = ("size", "scale_factor", "antialias")
    return lambda g, call: g(*call[0][:3], mode=mode, **{key: call[1][key] for key in sizes if key in call[1]})


def _other_corners(function: Callable[..., Any], call: Arguments) -> Any:
    return function(*call[0], **{**call[1], "align_corners": not call[1].get("align_corners")})


def _negated_index(function: Callable[..., Any], call: Arguments) -> Any:
    index = call[0][1] if isinstance(call[0][1], tuple) else (call[0][1],)
    # Not isinstance, for which a bool is an int as well.
    other = tuple(-1 - position if type(position) is int else position for position in index)
    with suppress(IndexError):
        return call[0][0][other]
    raise IndexError("no such place")
