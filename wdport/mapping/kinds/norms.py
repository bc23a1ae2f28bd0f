"""Normalizations, and PReLU, whose weight is also one number per channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wdport.mapping.axes import Rule, layouts, rules
from wdport.mapping.kinds.kind import (
    Arguments,
    Compared,
    Counterpart,
    Kind,
    Part,
    Settings,
    Shape,
    TorchCall,
    TorchClass,
    TorchFunction,
    keras_permutation,
    layer,
    torch_classes,
)

_NAMES = {"weight": "weight", "bias": "bias"}
_EPSILON = tuple(Compared(name, "epsilon", "epsilon") for name in ("eps", "epsilon", "variance_epsilon"))
_AFFINE = (Compared("affine", "scale", "equal"), Compared("affine", "center", "equal"))
_AXIS = Compared("", "axis", "channels")
_CHANNELS = layouts(
    "b c", "b c l -> b l c", "b c h w -> b h w c", "b c d h w -> b d h w c", "b c l", "b c h w", "b c d h w"
)
_FEATURES = "({torch}) -> ({keras})"
# Some libraries keep a scale per channel followed by axes of size one, to multiply channels-first activations.
_SCALE = rules("identity", "c 1 -> c", "c 1 1 -> c", "c 1 1 1 -> c")
# A layer norm of whole images has a scale for every value.
_SCALES = (*_SCALE, *rules("c l -> l c", "c h w -> h w c", "c d h w -> d h w c"))


def _affine(shape: Shape, arguments: Arguments) -> Arguments:
    """Hyper-parameters of a norm that follow from the weight; ``eps`` is the function's default."""
    return {"eps": 1e-5, "affine": arguments.get("weight") is not None}


def _running(module: Any) -> bool:
    """Whether an instance norm uses running statistics in inference, as a batch norm does."""
    return bool(module.track_running_stats)


def _instance_norms(when: Callable[[Any], bool]) -> tuple[TorchClass, ...]:
    base = TorchClass("torch.nn.modules.instancenorm._InstanceNorm", when)
    return (*torch_classes("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", when=when, output="image"), base)


def _parts(scale: str, shift: str = "", axes: tuple[Rule, ...] = _SCALE) -> tuple[Part, ...]:
    parts = (Part(("{weight}",), (scale,), axes, flatten=_FEATURES),)
    return (*parts, Part(("{bias}",), (shift,), axes, flatten=_FEATURES)) if shift else parts


_ORIGIN = {"epsilon": "eps"}
_NOTE = (
    "`num_batches_tracked` is dropped: it is not used in inference. A norm without scale and shift needs a row too, so "
    "that its epsilon is compared"
)


