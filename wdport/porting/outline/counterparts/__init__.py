"""The Keras layers that compute what a PyTorch layer computes, by the layer's class; see docs/conformance.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from wdport.mapping.kinds import CATALOGUE, KINDS, Kind
from wdport.porting.outline.counterparts import activations, dense, recurrent, resizing, windows
from wdport.porting.outline.counterparts.counterpart import Counterpart, Find, Given, layer
from wdport.porting.outline.settings import Settings

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
    "dropout": dense.dropout, "flatten": dense.flatten,
    **dict.fromkeys(("rnn", "lstm", "gru"), recurrent.recurrent),
    **{f"{name}_cell": recurrent.cell for name in ("rnn", "lstm", "gru")},
    "attention_packed": recurrent.attention,
    "pad": resizing.padding, "pad_edges": resizing.padding, "upsample": resizing.upsampling,
    "shuffle": resizing.shuffle,
})  # fmt: skip


def finder(kind: Kind) -> Find | None:
    """The function that finds a layer of this kind in Keras; ``None`` for a container."""
    call = kind.call
    if call is None:
        return _BY_KIND.get(kind.name)

    def declared(name: str, told: Settings, given: Given) -> Counterpart:
        arguments = {key: told[setting] for key, setting in call.arguments.items()}
        return Counterpart(kind.name if kind.name in KINDS else "", (layer(call.layer, arguments, **call.arguments),))

    return declared


LAYERS: Mapping[str, Find] = MappingProxyType({
    each.short: find
    for kind in reversed(CATALOGUE) if (find := finder(kind)) is not None
    for each in kind.torch if not each.short.startswith("_")
})  # fmt: skip
"""Functions that find the counterpart of a module, by its class in ``torch.nn``; such a module is one step. Of a class
in several kinds, the first kind's function finds it."""
