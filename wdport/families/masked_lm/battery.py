"""Inputs and outputs of the network, at a length suitable for comparisons in float64."""

from __future__ import annotations

from typing import Final

from wdport.families.masked_lm.config import Config
from wdport.model import Port, Signature
from wdport.recorder import LONGEST, parse_input

LENGTH: Final = 24
"""Tokens of a compared sequence. The network has no parameter that depends on the position, but rotary angles do: one
sequence is as long as the model states."""


def signature(config: Config) -> Signature:
    """Tokens (B, N) and the mask of padding (B, N), true for tokens that are read; sequences differ in length."""
    length = f"{LENGTH}..{max(LENGTH, min(LONGEST, config.max_position_embeddings))}"
    inputs = (f"input_ids: b n={length}, below {config.vocab_size}", f"attention_mask: b n={length}, mask")
    return Signature(tuple(map(parse_input, inputs)), (Port("logits"),), free={"n": 1})
