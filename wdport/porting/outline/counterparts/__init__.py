"""The Keras layers that compute what a PyTorch layer computes, by the layer's class; see docs/conformance.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from wdport.mapping.kinds import CATALOGUE
from wdport.porting.outline.counterparts import activations, dense, recurrent, resizing, windows
from wdport.porting.outline.counterparts.counterpart import Counterpart, Find, Given

__all__ = ["LAYERS", "Counterpart", "Given"]

_RANKS = (1, 2, 3)

_BY_KIND: Mapping[str, Find] = MappingProxyType({
    "linear": dense.linear, "embedding": dense.embedding,
    **{f"conv{n}d": windows.convolution for n in _RANKS},
    **{f"conv_transpose{n}d": windows.transposed for n in _RANKS},
    **{f"{which}_pool{n}d": windows.pooling for n in _RANKS for which in ("max", "avg")},
    **{f"adaptive_{which}_pool": windows.adaptive for which in ("max", "avg")},
    "batch_norm": dense.batch_norm, "group_norm": dense.group_norm, "layer_norm": dense.layer_norm,
    "rms_norm": dense.rms_norm, "prelu": activations.prelu, "activation": activations.activation,
    "dropout": dense.dropout, "flatten": dense.flatten, "identity": dense.identity,
    **dict.fromkeys(("rnn", "lstm", "gru"), recurrent.recurrent),
    **{f"{name}_cell": recurrent.cell for name in ("rnn", "lstm", "gru")},
    "attention_packed": recurrent.attention,
    "pad": resizing.padding, "pad_edges": resizing.padding, "upsample": resizing.upsampling,
    "shuffle": resizing.shuffle,
})  # fmt: skip

LAYERS: Mapping[str, Find] = MappingProxyType({
    each.short: _BY_KIND[kind.name]
    for kind in reversed(CATALOGUE) if kind.name in _BY_KIND
    for each in kind.torch if not each.short.startswith("_")
})  # fmt: skip
"""Functions that find the counterpart of a module, by its class in ``torch.nn``; such a module is one step. Of a class
in several kinds, the first kind's function finds it."""
