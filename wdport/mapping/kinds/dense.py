"""Dense layers and embeddings."""

from __future__ import annotations

from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Compared, Kind, Part, TorchFunction, torch_classes

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
    functions=(
        TorchFunction(
            "linear",
            "Linear",
            ("input", "weight", "bias"),
            lambda shape, arguments: {"out_features": shape[0], "in_features": shape[1]},
        ),
    ),
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
    functions=(
        TorchFunction(
            "embedding",
            "Embedding",
            ("input", "weight", "padding_idx", "max_norm"),
            lambda shape, arguments: {"num_embeddings": shape[0], "embedding_dim": shape[1]},
        ),
    ),
    keras=("Embedding",),
)

ALL = (LINEAR, EMBEDDING)
