"""Convolutions and poolings: the padding in Keras that equals PyTorch's, for every size or for the recorded one."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from wdport.compare.windows import Axis, Windows
from wdport.porting.outline.counterparts.counterpart import Counterpart, Given, layer
from wdport.porting.outline.keras_calls import KerasCall
from wdport.porting.outline.settings import Settings

Widths = tuple[tuple[int, int], ...]
"""Padding before and after, by spatial axis."""

MODES = {"zeros": "constant", "constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""Modes of ``torch.nn.functional.pad`` and of convolutions as ``keras.ops.pad`` calls them."""

BOTH = "Keras has no stride and dilation both above 1: dilate with strides 1 and slice the output, [::stride]"
GROUPS = "Keras's transposed convolutions have one group: split the channels over several layers"


def rank_of(name: str) -> int:
    """The number of spatial axes of ``Conv2d`` or ``max_pool2d``."""
    return int(name.rstrip("d")[-1])


def several(value: object, rank: int) -> tuple[int, ...]:
    """One number per axis."""
    if isinstance(value, (tuple, list)):
        return tuple(int(each) for each in value) * (rank if len(value) == 1 else 1)
    return (int(value),) * rank if isinstance(value, int) else (1,) * rank


def convolution(name: str, told: Settings, given: Given) -> Counterpart:
    """``Conv1d``, ``Conv2d`` and ``Conv3d``, also depthwise."""
    rank = rank_of(name)
    kernel, stride, dilation = (several(told.get(key, 1), rank) for key in ("kernel_size", "stride", "dilation"))
    groups, into, out = told.get("groups", 1), told["in_channels"], told["out_channels"]
    depthwise = groups == into > 1 and rank < 3
    kind = f"{'depthwise_' if depthwise else ''}conv{rank}d"
    if max(stride) > 1 and max(dilation) > 1:
        return Counterpart(kind, (), (BOTH,))
    axes = [Axis(d * (k - 1) + 1, s) for k, s, d in zip(kernel, stride, dilation, strict=True)]
    mode, widths = told.get("padding_mode", "zeros"), _widths(told.get("padding", 0), axes)
    padding, before, notes = _padded(axes, widths, mode, given)
    shared = {"strides": stride, "padding": padding, "dilation_rate": dilation, "use_bias": bool(told.get("bias"))}
    origin = {"strides": "stride", "dilation_rate": "dilation", "use_bias": "bias"}
    if depthwise:
        own = layer(
            f"DepthwiseConv{rank}D", {"kernel_size": kernel, "depth_multiplier": out // into, **shared}, **origin
        )
    else:
        own = layer(
            f"Conv{rank}D", {"filters": out, "kernel_size": kernel, "groups": groups, **shared}, groups="groups",
            **origin,
        )  # fmt: skip
    return Counterpart(kind, (*before, own), tuple(notes))


def _widths(padding: object, axes: Sequence[Axis]) -> Widths:
    if padding == "same":
        return tuple(((axis.reach - 1) // 2, axis.reach // 2) for axis in axes)
    sizes = (0,) * len(axes) if isinstance(padding, str) else several(padding, len(axes))
    return tuple((size, size) for size in sizes)


def _padded(
    axes: Sequence[Axis], widths: Widths, mode: str, given: Given
) -> tuple[str, tuple[KerasCall, ...], list[str]]:
    """The layer's own padding, the padding before it, and notes."""
    if not any(any(each) for each in widths):
        return "valid", (), []
    if mode == "zeros" and all(agree(axis, *each) for axis, each in zip(axes, widths, strict=True)):
        return "same", (), []
    notes = []
    if mode == "zeros" and max(axis.stride for axis in axes) > 1:
        notes.append(_uneven(axes, widths, given))
    return "valid", (padding_call(widths, mode),), notes


def _uneven(axes: Sequence[Axis], widths: Widths, given: Given) -> str:
    text = 'padding="same" with a stride pads as needed, more at the end; PyTorch pads both sides equally'
    if _alike(axes, widths, False, given):
        return f"{text} (on inputs of this size they agree)"
    return text


def agree(axis: Axis, before: int, after: int, ceil: bool = False) -> bool:
    """Whether Keras's ``same`` has the windows of this padding for inputs of every size."""
    sizes = range(axis.reach, axis.reach + 4 * axis.stride + 1)
    return all(axis.same(size) == axis.padded(size, before, after, ceil) for size in sizes)


def padding_call(widths: Widths, mode: str = "zeros", value: float = 0.0) -> KerasCall:
    """The layer or function that pads a channels-last image."""
    rank = len(widths)
    if mode in ("zeros", "constant") and not value:
        return layer(f"ZeroPadding{rank}D", {"padding": sides(widths)})
    arguments: dict[str, object] = {"pad_width": ((0, 0), *widths, (0, 0))}
    if MODES[mode] != "constant":
        arguments["mode"] = MODES[mode]
    if value:
        arguments["constant_values"] = value
    return KerasCall("ops.pad", arguments)


def sides(widths: Widths) -> object:
    """Widths in the form of Keras's layers."""
    if len({width for each in widths for width in each}) == 1:
        return widths[0][0]
    if len(widths) == 1:
        return widths[0]
    return tuple(before for before, _ in widths) if all(a == b for a, b in widths) else widths


def transposed(name: str, told: Settings, given: Given) -> Counterpart:
    """``ConvTranspose1d`` and so on: Keras's output with ``valid``, cropped as in PyTorch."""
    rank = rank_of(name)
    kind = f"conv_transpose{rank}d"
    kernel, stride, dilation = (several(told.get(key, 1), rank) for key in ("kernel_size", "stride", "dilation"))
    taken, more = several(told.get("padding", 0), rank), several(told.get("output_padding", 0), rank)
    if told.get("groups", 1) != 1:
        return Counterpart(kind, (), (GROUPS,))
    if max(stride) > 1 and max(dilation) > 1:
        return Counterpart(kind, (), (BOTH,))
    reaches = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    same = any(taken) and not any(more) and all(
        reach - step == 2 * cut for reach, step, cut in zip(reaches, stride, taken, strict=True)
    )  # fmt: skip
    arguments = {
        "filters": told["out_channels"], "kernel_size": kernel, "strides": stride,
        "padding": "same" if same else "valid", "dilation_rate": dilation, "use_bias": bool(told.get("bias")),
    }  # fmt: skip
    own = layer(f"Conv{rank}DTranspose", arguments, strides="stride", dilation_rate="dilation", use_bias="bias")
    # Keras's output has n * stride + max(reach - stride, 0) places, PyTorch's (n - 1) * stride + reach, then cut.
    cuts = tuple(
        (cut, max(step - reach, 0) + cut - extra)
        for reach, step, cut, extra in zip(reaches, stride, taken, more, strict=True)
    )
    notes = ("output_size sets output_padding in this call",) if "output_size" in given.arguments else ()
    if same or not any(any(each) for each in cuts):
        return Counterpart(kind, (own,), notes)
    if any(after < 0 for _, after in cuts):
        more = tuple(max(-after, 0) for _, after in cuts)
        beyond = f"{own}, and behind it {more} more places of the bias (zeros without one), for output_padding"
        return Counterpart(kind, (), (*notes, beyond))
    return Counterpart(kind, (own, layer(f"Cropping{rank}D", {"cropping": sides(cuts)})), notes)


def pooling(name: str, told: Settings, given: Given) -> Counterpart:
    """``MaxPool2d``, ``AvgPool2d`` and the others."""
    rank, largest = rank_of(name), name.startswith("Max")
    kernel = several(told["kernel_size"], rank)
    stride = kernel if told.get("stride") in (None, ()) else several(told["stride"], rank)
    kind = f"{'max' if largest else 'avg'}_pool{rank}d"
    if why := _unpooled(told, rank):
        return Counterpart(kind, (), (why,))
    axes = [Axis(k, s) for k, s in zip(kernel, stride, strict=True)]
    widths = tuple((each, each) for each in several(told.get("padding", 0), rank))
    ceil, counted = bool(told.get("ceil_mode")), not largest and bool(told.get("count_include_pad", True))
    notes = [] if not ceil else [_rounded(axes, widths, largest, given)]
    pools = {"pool_size": kernel, "strides": None if stride == kernel else stride}
    own = f"{'Max' if largest else 'Average'}Pooling{rank}D"

    def made(padding: str, *before: KerasCall) -> Counterpart:
        call = layer(own, {**pools, "padding": padding}, pool_size="kernel_size", strides="stride")
        return Counterpart(kind, (*before, call), tuple(filter(None, notes)))

    padded = any(any(each) for each in widths)
    everywhere = all(agree(axis, *each, ceil) for axis, each in zip(axes, widths, strict=True))
    if everywhere and (padded or ceil) and not (padded and counted):
        notes = []
        return made("same")
    behind = _behind(axes, widths, given) if ceil else (0,) * rank
    if behind is None:
        return Counterpart(kind, (), (*notes, "how much to pad behind depends on the size, which is not known here"))
    whole = tuple((before, after + more) for (before, after), more in zip(widths, behind, strict=True))
    if not any(any(each) for each in whole):
        return made("valid")
    if largest:
        return made("valid", padding_call(whole, "constant", -inf))
    if counted and not any(behind):
        return made("valid", padding_call(whole))
    if _alike(axes, widths, ceil, given) and not (padded and counted):
        notes.append('padding="same" counts as PyTorch does only on inputs of this size')
        return made("same")
    return Counterpart(kind, (), (*notes, "no pooling of Keras counts so: pad, pool sums and ones, and divide"))


def _unpooled(told: Settings, rank: int) -> str:
    if max(several(told.get("dilation", 1), rank)) > 1:
        return "Keras's windows have no gaps: use ops.max of slices"
    if told.get("return_indices"):
        return "Keras's layer returns only values, without indices"
    return "Keras divides by the window: multiply behind the layer" if told.get("divisor_override") else ""


def _behind(axes: Sequence[Axis], widths: Widths, given: Given) -> tuple[int, ...] | None:
    """How far the last windows of ``ceil_mode`` extend beyond the padded input of this size."""
    sizes = given.shape[2:]
    if len(sizes) != len(axes):
        return None
    found = []
    for axis, (before, after), size in zip(axes, widths, sizes, strict=True):
        windows: Windows = axis.padded(int(size), before, after, ceil=True)
        found.append(max((windows.count - 1) * axis.stride + axis.reach - (int(size) + before + after), 0))
    return tuple(found)


def _rounded(axes: Sequence[Axis], widths: Widths, largest: bool, given: Given) -> str:
    behind = _behind(axes, widths, given)
    if behind is not None and not any(behind):
        return "ceil_mode makes no difference on inputs of this size"
    filled = " with -inf" if largest else ""
    text = f"ceil_mode rounds up, Keras down: pad behind{filled}, as much as the size asks for"
    return f'{text}; padding="same" does so on this size' if _alike(axes, widths, True, given) else text


def _alike(axes: Sequence[Axis], widths: Widths, ceil: bool, given: Given) -> bool:
    """Whether Keras's ``same`` has the windows of this padding for inputs of the recorded size."""
    sizes = given.shape[2:]
    return len(sizes) == len(axes) and all(
        axis.same(int(size)) == axis.padded(int(size), *each, ceil)
        for axis, size, each in zip(axes, sizes, widths, strict=True)
    )


def adaptive(name: str, told: Settings, given: Given) -> Counterpart:
    """``AdaptiveAvgPool2d`` and so on; to a size of one they are global poolings."""
    rank, largest = rank_of(name), "Max" in name
    if told.get("return_indices"):
        return Counterpart("", (), ("Keras's layer returns values alone, without indices",))
    size = told["output_size"] if isinstance(told["output_size"], (tuple, list)) else (told["output_size"],) * rank
    if set(size) == {1}:
        word = "Max" if largest else "Average"
        return Counterpart("", (layer(f"Global{word}Pooling{rank}D", {"keepdims": True}),),
                           ("keepdims is false in Keras, whose layer gives b c then",))  # fmt: skip
    sizes = tuple(given.shape[at + 2] if each is None else each for at, each in enumerate(size))
    word = "Max" if largest else "Average"
    return Counterpart("", (layer(f"Adaptive{word}Pooling{rank}D", {"output_size": tuple(map(int, sizes))}),))
