"""Layers without weights and without a kind: which classes of the two libraries correspond, and their settings.

A row without a kind compares only outputs. If the module is one of PyTorch's, its settings are compared too.
"""

from __future__ import annotations

from dataclasses import dataclass

from wdport.mapping.kinds.kind import Compared


@dataclass(frozen=True)
class Alike:
    """Classes of ``torch.nn`` and of ``keras.layers`` that correspond in any combination, and their settings."""

    torch: tuple[str, ...]
    keras: tuple[str, ...]
    compared: tuple[Compared, ...]


_FORMAT = Compared("", "data_format", "channels")


def _ranks(name: str, suffix: str = "D") -> tuple[str, ...]:
    return tuple(f"{name}{rank}{suffix}" for rank in (1, 2, 3))


_WINDOWED = {"Conv": "conv", "ConvTranspose": "conv_transpose", "MaxPool": "max_pool", "AvgPool": "avg_pool"}

KIND_OF = {
    "LayerNorm": "layer_norm",
    "RMSNorm": "rms_norm",
    "GroupNorm": "group_norm",
    **dict.fromkeys(_ranks("BatchNorm", "d"), "batch_norm"),
    "Linear": "linear",
    **{f"{name}{rank}d": f"{kind}{rank}d" for rank in (1, 2, 3) for name, kind in _WINDOWED.items()},
    "Embedding": "embedding",
    "MultiheadAttention": "attention_packed",
    "PReLU": "prelu",
}
"""The kind of a class of ``torch.nn`` if the table's row states none, for example of a norm without weights."""

UNKINDED = (
    Alike(
        ("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"),
        _ranks("UpSampling"),
        (
            Compared("scale_factor", "size", "tuple"),
            Compared("mode", "interpolation", "equal"),
            Compared("mode", "", "not", value="bicubic"),  # Keras's kernel has a = -0.5, PyTorch's a = -0.75
            Compared("align_corners", "", "none"),
            _FORMAT,
        ),
    ),
    Alike(
        (*_ranks("ZeroPad", "d"), *_ranks("ConstantPad", "d")),
        _ranks("ZeroPadding"),
        (Compared("padding", "padding", "margins"), Compared("value", "", "none"), _FORMAT),
    ),
    Alike(_ranks("ZeroPad", "d"), _ranks("Cropping"), (Compared("padding", "cropping", "margins"), _FORMAT)),
    Alike(
        _ranks("AdaptiveAvgPool", "d"),
        _ranks("AdaptiveAveragePooling"),
        (Compared("output_size", "output_size", "tuple"), _FORMAT),
    ),
    Alike(
        _ranks("AdaptiveMaxPool", "d"),
        _ranks("AdaptiveMaxPooling"),
        (Compared("output_size", "output_size", "tuple"), _FORMAT),
    ),
    Alike(
        ("Dropout", *_ranks("Dropout", "d"), "AlphaDropout"),
        ("Dropout", *_ranks("SpatialDropout"), "AlphaDropout"),
        (Compared("p", "rate", "equal", "training"),),
    ),
)
"""Classes that are compared without a kind. Activations are compared by their values, see
:mod:`wdport.compare.functions`."""
