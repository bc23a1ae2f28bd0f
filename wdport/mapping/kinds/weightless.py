"""Layers without weights or windows: dropout, flatten, and containers."""

from __future__ import annotations

from wdport.mapping.kinds.activations import ANY_LAYOUT
from wdport.mapping.kinds.kind import Compared, Kind, TorchFunction, torch_classes

_DROPOUTS = {
    "dropout": "Dropout",
    **{f"dropout{rank}d": f"Dropout{rank}d" for rank in (1, 2, 3)},
    "alpha_dropout": "AlphaDropout",
    "feature_alpha_dropout": "FeatureAlphaDropout",
}

ALL = (
    Kind(
        "dropout",
        axes=ANY_LAYOUT,
        compared=(Compared("p", "rate", "equal", "training"),),
        torch=torch_classes(*_DROPOUTS.values()),
        functions=tuple(TorchFunction(name, of, ("input", "p", "training")) for name, of in _DROPOUTS.items()),
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
