"""Dense layers and embeddings."""

from __future__ import annotations

from wdport.mapping.axes import layouts, rules
from wdport.mapping.kinds.kind import (
    Axes,
    Compared,
    Counterpart,
    Kind,
    Part,
    Settings,
    TorchCall,
    TorchFunction,
    keras_group,
    layer,
    torch_classes,
)


def _linear(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    arguments = {"units": settings["out_features"], "use_bias": bool(settings.get("bias"))}
    order = _flattened(call.axes)
    notes = (f"reads a flattened image: its row needs {order}",) if order else ()
    return Counterpart((layer("Dense", arguments, use_bias="bias"),), notes)


def _flattened(axes: Axes | None) -> str:
    """The fields that a layer's row needs if the last of these axes, which it reads, is a flattened image:
    ``flatten: "c h w -> h w c", sizes: {h: 3, w: 3}``; otherwise ""."""
    # Channels last moves the channels in the flattened axis to its end, so the rows of the weight must move with them.
    group = axes[-1] if axes else ()
    if len(group) < 2 or not any(atom.space >= 0 for atom in group) or not any(atom.channel for atom in group):
        return ""
    if group == keras_group(group):
        return ""
    sizes = ", ".join(f"{atom.name}: {atom.size}" for atom in group if atom.space >= 0)
    torch, keras = (" ".join(atom.name for atom in order) for order in (group, keras_group(group)))
    return f'flatten: "{torch} -> {keras}", sizes: {{{sizes}}}'


def _embedding(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    if settings.get("max_norm") is not None:
        return Counterpart((), ("Keras looks rows up as they are: carry max_norm out on the table",))
    notes: tuple[str, ...] = ()
    if (row := settings.get("padding_idx")) is not None:
        notes = (f"padding_idx {row} is a row as any other in inference; Keras's mask_zero is a mask",)
    sizes = {"input_dim": settings["num_embeddings"], "output_dim": settings["embedding_dim"]}
    return Counterpart((layer("Embedding", sizes),), notes)


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
    torch=torch_classes("Linear", output="features"),
    functions=(
        TorchFunction(
            "linear",
            "Linear",
            ("input", "weight", "bias"),
            lambda shape, arguments: {"out_features": shape[0], "in_features": shape[1]},
        ),
    ),
    keras=("Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D"),
    call=_linear,
    activates=True,
    note="a Dense layer, or a convolution with a kernel size of 1",
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
    torch=torch_classes("Embedding", output="features"),
    functions=(
        TorchFunction(
            "embedding",
            "Embedding",
            ("input", "weight", "padding_idx", "max_norm"),
            lambda shape, arguments: {"num_embeddings": shape[0], "embedding_dim": shape[1]},
        ),
    ),
    keras=("Embedding",),
    call=_embedding,
)

ALL = (LINEAR, EMBEDDING)
