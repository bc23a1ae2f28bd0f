"""Layers without weights or windows: dropout, flatten, and containers."""

from __future__ import annotations

from functools import partial

from wdport.mapping.axes import ANY_LAYOUT
from wdport.mapping.kinds.kind import (
    Arguments,
    Compared,
    Counterpart,
    Kind,
    Settings,
    Shape,
    TorchCall,
    TorchFunction,
    layer,
    torch_classes,
)

# Functions with their classes, and whether they drop values unless their caller says otherwise.
_DROPOUTS = {
    "dropout": ("Dropout", True),
    **{f"dropout{rank}d": (f"Dropout{rank}d", True) for rank in (1, 2, 3)},
    "alpha_dropout": ("AlphaDropout", False),
    "feature_alpha_dropout": ("FeatureAlphaDropout", False),
}


def _training(default: bool, shape: Shape, arguments: Arguments) -> Arguments:
    return {"training": default}


def _dropout(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    notes = ("training is true: it also drops values in inference",) if settings.get("training") else ()
    if name == "FeatureAlphaDropout":
        return Counterpart((), ("Keras's AlphaDropout drops single values; none in inference", *notes))
    keras = f"SpatialDropout{name[-2]}D" if name.endswith("d") else name
    return Counterpart((layer(keras, {"rate": settings.get("p", 0.5)}),), notes)


def _flatten(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``Flatten`` from the first axis after the batch; others are a reshape."""
    start, end = settings.get("start_dim", 1), settings.get("end_dim", -1)
    last = len(call.shape) - 1
    if start != 1 or (end % len(call.shape) if call.shape else end) != (last if call.shape else -1):
        return Counterpart((), ("a Reshape of the axes from start_dim to end_dim",))
    return Counterpart((layer("Flatten", {}),))


ALL = (
    Kind(
        "dropout",
        axes=ANY_LAYOUT,
        compared=(Compared("p", "rate", "equal", "training"),),
        torch=(
            *torch_classes("Dropout", "AlphaDropout", "FeatureAlphaDropout"),
            *torch_classes("Dropout1d", "Dropout2d", "Dropout3d", output="image"),
        ),
        functions=tuple(
            TorchFunction(name, module, ("input", "p", "training"), partial(_training, training))
            for name, (module, training) in _DROPOUTS.items()
        ),
        keras=("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "AlphaDropout"),
        call=_dropout,
        evident=False,
    ),
    Kind(
        "flatten",
        compared=(Compared("", "data_format", "flat"),),
        flatten="b ({torch}) -> b ({keras})",
        torch=torch_classes("Flatten", output="flat"),
        keras=("Flatten",),
        call=_flatten,
        evident=False,
    ),
    Kind("sequential", torch=torch_classes("Sequential"), keras=("Sequential",), evident=False),
)
