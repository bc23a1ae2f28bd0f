"""Find a model's configuration in ``config.json``, in the library's old and new spelling, and the user's values.

The tensors of a Llama have the same names, so ``model_type`` is required.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from wdport.errors import MisfitError, printable
from wdport.families.library_config import FIX, LibraryConfig, quoted
from wdport.families.masked_lm.config import FIELDS, Config
from wdport.families.tensor_shapes import count, size
from wdport.fields import fields_of
from wdport.mapping.axes import Shape
from wdport.model import Document, Resolved, Source

CLASS: Final = "EuroBertForMaskedLM"
MODEL_TYPE: Final = "eurobert"
ROPE: Final = ("rope_parameters", "rope_scaling")
"""The rotary positions in new and in old files; old ones have ``rope_theta`` beside it."""

FACTOR: Final = "partial_rotary_factor"
IDENTITY: Final = ("model_type", "architectures")
INERT: Final = (
    "auto_map", "bos_token", "bos_token_id", "chunk_size_feed_forward", "classifier_pooling", "clf_pooling", "dtype",
    "eos_token", "eos_token_id", "hidden_dropout", "id2label", "initializer_range", "is_encoder_decoder", "label2id",
    "mask_token", "name_or_path", "num_labels", "output_attentions", "output_hidden_states", "pad_token",
    "pretraining_tp", "problem_type", "return_dict", "sep_token_id", "torch_dtype", "torchscript",
    "transformers_version", "use_cache",
)  # fmt: skip
"""Fields that do not change what the network computes."""

_OTHER: Final = "other models need their own table (`--mapping`)"


def resolve(source: Source, config: Document, flags: Document) -> Resolved:
    """Determine the configuration; raises :class:`MisfitError` naming every contradiction."""
    stored = source.document()
    CONFIG.require_document(source, (stored, config), f"; {_OTHER}")
    if stored and "model_type" not in stored:
        raise MisfitError(source.path, "config.json has no model_type", f"{MODEL_TYPE} is supported; {_OTHER}")
    document = read_settings(stored, source.path)
    resolved = CONFIG.resolve(source, {"config.json": document, "config": config, "flag": flags})
    return replace(resolved, notes=_unused(resolved.config))


def load(values: Document) -> Config:
    """Load a configuration; raises ``ValueError``."""
    return Config.from_dict(values)


def read_settings(document: Document, where: str | Path) -> dict[str, object]:
    """The fields of a configuration file, which is a ``config.json`` or part of one, the rotary positions as
    ``rope_theta``; raises :class:`MisfitError` for other models, other kinds of rotary positions and unknown names.

    Names that begin with ``_`` are the library's own notes.
    """
    kind, classes = document.get("model_type", MODEL_TYPE), document.get("architectures")
    if kind != MODEL_TYPE:
        raise MisfitError(where, f"model_type is {quoted(kind)}", f"{MODEL_TYPE} is supported; {_OTHER}")
    if classes is not None and classes != [CLASS]:
        named = ", ".join(map(str, classes)) if isinstance(classes, list) else str(classes)
        raise MisfitError(where, f"architectures is {printable(named, 60)}", f"{CLASS} is supported; {_OTHER}")
    known = (*FIELDS, *ROPE, *IDENTITY, *INERT, FACTOR)
    CONFIG.require_known((name for name in document if not name.startswith("_")), known, where)
    own = {name: value for name, value in document.items() if name in FIELDS}
    return {**own, **_rotary(document, where)}


def _rotary(document: Document, where: str | Path) -> dict[str, object]:
    """``rope_theta`` if the document states it. ``rope_scaling`` precedes ``rope_parameters``, and what is in them the
    field beside them, as in the library."""
    name = next((name for name in reversed(ROPE) if document.get(name)), "")
    told = document.get(name) if name else {}
    if not isinstance(told, Mapping):
        raise MisfitError(where, f"{name} is not a table of values or null", FIX)
    kind = told.get("rope_type", told.get("type", "default"))
    if kind != "default":
        raise MisfitError(
            where, f"{name} has the type {quoted(kind)}", "rotary positions of type default are supported"
        )
    factor = told.get(FACTOR, document.get(FACTOR))
    if factor is not None and (type(factor) not in (int, float) or factor != 1):
        raise MisfitError(where, f"{FACTOR} is {quoted(factor)}", "1 is supported: heads that are turned as a whole")
    if unknown := sorted(str(each) for each in set(told) - {"rope_theta", "rope_type", "type", FACTOR}):
        fix = "rope_theta and the type default are supported"
        raise MisfitError(where, f"{name} has {quoted(unknown[0])}, which is not supported", fix, unknown)
    return {"rope_theta": told["rope_theta"]} if "rope_theta" in told else {}


def settings_schema() -> dict[str, object]:
    """Every field that is read, and those without effect; names that begin with ``_`` are the library's notes."""
    theta = {**fields_of(Config)["rope_theta"].schema(), "description": "Base of the frequencies."}
    factor = {"description": "Share of a head that is turned.", "enum": [1, None]}
    kind = {"description": "Kind of rotary positions.", "const": "default"}
    table = {
        "type": "object",
        "properties": {"rope_theta": theta, "rope_type": kind, "type": kind, FACTOR: factor},
        "additionalProperties": False,
    }
    rotary = {"anyOf": [table, {"type": "null"}]}
    head = {
        "model_type": {"description": "Kind of the model; required in config.json.", "const": MODEL_TYPE},
        "architectures": {"description": "Class of the model.", "anyOf": [{"const": [CLASS]}, {"type": "null"}]},
    }
    more = {
        ROPE[0]: {"description": "Rotary positions.", **rotary},
        ROPE[1]: {"description": "The same in old files, with rope_theta beside it.", **rotary},
        FACTOR: factor,
        **{name: {"description": "Not read: it does not change what the network computes."} for name in INERT},
    }
    return CONFIG.schema("transformers", head, more)


