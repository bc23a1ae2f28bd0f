"""The Keras layers that compute what a PyTorch layer computes, by the layer's class; see docs/conformance.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from wdport.mapping.kinds.activations import BY_CLASS
from wdport.porting.outline.counterparts import activations, dense, recurrent, resizing, windows
from wdport.porting.outline.counterparts.counterpart import Counterpart, Find, Given

__all__ = ["LAYERS", "Counterpart", "Given"]

_RANKS = (1, 2, 3)

LAYERS: Mapping[str, Find] = MappingProxyType({
    "Linear": dense.linear, "Embedding": dense.embedding,
    **{f"Conv{n}d": windows.convolution for n in _RANKS},
    **{f"ConvTranspose{n}d": windows.transposed for n in _RANKS},
    **{f"{which}Pool{n}d": windows.pooling for n in _RANKS for which in ("Max", "Avg")},
    **{f"Adaptive{which}Pool{n}d": windows.adaptive for n in _RANKS for which in ("Max", "Avg")},
    **{f"BatchNorm{n}d": dense.batch_norm for n in _RANKS}, "SyncBatchNorm": dense.batch_norm,
    **{f"InstanceNorm{n}d": dense.group_norm for n in _RANKS},
    "LayerNorm": dense.layer_norm, "GroupNorm": dense.group_norm, "RMSNorm": dense.rms_norm,
    **{name: activations.along if each.along else activations.plain for name, each in BY_CLASS.items()},
    "PReLU": activations.prelu,
    **{f"Dropout{n}": dense.dropout for n in ("", "1d", "2d", "3d")},
    "AlphaDropout": dense.dropout, "FeatureAlphaDropout": dense.dropout,
    "Flatten": dense.flatten, "Identity": dense.identity,
    **dict.fromkeys(("RNN", "LSTM", "GRU"), recurrent.recurrent),
    **dict.fromkeys(("RNNCell", "LSTMCell", "GRUCell"), recurrent.cell),
    "MultiheadAttention": recurrent.attention,
    **{f"{which}Pad{n}d": resizing.padding for n in _RANKS
       for which in ("Zero", "Constant", "Reflection", "Replication", "Circular")},
    "Upsample": resizing.upsampling, "UpsamplingNearest2d": resizing.upsampling,
    "UpsamplingBilinear2d": resizing.upsampling,
    **dict.fromkeys(("PixelShuffle", "PixelUnshuffle", "ChannelShuffle"), resizing.shuffle),
})  # fmt: skip
"""Functions that find the counterpart of a module, by its class in ``torch.nn``; such a module is one step."""
