"""Small models of this family with every parameter random, and the folders that the library saves them to."""

from __future__ import annotations

import numpy as np

from parity_tests.faults.masked_lm.examples import random_tensors
from tests.uses.library_folders import Fields, Tensors, saver
from wdport.uses.masked_lm.config import Config

SMALL: Fields = {
    "vocab_size": 30,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 1,
    "mask_token_id": 2,
}

VARIANTS: dict[str, Fields] = {
    "as published": {"rope_parameters": {"rope_theta": 250_000, "rope_type": "default"}},
    "tied": {"tie_word_embeddings": True, "num_key_value_heads": None, "pad_token_id": None},
    "tied, all biases": {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"},
    "wide heads, one key": {"head_dim": 6, "num_key_value_heads": 1, "attention_bias": True, "hidden_act": "relu",
                            "rms_norm_eps": 1e-3},
    "old spelling, bias of the head": {"rope_theta": 500.0, "rope_scaling": None, "mlp_bias": True,
                                       "hidden_act": "mish", "num_hidden_layers": 1},
    "one head": {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2, "hidden_act": "gelu_new"},
}  # fmt: skip
"""Fields beside those of :data:`SMALL`; between them every switch."""


def fields_of(name: str) -> Fields:
    """All that is told of a variant."""
    return {**SMALL, **VARIANTS[name]}


def random_fields(seed: int) -> Fields:
    """A small network that the library builds and runs, drawn from all that the family has."""
    rng = np.random.default_rng([seed, 1618])
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    pairs, shared = int(pick(1, 2, 3)), int(pick(1, 2, 4))
    heads, tokens = pairs * shared, int(rng.integers(5, 60))
    return {
        "vocab_size": tokens, "hidden_size": heads * int(pick(2, 4, 6)), "intermediate_size": int(rng.integers(3, 40)),
        "num_hidden_layers": int(rng.integers(1, 5)), "num_attention_heads": heads, "num_key_value_heads": pairs,
        "head_dim": pick(None, 2, 6, 10),
        "hidden_act": pick("silu", "swish", "gelu", "gelu_pytorch_tanh", "relu", "mish"),
        "rms_norm_eps": pick(1e-5, 1e-6, 1e-2), "attention_bias": pick(False, True), "mlp_bias": pick(False, True),
        "tie_word_embeddings": pick(False, True), "pad_token_id": pick(None, 0, tokens - 1), "mask_token_id": 1,
        "rope_parameters": {"rope_theta": pick(10_000.0, 250_000, 100.0), "rope_type": "default"},
    }  # fmt: skip


def config_of(fields: Fields) -> Config:
    """The configuration of a ``config.json`` with these fields."""
    from wdport.uses.masked_lm.family import FAMILY

    return FAMILY.load_config(FAMILY.read_settings(fields, "config.json"))


def tensors_of(fields: Fields, seed: int = 0) -> Tensors:
    """A random state_dict."""
    return random_tensors(config_of(fields), seed)


save = saver("model.safetensors", tensors_of, model_type="eurobert", architectures=["EuroBertForMaskedLM"],
             transformers_version="5.23.0")  # fmt: skip
