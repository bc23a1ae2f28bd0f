"""Wavelets: the discrete transform in JAX and Keras, and the lengths of its coefficients.

Names are imported on first use: lengths are needed where neither jax nor keras may be imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wdport.uses.wavelets.check import dropped_share, level_energies, off_range, parseval_ratio
    from wdport.uses.wavelets.layers import WaveletDecomposition, WaveletReconstruction
    from wdport.uses.wavelets.lengths import WaveletCandidate, candidates
    from wdport.uses.wavelets.ragged import RaggedWaveletTransform
    from wdport.uses.wavelets.transform import WaveletTransform

_LAZY = {
    "WaveletCandidate": "lengths",
    "candidates": "lengths",
    "dropped_share": "check",
    "level_energies": "check",
    "off_range": "check",
    "parseval_ratio": "check",
    "WaveletDecomposition": "layers",
    "WaveletReconstruction": "layers",
    "RaggedWaveletTransform": "ragged",
    "WaveletTransform": "transform",
}

__all__ = ["RaggedWaveletTransform", "WaveletCandidate", "WaveletDecomposition", "WaveletReconstruction",
           "WaveletTransform", "candidates", "dropped_share", "level_energies", "off_range",
           "parseval_ratio"]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"wdport.uses.wavelets.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'wdport.uses.wavelets' has no attribute {name!r}")
