"""Normalisations, and PReLU, whose weight is one number per channel as well."""

from __future__ import annotations

from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Compared, Kind, Part

_NAMES = {"weight": "weight", "bias": "bias"}
_EPSILON = Compared("eps", "epsilon", "epsilon")
_CHANNELS = layouts(
    "b c", "b c l -> b l c", "b c h w -> b h w c", "b c d h w -> b d h w c", "b c l", "b c h w", "b c d h w"
)
_FEATURES = "({torch}) -> ({keras})"
# Some libraries keep a scale per channel with axes of size one behind it, to multiply channels-first activations.
_SCALE = rules("identity", "c 1 -> c", "c 1 1 -> c", "c 1 1 1 -> c")


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
        _EPSILON,
        Compared("momentum", "momentum", "complement"),
        Compared("affine", "scale", "equal"),
        Compared("affine", "center", "equal"),
    ),
    _NAMES,
)

_PRELU = ("c -> c", "c -> 1 c", "c -> 1 1 c", "c -> 1 1 1 c", "c -> c 1", "c -> c 1 1", "c -> c 1 1 1")

ALL = (
    Kind(
        "layer_norm",
        _parts("gamma", "beta"),
        layouts("..."),
        (_EPSILON, Compared("normalized_shape", "axis", "shape")),
        _NAMES,
        bare=True,
    ),
    Kind(
        "group_norm",
        _parts("gamma", "beta"),
        _CHANNELS,
        (_EPSILON, Compared("num_groups", "groups", "equal")),
        _NAMES,
        bare=True,
    ),
    BATCH,
    Kind(
        "rms_norm",
        _parts("scale"),
        layouts("..."),
        (_EPSILON, Compared("normalized_shape", "axis", "shape")),
        {"weight": "weight"},
        bare=True,
    ),
    Kind(
        "prelu",
        (Part(("{weight}",), ("alpha",), rules(*_PRELU), flatten=_FEATURES),),
        _CHANNELS,
        names={"weight": "weight"},
    ),
)
