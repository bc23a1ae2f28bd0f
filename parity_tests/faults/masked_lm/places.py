"""Places of the layers of a port, as patterns of structural paths, and changes that several of them have."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

import numpy as np

from wdport.families.faults import Change, array_of, holding
from wdport.model import KerasLayer, KerasModel

NORM: Final = ("block_*/attention_norm", "block_*/mlp_norm", "norm")
ATTENTION: Final = ("block_*/attention",)
MLP: Final = ("block_*/mlp",)
BLOCK: Final = ("block_?",)
ROTARY: Final = ("rotary",)
HEAD: Final = ("lm_head",)
EMBEDDING: Final = ("embed_tokens",)
NETWORK: Final = ("",)


def swapped(first: str, second: str) -> Change:
    """Swap the weights of two layers of one shape."""

    def change(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
        pairs = list(zip(getattr(layer, first).weights, getattr(layer, second).weights, strict=True))
        return holding(*((into, array_of(source)) for pair in pairs for into, source in (pair, pair[::-1])))

    return change


def without_bias(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    """Set the bias to zero."""
    return holding((layer.bias, np.zeros_like(array_of(layer.bias))))


def transposed(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    """Transpose a square kernel."""
    return holding((layer.kernel, array_of(layer.kernel).T))
