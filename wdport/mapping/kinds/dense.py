"""Dense layers, embeddings, and layers without weights."""

from __future__ import annotations

from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Compared, Kind, Part, torch_classes

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
    torch=torch_classes("Linear"),
    keras=("Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D"),
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
    torch=torch_classes("Embedding"),
    keras=("Embedding",),
)


def _pool(which: str, rank: int, *more: Compared) -> Kind:
    spatial = _SPATIAL[rank - 1]
    return Kind(
        f"{which}_pool{rank}d",
        torch=torch_classes(f"{which.title()}Pool{rank}d"),
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
    )


_MAX = (Compared("dilation", "", "ones"), Compared("return_indices", "", "none"))
_MEAN = (Compared("count_include_pad", "padding", "counted"), Compared("divisor_override", "", "none"))

_ACTIVATION = (Compared("negative_slope", "negative_slope", "equal"), Compared("alpha", "alpha", "equal"))

ALL = (
    LINEAR,
    EMBEDDING,
    *(_pool("max", rank, *_MAX) for rank in (1, 2, 3)),
    *(_pool("avg", rank, *(_MEAN[: 1 if rank == 1 else 2])) for rank in (1, 2, 3)),
    Kind("activation", axes=_ANY, compared=_ACTIVATION, evident=False),
    Kind(
        "dropout",
        axes=_ANY,
        compared=(Compared("p", "rate", "equal", "training"),),
        torch=torch_classes("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"),
        keras=("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "AlphaDropout"),
        evident=False,
    ),
    Kind(
        "flatten",
        compared=(Compared("", "data_format", "flat"),),
        flatten="b ({torch}) -> b ({keras})",
        torch=torch_classes("Flatten"),
        keras=("Flatten",),
        evident=False,
    ),
    Kind("sequential", torch=torch_classes("Sequential"), keras=("Sequential",), evident=False),
)
