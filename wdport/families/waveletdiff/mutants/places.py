"""Places of the layers of a WaveletDiff port, as patterns of structural paths."""

from __future__ import annotations

from typing import Final

ATTENTION: Final = ("*/attention", "cross_level/attention_?")
IN_BLOCKS: Final = ("*/attention",)
"""Attention with more than one query."""

NORM: Final = ("*/norm1/norm", "*/norm2/norm", "cross_level/norm_?/norm")
ADAPTIVE: Final = ("*/norm1", "*/norm2", "cross_level/norm_?")
BLOCK: Final = ("level_?/block_?",)
DENSE: Final = ("*/mlp/hidden", "*/mlp/out", "level_?/input_proj", "level_?/output_proj", "cross_level/projection_?")
GELU: Final = ("level_?/*/mlp/activation", "cross_level/aggregator_?/activation")
NETWORK: Final = ("",)


def below(part: str) -> tuple[str, ...]:
    """One part of every attention."""
    return tuple(f"{place}/{part}" for place in ATTENTION)