def _batch_norm(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``BatchNorm2d`` and so on, and an ``InstanceNorm2d`` with running statistics, which computes the same."""
    if not settings.get("track_running_stats", True):
        return Counterpart((), ("without running statistics it uses the batch's, also in inference",), "batch_norm")
    affine, momentum = bool(settings.get("affine", True)), settings.get("momentum", 0.1)
    arguments = {"epsilon": settings["eps"], "center": affine, "scale": affine}
    notes: tuple[str, ...] = ()
    if momentum is None:
        notes = ("momentum None is a mean over all batches in training, which Keras does not have",)
    else:
        # PyTorch's momentum is the weight of the new batch, Keras's that of the old mean. Rounded, since 1 - 0.99 is
        # 0.010000000000000009.
        arguments["momentum"] = round(1 - momentum, 12)
    norm = layer("BatchNormalization", arguments, momentum="momentum", **_ORIGIN)
    return Counterpart((norm,), notes, "batch_norm")


def _group_norm(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``GroupNorm``, and ``InstanceNorm2d`` as a group per channel."""
    instance = name.startswith("InstanceNorm")
    if instance and settings.get("track_running_stats"):
        return _batch_norm(name, settings, call)
    # Keras's GroupNormalization takes -1 as a group for every channel.
    groups, affine = -1 if instance else settings["num_groups"], bool(settings.get("affine", True))
    arguments = {"groups": groups, "epsilon": settings["eps"], "center": affine, "scale": affine}
    return Counterpart((layer("GroupNormalization", arguments, **_ORIGIN),))


def _layer_norm(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    affine = bool(settings.get("elementwise_affine", True))
    axis, note = _normalised(settings["normalized_shape"], call)
    center = affine and bool(settings.get("bias", True))
    arguments = {"axis": axis, "epsilon": settings["eps"], "center": center, "scale": affine}
    return Counterpart((layer("LayerNormalization", arguments, **_ORIGIN),), (note,) if note else ())


def _rms_norm(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    import numpy as np

    axis, note = _normalised(settings["normalized_shape"], call)
    notes = [note] if note else []
    eps = settings.get("eps")
    if eps is None:
        eps = float(np.finfo(np.float32).eps)
        notes.append(f"eps None is that of the dtype, in float32 {eps:.6g}")
    if not settings.get("elementwise_affine", True):
        notes.append("it has no weight: keep Keras's scale at one, or write it with keras.ops")
    return Counterpart((layer("RMSNormalization", {"axis": axis, "epsilon": eps}, **_ORIGIN),), tuple(notes))


def _normalised(shape: object, call: TorchCall) -> tuple[object, str]:
    """Keras's ``axis`` for PyTorch's last axes, and a note if channels last moves them."""
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    rank = len(sizes)
    order = keras_permutation(call.axes) if call.axes else None
    if order is None or call.axes is None:
        return (-1 if rank == 1 else tuple(range(-rank, 0))), ""
    last = range(len(order) - rank, len(order))
    axes = [position - len(order) for position, axis in enumerate(order) if axis in last]
    torch, keras = (" ".join(atom.name for axis in indices for atom in call.axes[axis])
                    for indices in (last, [axis for axis in order if axis in last]))  # fmt: skip
    # Of equal sizes, the shapes do not show the order.
    ambiguous = keras != torch and len(set(sizes)) == 1
    row = f', so its weights need tensors rows with the rule "{torch} -> {keras}"' if ambiguous else ""
    return axes[0] if len(axes) == 1 else tuple(axes), f"it normalises {torch} with channels first{row}"


def _prelu(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``PReLU``: a slope for every channel, or one for all."""
    rank = len(call.shape)
    one = settings.get("num_parameters", 1) == 1
    # Keras counts these axes with the batch's as 0; the last one is the channels'.
    shared = list(range(1, rank if one else rank - 1))
    return Counterpart((layer("PReLU", {"shared_axes": shared or None}),))


BATCH = Kind(
    "batch_norm",
    (
        *_parts("gamma", "beta"),
        Part(("running_mean",), ("moving_mean",), rules("identity"), flatten=_FEATURES),
        Part(("running_var",), ("moving_variance",), rules("identity"), flatten=_FEATURES),
        Part(("num_batches_tracked",), drop="counts training batches; inference does not read it"),
    ),
    _CHANNELS,
    (
        *_EPSILON,
        _AXIS,
        *_AFFINE,
        Compared("track_running_stats", "", "needed"),
        Compared("momentum", "momentum", "complement", "training"),
    ),
    _NAMES,
    torch=(
        *torch_classes("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", output="image"),
        TorchClass("torch.nn.modules.batchnorm._BatchNorm"),
        *_instance_norms(_running),
    ),
    functions=(
        TorchFunction(
            "batch_norm",
            "BatchNorm2d",
            ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
            lambda shape, arguments: {
                **_affine(shape, arguments),
                "track_running_stats": not arguments.get("training", False),
            },
        ),
    ),
    keras=("BatchNormalization",),
    call=_batch_norm,
    note=_NOTE,
)

_PRELU = ("c -> c", "c -> 1 c", "c -> 1 1 c", "c -> 1 1 1 c", "c -> c 1", "c -> c 1 1", "c -> c 1 1 1")

ALL = (
    Kind(
        "layer_norm",
        _parts("gamma", "beta", _SCALES),
        layouts("..."),
        (
            *_EPSILON,
            Compared("normalized_shape", "axis", "shape"),
            Compared("weight", "scale", "present"),
            Compared("bias", "center", "present"),
        ),
        _NAMES,
        bare=True,
        torch=torch_classes("LayerNorm"),
        functions=(
            TorchFunction(
                "layer_norm",
                "LayerNorm",
                ("input", "normalized_shape", "weight", "bias", "eps"),
                lambda shape, arguments: {
                    "eps": 1e-5,
                    "elementwise_affine": arguments.get("weight") is not None,
                    "bias": arguments.get("bias") is not None,
                },
            ),
        ),
        keras=("LayerNormalization",),
        call=_layer_norm,
        note=_NOTE,
    ),
    Kind(
        "group_norm",
        _parts("gamma", "beta"),
        _CHANNELS,
        (
            *_EPSILON,
            Compared("num_groups", "groups", "equal"),
            Compared("num_features", "groups", "instance"),
            _AXIS,
            *_AFFINE,
        ),
        _NAMES,
        bare=True,
        torch=(*torch_classes("GroupNorm", output="image"), *_instance_norms(lambda module: not _running(module))),
        functions=(
            TorchFunction("group_norm", "GroupNorm", ("input", "num_groups", "weight", "bias", "eps"), _affine),
            TorchFunction(
                "instance_norm",
                "InstanceNorm2d",
                ("input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps"),
                lambda shape, arguments: {
                    **_affine(shape, arguments),
                    "track_running_stats": not arguments.get("use_input_stats", True),
                },
            ),
        ),
        keras=("GroupNormalization",),
        call=_group_norm,
        note=_NOTE,
    ),
    BATCH,
    Kind(
        "rms_norm",
        _parts("scale"),
        layouts("..."),
        (*_EPSILON, Compared("normalized_shape", "axis", "shape")),
        {"weight": "weight"},
        bare=True,
        torch=torch_classes("RMSNorm"),
        functions=(
            TorchFunction(
                "rms_norm",
                "RMSNorm",
                ("input", "normalized_shape", "weight", "eps"),
                lambda shape, arguments: {"eps": None, "elementwise_affine": arguments.get("weight") is not None},
            ),
        ),
        keras=("RMSNormalization", "LayerNormalization"),
        call=_rms_norm,
        note=_NOTE,
    ),
    Kind(
        "prelu",
        (Part(("{weight}",), ("alpha",), rules(*_PRELU), flatten=_FEATURES),),
        _CHANNELS,
        (Compared("num_parameters", "shared_axes", "shared"),),
        {"weight": "weight"},
        torch=torch_classes("PReLU"),
        functions=(
            TorchFunction(
                "prelu",
                "PReLU",
                ("input", "weight"),
                lambda shape, arguments: {"num_parameters": shape[0] if shape else 1},
            ),
        ),
        keras=("PReLU",),
        call=_prelu,
        note="with shared spatial axes, channels first or last",
    ),
)
