"""All pairs, and all that Keras has no layer for."""

from __future__ import annotations

from . import attention, convolutions, dense, norms, pooling
from .absent import ABSENT
from .pair import Pair

__all__ = ["ABSENT", "GROUPS", "PAIRS"]

GROUPS: dict[str, tuple[Pair, ...]] = {
    "dense": dense.PAIRS,
    "convolutions": convolutions.PAIRS,
    "transposed convolutions": convolutions.TRANSPOSED,
    "normalizations": norms.PAIRS,
    "recurrent": attention.RECURRENT,
    "attention": attention.PAIRS,
    "pooling": pooling.PAIRS,
    "activations": norms.ACTIVATIONS,
    "padding and upsampling": pooling.RESIZING,
}
"""Pairs by group, in the order of the report."""

PAIRS: dict[str, Pair] = {pair.name: pair for pairs in GROUPS.values() for pair in pairs}
"""Pair by name."""
