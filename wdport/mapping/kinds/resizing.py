"""Layers that move or repeat values: upsampling, padding, cropping, and poolings to a given size.

They have no weights, so a table does not name their kinds; if a row without a kind joins two of them, their settings
are compared.
"""

from __future__ import annotations

from wdport.mapping.kinds.kind import Compared, Kind, LayerCall, TorchFunction, torch_classes

_FORMAT = Compared("", "data_format", "channels")


def _ranks(name: str, suffix: str = "D") -> tuple[str, ...]:
    return tuple(f"{name}{rank}{suffix}" for rank in (1, 2, 3))


def _adaptive(which: str, keras: str) -> Kind:
    return Kind(
        f"adaptive_{which}_pool",
        compared=(Compared("output_size", "output_size", "tuple"), _FORMAT),
        torch=torch_classes(*_ranks(f"Adaptive{which.title()}Pool", "d")),
        functions=tuple(
            TorchFunction(
                f"adaptive_{which}_pool{rank}d", f"Adaptive{which.title()}Pool{rank}d", ("input", "output_size")
            )
            for rank in (1, 2, 3)
        ),
        keras=_ranks(f"Adaptive{keras}Pooling"),
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
        torch=torch_classes("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"),
        functions=(
            TorchFunction(
                "interpolate",
                "Upsample",
                ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"),
            ),
        ),
        keras=_ranks("UpSampling"),
        evident=False,
    ),
    Kind(
        "pad",
        compared=(Compared("padding", "padding", "margins"), Compared("value", "", "none"), _FORMAT),
        torch=torch_classes(*_ranks("ZeroPad", "d"), *_ranks("ConstantPad", "d")),
        keras=_ranks("ZeroPadding"),
        evident=False,
    ),
    Kind(
        "pad_edges",  # Keras has no layer for it, but keras.ops.pad
        torch=torch_classes(*(n for of in ("Reflection", "Replication", "Circular") for n in _ranks(f"{of}Pad", "d"))),
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
        torch=torch_classes("PixelShuffle", "PixelUnshuffle", "ChannelShuffle"),
        functions=(
            TorchFunction("pixel_shuffle", "PixelShuffle", ("input", "upscale_factor")),
            TorchFunction("pixel_unshuffle", "PixelUnshuffle", ("input", "downscale_factor")),
            TorchFunction("channel_shuffle", "ChannelShuffle", ("input", "groups")),
        ),
        evident=False,
    ),
    Kind("identity", torch=torch_classes("Identity"), keras=("Identity",), call=LayerCall("Identity"), evident=False),
)
