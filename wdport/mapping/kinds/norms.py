"""Normalisations, and PReLU, whose weight is also one number per channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Arguments, Compared, Kind, Part, Shape, TorchClass, TorchFunction, torch_classes

_NAMES = {"weight": "weight", "bias": "bias"}
_EPSILON = tuple(Compared(name, "epsilon", "epsilon") for name in ("eps", "epsilon", "variance_epsilon"))
_AFFINE = (Compared("affine", "scale", "equal"), Compared("affine", "center", "equal"))
_AXIS = Compared("", "axis", "channels")
_CHANNELS = layouts(
    "b c", "b c l -> b l c", "b c h w -> b h w c", "b c d h w -> b d h w c", "b c l", "b c h w", "b c d h w"
)
_FEATURES = "({torch}) -> ({keras})"
# Some libraries keep a scale per channel with axes of size one behind it, to multiply channels-first activations.
_SCALE = rules("identity", "c 1 -> c", "c 1 1 -> c", "c 1 1 1 -> c")


def _affine(shape: Shape, arguments: Arguments) -> Arguments:
    """Hyper-parameters of a norm that follow from the weight; ``eps`` is the function's default."""
    return {"eps": 1e-5, "affine": arguments.get("weight") is not None}


def _running(module: Any) -> bool:
    """Whether an instance norm uses running statistics in inference, as a batch norm does."""
    return bool(module.track_running_stats)


def _instance_norms(when: Callable[[Any], bool]) -> tuple[TorchClass, ...]:
    base = TorchClass("torch.nn.modules.instancenorm._InstanceNorm", when)
    return (*torch_classes("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", when=when), base)


def _parts(scale: str, shift: str = "") -> tuple[Part, ...]:
    parts = (Part(("{weight}",), (scale,), _SCALE, flatten=_FEATURES),)
    return (*parts, Part(("{bias}",), (shift,), _SCALE, flatten=_FEATURES)) if shift else parts


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
        *torch_classes("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        TorchClass("torch.nn.modules.batchnorm._BatchNorm"),
        *_instance_norms(_running),
    ),
    functions=(
        TorchFunction(
            "batch_norm",
            "BatchNorm2d",
            ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
            lambda shape, told: {**_affine(shape, told), "track_running_stats": not told.get("training", False)},
        ),
    ),
    keras=("BatchNormalization",),
)

_PRELU = ("c -> c", "c -> 1 c", "c -> 1 1 c", "c -> 1 1 1 c", "c -> c 1", "c -> c 1 1", "c -> c 1 1 1")

ALL = (
    Kind(
        "layer_norm",
        _parts("gamma", "beta"),
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
                lambda shape, told: {
                    "eps": 1e-5,
                    "elementwise_affine": told.get("weight") is not None,
                    "bias": told.get("bias") is not None,
                },
            ),
        ),
        keras=("LayerNormalization",),
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
        torch=(*torch_classes("GroupNorm"), *_instance_norms(lambda module: not _running(module))),
        functions=(
            TorchFunction("group_norm", "GroupNorm", ("input", "num_groups", "weight", "bias", "eps"), _affine),
            TorchFunction(
                "instance_norm",
                "InstanceNorm2d",
                ("input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps"),
                lambda shape, told: {
                    **_affine(shape, told),
                    "track_running_stats": not told.get("use_input_stats", True),
                },
            ),
        ),
        keras=("GroupNormalization",),
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
                lambda shape, told: {"eps": None, "elementwise_affine": told.get("weight") is not None},
            ),
        ),
        keras=("RMSNormalization", "LayerNormalization"),
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
                lambda shape, told: {"num_parameters": shape[0] if shape else 1},
            ),
        ),
        keras=("PReLU",),
    ),
)
