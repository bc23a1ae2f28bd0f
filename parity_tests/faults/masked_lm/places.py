"""Places of the layers of a port, as patterns of structural paths, and changes that several of them have."""

from __future__ import annotations

from typing import Final

NORM: Final = ("block_*/attention_norm", "block_*/mlp_norm", "norm")
ATTENTION: Final = ("block_*/attention",)
MLP: Final = ("block_*/mlp",)
BLOCK: Final = ("block_?",)
ROTARY: Final = ("rotary",)
HEAD: Final = ("lm_head",)
EMBEDDING: Final = ("embed_tokens",)
NETWORK: Final = ("",)
