"""Poolings over windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from wdport.mapping.axes import layouts
from wdport.mapping.kinds.kind import (
    SPACES,
    Compared,
    Counterpart,
    KerasCall,
    Kind,
    Settings,
    TorchCall,
    TorchFunction,
    layer,
    torch_classes,
)
from wdport.mapping.kinds.windows import Axis, Widths, agree, agree_at_size, padding_call, rank_of, several


def _pool_parameters(which: str, rank: int) -> tuple[str, ...]:
    window = ("input", "kernel_size", "stride", "padding")
    if which == "max":
        return (*window, "dilation", "ceil_mode", "return_indices")
    return (*window, "ceil_mode", "count_include_pad", *(("divisor_override",) if rank > 1 else ()))


def _counterpart(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    rank, largest = rank_of(name), name.startswith("Max")
    kernel = several(settings["kernel_size"], rank)
    stride = kernel if settings.get("stride") in (None, ()) else several(settings["stride"], rank)
    if reason := _refusal(settings, rank):
        return Counterpart((), (reason,))
    axes = [Axis(k, s) for k, s in zip(kernel, stride, strict=True)]
    widths = tuple((width, width) for width in several(settings.get("padding", 0), rank))
    ceil, counted = bool(settings.get("ceil_mode")), not largest and bool(settings.get("count_include_pad", True))
    notes = (_ceil_note(axes, widths, largest, call),) if ceil else ()
    pools = {"pool_size": kernel, "strides": None if stride == kernel else stride}
    keras = f"{'Max' if largest else 'Average'}Pooling{rank}D"

    def pooled(padding: str, *before: KerasCall, notes: tuple[str, ...] = notes) -> Counterpart:
        pooling = layer(keras, {**pools, "padding": padding}, pool_size="kernel_size", strides="stride")
        return Counterpart((*before, pooling), notes)

    padded = any(any(width) for width in widths)
    everywhere = all(agree(axis, *width, ceil) for axis, width in zip(axes, widths, strict=True))
    # Keras's mean never counts padding, PyTorch's does unless count_include_pad is false.
    if everywhere and (padded or ceil) and not (padded and counted):
        return pooled("same", notes=())
    behind = _overhangs(axes, widths, call) if ceil else (0,) * rank
    if behind is None:
        return Counterpart((), (*notes, "how much to pad at the end depends on the size, which is not known here"))
    margins = tuple((before, after + more) for (before, after), more in zip(widths, behind, strict=True))
    if not any(any(margin) for margin in margins):
        return pooled("valid")
    if largest:
        # Zeros would win over negative values; -inf never is the maximum of a window that reaches the input.
        return pooled("valid", padding_call(margins, "constant", -inf))
    if counted and not any(behind):
        return pooled("valid", padding_call(margins))
    if agree_at_size(axes, widths, ceil, call) and not (padded and counted):
        return pooled("same", notes=(*notes, 'padding="same" counts as PyTorch does only on inputs of this size'))
    return Counterpart((), (*notes, "no pooling of Keras counts so: pad, pool sums and ones, and divide"))


def _refusal(settings: Settings, rank: int) -> str:
    """What Keras's poolings do not do; empty if nothing."""
    if max(several(settings.get("dilation", 1), rank)) > 1:
        return "Keras's windows have no gaps: use ops.max of slices"
    if settings.get("return_indices"):
        return "Keras's layer returns only values, without indices"
    return "Keras divides by the window: multiply after the layer" if settings.get("divisor_override") else ""


def _overhangs(axes: Sequence[Axis], widths: Widths, call: TorchCall) -> tuple[int, ...] | None:
    """How far the last windows of ``ceil_mode`` extend beyond the padded input of this size."""
    sizes = call.shape[2:]
    if len(sizes) != len(axes):
        return None
    extents = []
    for axis, (before, after), size in zip(axes, widths, sizes, strict=True):
        windows = axis.padded(int(size), before, after, ceil=True)
        extents.append(max((windows.count - 1) * axis.stride + axis.reach - (int(size) + before + after), 0))
    return tuple(extents)


def _ceil_note(axes: Sequence[Axis], widths: Widths, largest: bool, call: TorchCall) -> str:
    behind = _overhangs(axes, widths, call)
    if behind is not None and not any(behind):
        return "ceil_mode makes no difference on inputs of this size"
    filled = " with -inf" if largest else ""
    text = f"ceil_mode rounds up, Keras down: pad the end{filled}, as much as the size requires"
    return f'{text}; padding="same" does so for this size' if agree_at_size(axes, widths, True, call) else text


def _pool(which: str, rank: int, *more: Compared) -> Kind:
    spatial = " ".join(SPACES[rank])
    return Kind(
        f"{which}_pool{rank}d",
        torch=torch_classes(f"{which.title()}Pool{rank}d", output="image"),
        functions=(
            TorchFunction(
                f"{which}_pool{rank}d",
                f"{which.title()}Pool{rank}d",
                _pool_parameters(which, rank),
                aliases=(f"{which}_pool{rank}d_with_indices",),
            ),
        ),
        keras=(f"{'Max' if which == 'max' else 'Average'}Pooling{rank}D",),
        axes=layouts(f"b c {spatial} -> b {spatial} c", f"b c {spatial}"),
        compared=(
            Compared("kernel_size", "pool_size", "tuple"),
            Compared("stride", "strides", "tuple"),
            Compared("padding", "padding", "padding"),
            Compared("ceil_mode", "padding", "ceil"),
            Compared("", "data_format", "channels"),
            *more,
        ),
        padded="any" if which == "max" else "zeros",
        call=_counterpart,
    )


_MAX = (Compared("dilation", "", "ones"), Compared("return_indices", "", "none"))
_MEAN = (Compared("count_include_pad", "padding", "counted"), Compared("divisor_override", "", "none"))

ALL = (
    *(_pool("max", rank, *_MAX) for rank in (1, 2, 3)),
    *(_pool("avg", rank, *(_MEAN[: 1 if rank == 1 else 2])) for rank in (1, 2, 3)),
)
