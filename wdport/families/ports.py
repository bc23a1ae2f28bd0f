"""Modules whose import makes Keras know classes of ours; a list of names, nothing is imported."""

from __future__ import annotations

from typing import Final

PORTS: Final = (
    "wdport.families.waveletdiff.port",
    "wdport.families.ts2vec.port",
    "wdport.families.unet2d.port",
    "wdport.wavelets.layers",
)
