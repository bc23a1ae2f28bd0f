"""Names of the modules that register Keras classes when imported; nothing is imported here."""

from __future__ import annotations

from typing import Final

PORTS: Final = (
    "wdport.families.waveletdiff.port",
    "wdport.families.ts2vec.port",
    "wdport.families.unet2d.port",
    "wdport.families.masked_lm.port",
    "wdport.families.wan_vae.port",
    "wdport.wavelets.layers",
)
