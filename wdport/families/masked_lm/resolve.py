"""Find a model's configuration: ``config.json`` in the library's old and new spelling, the user's values, its defaults.

Names and shapes of the tensors also determine most sizes. Contradictions are reported in one error before a model is
built. The tensors of a Llama have the same names, so ``model_type`` is required.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from wdport.errors import MisfitError, UsageError, printable
from wdport.families.masked_lm.config import FIELDS, Config
from wdport.mapping.axes import Shape
from wdport.model import UNITS, Document, Resolved, Source

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

_FIX: Final = "correct config.json, or give the right value with --config FILE or --set NAME=VALUE"
_SUPPORTED: Final = f"the fields of {CLASS} in transformers 5.23.0 are supported"
_OTHER: Final = "other models need their own table (--mapping)"
_LAYER: Final = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.")


def resolve(source: Source, config: Document, flags: Document) -> Resolved:
    """Determine the configuration; raises :class:`MisfitError` naming every contradiction."""
    stored = source.document()
    if not stored and not config:
        fix = f"give the model's folder, or --config FILE; {_OTHER}"
        raise MisfitError(source.path, "there is no config.json with the network's configuration", fix)
    if stored and "model_type" not in stored:
        raise MisfitError(source.path, "config.json has no model_type", f"{MODEL_TYPE} is supported; {_OTHER}")
    document = _fields(stored, source.path)
    if any(name in flags for name in UNITS):
        raise MisfitError(source.path, "a language model has no series to normalise",
                          "leave out --norm-stats and --data")  # fmt: skip
    given = {
        **dict.fromkeys(document, "config.json"), **dict.fromkeys(config, "config"), **dict.fromkeys(flags, "flag"),
    }  # fmt: skip
    try:
        made = load({**document, **config, **flags})
    except ValueError as error:
        raise MisfitError(source.path, str(error), _FIX) from None
    wrong = list(contradictions(made, source.shapes))
    if wrong:
        raise MisfitError(source.path, "; ".join(wrong), _FIX, wrong)
    return Resolved(made, {name: given.get(name, "default") for name in FIELDS}, notes=_unused(made))


def load(values: Document) -> Config:
    """Load a configuration; raises ``ValueError``."""
    return Config.from_dict(values)


def read_settings(document: Document, where: str | Path) -> dict[str, object]:
    """The fields of a configuration file, which is a ``config.json`` or part of one."""
    return _fields(document, where)


def parse_setting(key: str, text: str) -> object:
    """One ``--set KEY=VALUE``, the value as JSON or text; raises ``UsageError``."""
    if key not in FIELDS:
        raise UsageError(
            f"--set {printable(key)}", "is not a field of this model's config.json", f"use one of {', '.join(FIELDS)}"
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None if text in ("None", "null") else text


def _fields(document: Document, where: str | Path) -> dict[str, object]:
    """The fields of the model, the rotary positions as ``rope_theta``; raises :class:`MisfitError` for other models,
    other kinds of rotary positions and unknown names. Names that begin with ``_`` are the library's own notes."""
    kind, classes = document.get("model_type", MODEL_TYPE), document.get("architectures")
    if kind != MODEL_TYPE:
        raise MisfitError(where, f"model_type is {_shown(kind)}", f"{MODEL_TYPE} is supported; {_OTHER}")
    if classes is not None and classes != [CLASS]:
        named = ", ".join(map(str, classes)) if isinstance(classes, list) else str(classes)
        raise MisfitError(where, f"architectures is {printable(named, 60)}", f"{CLASS} is supported; {_OTHER}")
    known = {*FIELDS, *ROPE, *IDENTITY, *INERT, FACTOR}
    if unknown := [name for name in document if name not in known and not name.startswith("_")]:
        raise MisfitError(where, f"unknown field {_shown(unknown[0])}", _SUPPORTED, unknown)
    own = {name: value for name, value in document.items() if name in FIELDS}
    return {**own, **_rotary(document, where)}


def _rotary(document: Document, where: str | Path) -> dict[str, object]:
    """``rope_theta`` if the document states it. ``rope_scaling`` precedes ``rope_parameters``, and what is in them the
    field beside them, as in the library."""
    name = next((name for name in reversed(ROPE) if document.get(name)), "")
    told = document.get(name) if name else {}
    if not isinstance(told, Mapping):
        raise MisfitError(where, f"{name} is not a table of values or null", _FIX)
    kind = told.get("rope_type", told.get("type", "default"))
    if kind != "default":
        raise MisfitError(
            where, f"{name} has the type {_shown(kind)}", "rotary positions of type default are supported"
        )
    factor = told.get(FACTOR, document.get(FACTOR))
    if factor is not None and (type(factor) not in (int, float) or factor != 1):
        raise MisfitError(where, f"{FACTOR} is {_shown(factor)}", "1 is supported: heads that are turned as a whole")
    if unknown := sorted(str(each) for each in set(told) - {"rope_theta", "rope_type", "type", FACTOR}):
        fix = "rope_theta and the type default are supported"
        raise MisfitError(where, f"{name} has {_shown(unknown[0])}, which is not supported", fix, unknown)
    return {"rope_theta": told["rope_theta"]} if "rope_theta" in told else {}


def _shown(value: object) -> str:
    return printable(repr(value), 60)


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
        "vocab_size": (config.vocab_size, _axis(shapes, "model.embed_tokens.weight", 0)),
        "hidden_size": (config.hidden_size, _axis(shapes, "model.embed_tokens.weight", 1)),
        "intermediate_size": (config.intermediate_size, _axis(shapes, f"{first}mlp.gate_proj.weight", 0)),
        "num_hidden_layers": (config.num_hidden_layers, _count(shapes)),
        f"num_attention_heads {heads} times head_dim {width}": (heads * width, _axis(shapes, query, 0)),
        f"num_key_value_heads {pairs} times head_dim {width}": (pairs * width, _axis(shapes, key, 0)),
        "attention_bias": (config.attention_bias, f"{first}self_attn.q_proj.bias" in shapes),
        "mlp_bias": (config.mlp_bias, f"{first}mlp.gate_proj.bias" in shapes),
    }
    for name, (mine, other) in ours.items():
        if other not in (None, mine):
            yield f"{name} is {_word(mine)}, but {_word(other)} in the tensors"
    if not config.tie_word_embeddings and "lm_head.weight" not in shapes:
        yield "tie_word_embeddings is false, but the tensors have no lm_head.weight"


def _word(value: object) -> str:
    return json.dumps(value)


def _count(shapes: Mapping[str, Shape]) -> int:
    """The number of layers, counted from 0 without a gap."""
    found = {int(match[1]) for name in shapes if (match := _LAYER.match(name))}
    return next(at for at in range(len(found) + 1) if at not in found)


def _axis(shapes: Mapping[str, Shape], name: str, axis: int) -> int | None:
    shape = shapes.get(name, ())
    return shape[axis] if axis < len(shape) else None
