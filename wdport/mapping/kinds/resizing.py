"""Layers that move or repeat values: upsampling, padding, cropping, and poolings to a given size.

They have no weights, so a table does not name their kinds; if a row without a kind joins two of them, their settings
are compared.
"""

from __future__ import annotations

from wdport.mapping.kinds.kind import (
    SPACES,
    Compared,
    Counterpart,
    Kind,
    LayerCall,
    Settings,
    TorchCall,
    TorchFunction,
    layer,
    torch_classes,
)
from wdport.mapping.kinds.windows import Widths, padding_call, rank_of, several, sides

_FORMAT = Compared("", "data_format", "channels")


def _ranks(name: str, suffix: str = "D") -> tuple[str, ...]:
    return tuple(f"{name}{rank}{suffix}" for rank in (1, 2, 3))


_MODES = {
    "ZeroPad": "zeros", "ConstantPad": "zeros", "ReflectionPad": "reflect", "ReplicationPad": "replicate",
    "CircularPad": "circular",
}  # fmt: skip

PADDING_ORDER = "PyTorch lists the widths of the last axis first"


def _padding(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``ZeroPad2d`` and the other layers that pad."""
    mode, rank = _MODES[name[:-2]], rank_of(name)
    listed = settings["padding"]
    widths = listed if isinstance(listed, (tuple, list)) else (listed,) * (2 * rank)
    return padding(widths, mode, float(settings.get("value") or 0.0), rank)


def padding(listed: object, mode: str, value: float, rank: int) -> Counterpart:
    """A padding of ``rank`` spatial axes whose widths are listed as PyTorch lists them."""
    numbers = [int(number) for number in listed] if isinstance(listed, (tuple, list)) else []
    pairs = [(numbers[index], numbers[index + 1]) for index in range(0, len(numbers) - 1, 2)]
    # PyTorch may list fewer pairs than there are axes: the first axes are then not padded.
    widths: Widths = tuple([*pairs, *[(0, 0)] * (rank - len(pairs))][::-1])
    notes = (PADDING_ORDER,) if len(set(widths)) > 1 else ()
    flat = [width for pair in widths for width in pair]
    if len(widths) > rank:
        return Counterpart((), ("it pads channels or the batch: ops.pad with their axes where they are in Keras",))
    if max(flat) <= 0:
        cut = tuple((-before, -after) for before, after in widths)
        return Counterpart((layer(f"Cropping{rank}D", {"cropping": sides(cut)}),), notes)
    if min(flat) < 0:
        return Counterpart((), (*notes, "it crops and pads: a Cropping and a padding"))
    return Counterpart((padding_call(widths, mode, value),), notes)


def _upsampling(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``Upsample`` and ``interpolate``, by whole factors."""
    rank = len(call.shape) - 2
    mode, factors = settings.get("mode", "nearest"), _factors(settings, call, rank)
    if name.startswith("Upsampling"):
        mode = "nearest" if "Nearest" in name else "bilinear"
    if mode == "bicubic":
        return Counterpart((), ("Keras's bicubic kernel has a = -0.5, PyTorch's a = -0.75",))
    if settings.get("align_corners") or name == "UpsamplingBilinear2d":
        return Counterpart((), ("Keras's grid is that of align_corners=False",))
    if factors is None or mode not in ("nearest", "nearest-exact", "bilinear") or (mode == "bilinear" and rank != 2):
        what = "the factor is not a whole number" if factors is None else f"Keras has no {mode} of {rank} axes"
        return Counterpart((), (f"{what}: gather rows and columns, or multiply with a matrix of weights",))
    arguments: dict[str, object] = {"size": factors if rank > 1 else factors[0]}
    if mode == "bilinear":
        arguments["interpolation"] = mode
    return Counterpart((layer(f"UpSampling{rank}D", arguments),))


def _factors(settings: Settings, call: TorchCall, rank: int) -> tuple[int, ...] | None:
    """The scale factor along every axis, if all are integers."""
    if settings.get("size") is not None:
        sizes = several(settings["size"], rank)
        # PyTorch repeats unevenly if the sizes are not multiples, which no Keras layer does.
        if any(size % old for size, old in zip(sizes, call.shape[2:], strict=True)):
            return None
        return tuple(size // int(old) for size, old in zip(sizes, call.shape[2:], strict=True))
    factor = settings.get("scale_factor")
    factors = list(factor) if isinstance(factor, (tuple, list)) else [factor] * rank
    integers = [int(factor) for factor in factors if factor is not None and not float(factor) % 1]
    return tuple(integers) if len(integers) == rank else None


def _shuffle(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """Pixel shuffle and unshuffle, and channel shuffle, for which Keras has no layers."""
    h, w = SPACES[2]
    if name == "ChannelShuffle":
        move = f"b {h} {w} (groups c) -> b {h} {w} (c groups)"
        return Counterpart((), (f"groups is {settings['groups']}",), move=move)
    factor = settings.get("upscale_factor", settings.get("downscale_factor"))
    deep, wide = f"b {h} {w} (c r s)", f"b ({h} r) ({w} s) c"
    move = f"{deep} -> {wide}" if name == "PixelShuffle" else f"{wide} -> {deep}"
    note = f"r and s are {factor}; TensorFlow's depth_to_space has another order of channels"
    return Counterpart((), (note,), move=move)


def _adaptive_pooling(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``AdaptiveAvgPool2d`` and so on; to a size of one they are global poolings."""
    rank, keras = rank_of(name), "Max" if "Max" in name else "Average"
    if settings.get("return_indices"):
        return Counterpart((), ("Keras's layer returns only values, without indices",))
    listed = settings["output_size"]
    sizes = listed if isinstance(listed, (tuple, list)) else (listed,) * rank
    if set(sizes) == {1}:
        note = "keepdims is false in Keras, whose layer gives b c then"
        return Counterpart((layer(f"Global{keras}Pooling{rank}D", {"keepdims": True}),), (note,))
    output = tuple(int(call.shape[axis + 2] if size is None else size) for axis, size in enumerate(sizes))
    return Counterpart((layer(f"Adaptive{keras}Pooling{rank}D", {"output_size": output}),))


def _adaptive(which: str, keras: str) -> Kind:
    return Kind(
        f"adaptive_{which}_pool",
        compared=(Compared("output_size", "output_size", "tuple"), _FORMAT),
        torch=torch_classes(*_ranks(f"Adaptive{which.title()}Pool", "d"), output="image"),
        functions=tuple(
            TorchFunction(
                f"adaptive_{which}_pool{rank}d",
                f"Adaptive{which.title()}Pool{rank}d",
                ("input", "output_size"),
                aliases=(f"adaptive_{which}_pool{rank}d_with_indices",),
            )
            for rank in (1, 2, 3)
        ),
        keras=_ranks(f"Adaptive{keras}Pooling"),
        call=_adaptive_pooling,
        evident=False,
    )


ALL = (
    Kind(
        "upsample",
        compared=(
            Compared("scale_factor", "size", "tuple"),
            Compared("mode", "interpolation", "equal"),
            Compared("mode", "", "not", value="bicubic"),  # Keras's kernel has a = -0.5, PyTorch's a = -0.75
            Compared("align_corners", "", "none"),
            _FORMAT,
        ),
        torch=torch_classes("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d", output="image"),
        functions=(
            TorchFunction(
                "interpolate",
                "Upsample",
                ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"),
                aliases=("upsample",),
            ),
        ),
        keras=_ranks("UpSampling"),
        call=_upsampling,
        evident=False,
    ),
    Kind(
        "pad",
        compared=(Compared("padding", "padding", "margins"), Compared("value", "", "none"), _FORMAT),
        torch=torch_classes(*_ranks("ZeroPad", "d"), *_ranks("ConstantPad", "d"), output="image"),
        keras=_ranks("ZeroPadding"),
        call=_padding,
        evident=False,
    ),
    Kind(
        "pad_edges",  # Keras has no layer for it, but keras.ops.pad
        torch=torch_classes(
            *(name for mode in ("Reflection", "Replication", "Circular") for name in _ranks(f"{mode}Pad", "d")),
            output="image",
        ),
        call=_padding,
        evident=False,
    ),
    Kind(
        "crop",
        compared=(Compared("padding", "cropping", "margins"), _FORMAT),
        torch=torch_classes(*_ranks("ZeroPad", "d")),
        keras=_ranks("Cropping"),
        evident=False,
    ),
    _adaptive("avg", "Average"),
    _adaptive("max", "Max"),
    # Keras has no layers for these; the counterpart is a rearrangement.
    Kind(
        "shuffle",
        torch=(*torch_classes("PixelShuffle", "PixelUnshuffle", output="image"), *torch_classes("ChannelShuffle")),
        functions=(
            TorchFunction("pixel_shuffle", "PixelShuffle", ("input", "upscale_factor")),
            TorchFunction("pixel_unshuffle", "PixelUnshuffle", ("input", "downscale_factor")),
            TorchFunction("channel_shuffle", "ChannelShuffle", ("input", "groups")),
        ),
        call=_shuffle,
        evident=False,
    ),
    Kind("identity", torch=torch_classes("Identity"), keras=("Identity",), call=LayerCall("Identity"), evident=False),
)
