"""Small networks that together have every part, with all parameters random, for known faults."""

from __future__ import annotations

from typing import Any, Final

import torch

from parity_tests.faults.random_weights import randomise
from wdport.models.interface import Array
from wdport.uses.masked_lm.config import Config
from wdport.uses.masked_lm.reference import HEAD, library_model

_SMALL: Final[dict[str, Any]] = {
    "vocab_size": 20, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 3, "head_dim": 4, "pad_token_id": 0, "mask_token_id": 1, "rms_norm_eps": 1e-5,
}  # fmt: skip


def examples() -> dict[str, Config]:
    """Configurations by a short description; the first is the smallest."""
    return {
        "tied, grouped keys, biases": Config(**_SMALL, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
        "own head, one key, GELU": Config(**{
            **_SMALL, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": None, "hidden_size": 24,
            "hidden_act": "gelu", "rms_norm_eps": 1e-6, "rope_theta": 250_000.0, "pad_token_id": None,
        }),
        "tied without biases, keys of their own": Config(**{
            **_SMALL, "num_key_value_heads": None, "head_dim": 2, "tie_word_embeddings": True, "num_hidden_layers": 3,
        }),
    }  # fmt: skip


def random_tensors(config: Config, seed: int) -> dict[str, Array]:
    """A state_dict with every parameter random, biases and norms included, float32; without a tied head, as the library
    saves it. Raises :class:`MachineError` without transformers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tensors = randomise(library_model(config), seed, _law)
    left_out = {HEAD} if config.tie_word_embeddings else set()
    return {name: tensor for name, tensor in tensors.items() if name not in left_out}


def _law(name: str, parameter: torch.Tensor) -> tuple[float, float]:
    centre, spread = (0.1, 0.3) if parameter.ndim == 1 else (0.0, parameter.shape[-1] ** -0.5)
    return 1.0 if "norm" in name else centre, 1.0 if "embed" in name else spread