def _unused(config: Config) -> tuple[str, ...]:
    """Notes on values without effect."""
    dropout = config.attention_dropout
    return (f"attention_dropout {dropout} is off, as always in inference",) if dropout else ()


def contradictions(config: Config, shapes: Mapping[str, Shape]) -> Iterator[str]:
    """Contradictions with the tensors; sizes that these do not determine are skipped."""
    first = "model.layers.0."
    query, key = f"{first}self_attn.q_proj.weight", f"{first}self_attn.k_proj.weight"
    heads, pairs, width = config.num_attention_heads, config.kv_heads, config.width
    ours = {
        "vocab_size": (config.vocab_size, size(shapes, "model.embed_tokens.weight", 0)),
        "hidden_size": (config.hidden_size, size(shapes, "model.embed_tokens.weight", 1)),
        "intermediate_size": (config.intermediate_size, size(shapes, f"{first}mlp.gate_proj.weight", 0)),
        "num_hidden_layers": (config.num_hidden_layers, count(shapes, "model.layers")),
        f"num_attention_heads {heads} times head_dim {width}": (heads * width, size(shapes, query, 0)),
        f"num_key_value_heads {pairs} times head_dim {width}": (pairs * width, size(shapes, key, 0)),
        "attention_bias": (config.attention_bias, f"{first}self_attn.q_proj.bias" in shapes),
        "mlp_bias": (config.mlp_bias, f"{first}mlp.gate_proj.bias" in shapes),
    }
    for name, (mine, other) in ours.items():
        if other not in (None, mine):
            yield f"{name} is {json.dumps(mine)}, but {json.dumps(other)} in the tensors"
    if not config.tie_word_embeddings and "lm_head.weight" not in shapes:
        yield "tie_word_embeddings is false, but the tensors have no lm_head.weight"


CONFIG: Final = LibraryConfig(Config, CLASS, "transformers 5.23.0", "network", "a language model", load, contradictions)
"""The library's class, and how its ``config.json`` is read."""
