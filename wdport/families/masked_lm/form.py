"""``config.json`` of a EuroBertForMaskedLM as a JSON Schema, from the lists that its reader uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wdport.families.masked_lm.config import ACTIVATIONS, BOUNDS, FIELDS, KINDS, OPTIONAL, SYNONYMS
from wdport.families.masked_lm.resolve import CLASS, FACTOR, INERT, MODEL_TYPE, ROPE

_TYPES: Final = {int: "integer", float: "number", bool: "boolean", str: "string"}

_MEANINGS: Final[Mapping[str, str]] = {
    "vocab_size": "Number of tokens.",
    "hidden_size": "Channels of the features of a token; a multiple of num_attention_heads.",
    "intermediate_size": "Features of the gated network.",
    "num_hidden_layers": "Number of layers.",
    "num_attention_heads": "Heads of attention.",
    "num_key_value_heads": "Heads of the keys and values, a divisor of num_attention_heads; as many as heads if null.",
    "head_dim": "Width of a head, even; hidden_size over the heads if null.",
    "hidden_act": "Activation of the gated network.",
    "max_position_embeddings": "Longest sequence of the training; the network has no limit.",
    "rms_norm_eps": "Epsilon of the norms.",
    "rope_theta": "Base of the frequencies of rotary positions, in old files; new ones have it in rope_parameters.",
    "attention_bias": "Whether the projections of attention have biases.",
    "mlp_bias": "Whether the gated network and the head have biases.",
    "tie_word_embeddings": "Whether the head has the weights of the embedding.",
    "attention_dropout": "Dropout rate of the training; inference does not use it.",
    "pad_token_id": "Token of padding, whose embedding gets no gradient; null for none.",
    "mask_token_id": "Token that stands for one to be predicted; null for none.",
}

_LIMITS: Final[Mapping[str, Mapping[str, object]]] = {
    "attention_dropout": {"minimum": 0, "exclusiveMaximum": 1},
    "rms_norm_eps": {"minimum": 0, "exclusiveMaximum": 1e30},
    "rope_theta": {"exclusiveMinimum": 0, "exclusiveMaximum": 1e30},
}


def settings_schema() -> dict[str, object]:
    """Every field that is read, and those without effect; names that begin with ``_`` are the library's notes."""
    return {
        "type": "object",
        "description": f"Configuration of a {CLASS} as transformers writes it. Absent fields have its defaults.",
        "properties": {
            "model_type": {"description": "Kind of the model; required in config.json.", "const": MODEL_TYPE},
            "architectures": {
                "description": "Class of the model.",
                "anyOf": [{"const": [CLASS]}, {"type": "null"}],
            },
            **{name: {"description": _MEANINGS[name], **_value(name)} for name in FIELDS},
            ROPE[0]: {"description": "Rotary positions.", **_rotary()},
            ROPE[1]: {"description": "The same in old files, with rope_theta beside it.", **_rotary()},
            FACTOR: {"description": "Share of a head that is turned.", "enum": [1, None]},
            **{name: {"description": "Not read: it does not change what the network computes."} for name in INERT},
        },
        "patternProperties": {"^_": {}},
        "additionalProperties": False,
    }


def _rotary() -> dict[str, object]:
    fields = {
        "rope_theta": {"description": "Base of the frequencies.", **_value("rope_theta")},
        **{name: {"description": "Kind of rotary positions.", "const": "default"} for name in ("rope_type", "type")},
        FACTOR: {"description": "Share of a head that is turned.", "enum": [1, None]},
    }
    return {"anyOf": [{"type": "object", "properties": fields, "additionalProperties": False}, {"type": "null"}]}


def _value(name: str) -> dict[str, Any]:
    if name == "hidden_act":
        return {"enum": [*ACTIVATIONS, *SYNONYMS]}
    bounds = dict(zip(("minimum", "maximum"), BOUNDS.get(name, ()), strict=False))
    told = {"type": _TYPES[KINDS[name][0][-1]], **bounds, **_LIMITS.get(name, {})}
    return {"anyOf": [told, {"type": "null"}]} if name in OPTIONAL else told
