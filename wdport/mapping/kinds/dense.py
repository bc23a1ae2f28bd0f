"""Dense layers, embeddings, and layers without weights."""

from __future__ import annotations

from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Compared, Kind, Part

_SPATIAL = ("l", "h w", "d h w")
# Four axes are an image; three are a sequence, whose features come last in both unless the shapes say otherwise.
_ANY = layouts("b c h w -> b h w c", "b c d h w -> b d h w c", "...", "b c l -> b l c")

LINEAR = Kind(
    "linear",
    (
        Part(
            ("{weight}",),
            ("kernel",),
            # A dense layer may also be a convolution with a window of one.
            rules("linear", "out in -> 1 in out", "out in -> 1 1 in out", "out in -> 1 1 1 in out"),
            flatten="out ({torch}) -> ({keras}) out",
            normed=True,
        ),
        Part(("{bias}",), ("bias",), rules("identity")),
    ),
    layouts("..."),
    (
        Compared("out_features", "units", "equal"),
        Compared("out_features", "filters", "equal"),
        Compared("bias", "use_bias", "present"),
        *(Compared("", name, "unit") for name in ("kernel_size", "strides", "groups")),
    ),
    {"weight": "weight", "bias": "bias"},
)

EMBEDDING = Kind(
    "embedding",
    (Part(("{weight}",), ("embeddings",), rules("identity"), normed=True),),
    layouts("..."),
    (
        Compared("num_embeddings", "input_dim", "equal"),
        Compared("embedding_dim", "output_dim", "equal"),
        Compared("max_norm", "", "none"),
        Compared("padding_idx", "mask_zero", "masked"),
        Compared("padding_idx", "", "is", "training"),
        Compared("scale_grad_by_freq", "", "none", "training"),
    ),
    {"weight": "weight"},
)


def _pool(name: str, spatial: str, *more: Compared) -> Kind:
    return Kind(
        name,
        axes=layouts(f"b c {spatial} -> b {spatial} c", f"b c {spatial}"),
        compared=(
            Compared("kernel_size", "pool_size", "tuple"),
            Compared("stride", "strides", "tuple"),
            Compared("padding", "padding", "padding"),
            Compared("ceil_mode", "padding", "ceil"),
            Compared("", "data_format", "channels"),
            *more,
        ),
        padded="any" if name.startswith("max") else "zeros",
    )


_MAX = (Compared("dilation", "", "ones"), Compared("return_indices", "", "none"))
_MEAN = (Compared("count_include_pad", "padding", "counted"), Compared("divisor_override", "", "none"))

_ACTIVATION = (Compared("negative_slope", "negative_slope", "equal"), Compared("alpha", "alpha", "equal"))

ALL = (
    LINEAR,
    EMBEDDING,
    *(_pool(f"max_pool{rank}d", spatial, *_MAX) for rank, spatial in enumerate(_SPATIAL, 1)),
    *(
        _pool(f"avg_pool{rank}d", spatial, *(_MEAN[: 1 if rank == 1 else 2]))
        for rank, spatial in enumerate(_SPATIAL, 1)
    ),
    Kind("activation", axes=_ANY, compared=_ACTIVATION),
    Kind("dropout", axes=_ANY, compared=(Compared("p", "rate", "equal", "training"),)),
    Kind("flatten", compared=(Compared("", "data_format", "flat"),), flatten="b ({torch}) -> b ({keras})"),
    Kind("sequential"),
)
