"""The families that wdport ships; nothing is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SHIPPED: Final[Mapping[str, str]] = MappingProxyType({
    "waveletdiff": "WaveletDiff",
    "ts2vec": "TS2Vec",
    "unet2d": "UNet2D",
    "masked_lm": "MaskedLM",
    "wan_vae": "WanVAE",
})  # fmt: skip
"""The Keras class of every family, in the module ``port`` of its folder; the family itself is in ``family``."""

OWN_PACKAGE: Final = "wdport"
"""Where Keras registers these classes."""

HOME: Final = "wdport.uses"
"""The package with these families, and with what one does with a converted model."""

PORTS: Final = (*(f"{HOME}.{name}.port" for name in SHIPPED), f"{HOME}.wavelets.layers")
"""Modules that register Keras classes when imported."""

CANARY: Final = f"{HOME}.waveletdiff.canary"
"""The module with the faults that `verify` tries before it judges by a policy; it needs torch."""
