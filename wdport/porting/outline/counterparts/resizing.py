"""Padding, cropping, upsampling and depth to space."""

from __future__ import annotations

from collections.abc import Mapping

from wdport.porting.outline.axes import SPACES
from wdport.porting.outline.counterparts.counterpart import Counterpart, Given, layer
from wdport.porting.outline.counterparts.windows import Widths, padding_call, rank_of, several, sides
from wdport.porting.outline.settings import Settings

_MODES: Mapping[str, str] = {
    "ZeroPad": "constant", "ConstantPad": "constant", "ReflectionPad": "reflect", "ReplicationPad": "replicate",
    "CircularPad": "circular",
}  # fmt: skip

ORDER = "PyTorch lists the widths of the last axis first"


def padding(name: str, told: Settings, given: Given) -> Counterpart:
    """``ZeroPad2d`` and the other layers that pad."""
    mode = next(mode for prefix, mode in _MODES.items() if name.startswith(prefix))
    rank = rank_of(name)
    widths = told["padding"] if isinstance(told["padding"], (tuple, list)) else (told["padding"],) * (2 * rank)
    return padded(widths, mode, float(told.get("value") or 0.0), rank)


def padded(listed: object, mode: str, value: float, rank: int) -> Counterpart:
    """A padding of ``rank`` spatial axes whose widths are listed as PyTorch lists them."""
    numbers = [int(each) for each in listed] if isinstance(listed, (tuple, list)) else []
    pairs = [(numbers[at], numbers[at + 1]) for at in range(0, len(numbers) - 1, 2)]
    widths: Widths = tuple([*pairs, *[(0, 0)] * (rank - len(pairs))][::-1])
    notes = (ORDER,) if len(set(widths)) > 1 else ()
    flat = [width for each in widths for width in each]
    if len(widths) > rank:
        return Counterpart("", (), ("it pads channels or the batch: ops.pad with their axes where they are in Keras",))
    if max(flat) <= 0:
        cut = tuple((-before, -after) for before, after in widths)
        return Counterpart("", (layer(f"Cropping{rank}D", {"cropping": sides(cut)}),), notes)
    if min(flat) < 0:
        return Counterpart("", (), (*notes, "it crops and pads: a Cropping and a padding"))
    return Counterpart("", (padding_call(widths, mode, value),), notes)


def upsampling(name: str, told: Settings, given: Given) -> Counterpart:
    """``Upsample`` and ``interpolate``, by whole factors."""
    rank = len(given.shape) - 2
    mode, factors = told.get("mode", "nearest"), _factors(told, given, rank)
    if name.startswith("Upsampling"):
        mode = "nearest" if "Nearest" in name else "bilinear"
    if mode == "bicubic":
        return Counterpart("", (), ("Keras's bicubic kernel has a = -0.5, PyTorch's a = -0.75",))
    if told.get("align_corners") or name == "UpsamplingBilinear2d":
        return Counterpart("", (), ("Keras's grid is that of align_corners=False",))
    if factors is None or mode not in ("nearest", "nearest-exact", "bilinear") or (mode == "bilinear" and rank != 2):
        what = "the factor is not a whole number" if factors is None else f"Keras has no {mode} of {rank} axes"
        return Counterpart("", (), (f"{what}: gather rows and columns, or multiply with a matrix of weights",))
    arguments: dict[str, object] = {"size": factors if rank > 1 else factors[0]}
    if mode == "bilinear":
        arguments["interpolation"] = mode
    return Counterpart("", (layer(f"UpSampling{rank}D", arguments),))


def _factors(told: Settings, given: Given, rank: int) -> tuple[int, ...] | None:
    """The scale factor along every axis, if all are integers."""
    if told.get("size") is not None:
        sizes = several(told["size"], rank)
        if any(size % old for size, old in zip(sizes, given.shape[2:], strict=True)):
            return None
        return tuple(size // int(old) for size, old in zip(sizes, given.shape[2:], strict=True))
    factor = told.get("scale_factor")
    found = list(factor) if isinstance(factor, (tuple, list)) else [factor] * rank
    whole = [int(each) for each in found if each is not None and not float(each) % 1]
    return tuple(whole) if len(whole) == rank else None


def shuffle(name: str, told: Settings, given: Given) -> Counterpart:
    """Pixel shuffle and unshuffle, and channel shuffle, for which Keras has no layers."""
    spaces = SPACES[2]
    h, w = spaces
    if name == "ChannelShuffle":
        return Counterpart("", (), (f"groups is {told['groups']}",), f"b {h} {w} (groups c) -> b {h} {w} (c groups)")
    factor = told.get("upscale_factor", told.get("downscale_factor"))
    deep, wide = f"b {h} {w} (c r s)", f"b ({h} r) ({w} s) c"
    sides = (deep, wide) if name == "PixelShuffle" else (wide, deep)
    note = f"r and s are {factor}; TensorFlow's depth_to_space has another order of channels"
    return Counterpart("", (), (note,), " -> ".join(sides))
