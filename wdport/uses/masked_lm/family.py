"""EuroBertForMaskedLM as a family: the object through which the rest of wdport uses it, with inputs for comparisons
in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wdport.base.errors import MisfitError, printable
from wdport.base.fields import fields_of
from wdport.families.shapes import Shapes, count, size
from wdport.models.interface import ConfigurationSource, Document, Port, Resolved, Signature, Stated, Vocabulary
from wdport.recording.cases import LONGEST
from wdport.recording.input_text import parse_inputs
from wdport.uses.library_config import LibraryFamily, quoted
from wdport.uses.masked_lm.config import FACTOR, ROPE, TOKENIZER, Config, rotary, rotary_schema

if TYPE_CHECKING:
    from wdport.families.roles import Accompanied, Configured, Documented, Family, Referenced
    from wdport.uses.masked_lm.port import MaskedLM
    from wdport.uses.roles import Completing, TokenNetwork

LENGTH: Final = 24
"""Tokens of a compared sequence. The network has no parameter that depends on the position, but rotary angles do: one
sequence is as long as the model states."""


def signature(config: Config) -> Signature:
    """Tokens (B, N) and the mask of padding (B, N), true for tokens that are read; sequences differ in length."""
    # The angles grow with the position, and with them their rounding error, which only a long sequence shows.
    length = f"{LENGTH}..{max(LENGTH, min(LONGEST, config.max_position_embeddings))}"
    inputs = (f"input_ids: b n={length}, below {config.vocab_size}", f"attention_mask: b n={length}, mask")
    return Signature(parse_inputs(inputs), (Port("logits"),), free={"n": 1})


INERT: Final = (
    "auto_map", "bos_token", "bos_token_id", "chunk_size_feed_forward", "classifier_pooling", "clf_pooling", "dtype",
    "eos_token", "eos_token_id", "hidden_dropout", "id2label", "initializer_range", "is_encoder_decoder", "label2id",
    "mask_token", "name_or_path", "num_labels", "output_attentions", "output_hidden_states", "pad_token",
    "pretraining_tp", "problem_type", "return_dict", "sep_token_id", "torch_dtype", "torchscript",
    "transformers_version", "use_cache",
)  # fmt: skip
"""Fields that do not change what the network computes."""

MODEL_TYPE: Final = "eurobert"
OTHER: Final = "other models need their own table (`--mapping`)"


class MaskedLMFamily(LibraryFamily[Config]):
    """A masked language model in the roles of :mod:`wdport.families.roles`, except sampling and training.

    The tensors of a Llama have the same names, so ``model_type`` is required.
    """

    name = "masked_lm"
    configuration = Config
    keras_class = "MaskedLM"
    kept = (TOKENIZER,)
    library, version, library_class = "transformers", "5.23.0", "EuroBertForMaskedLM"
    model_phrase, elsewhere = "a language model", f"; {OTHER}"
    signature = staticmethod(signature)

    def resolve(self, source: ConfigurationSource, config: Document, flags: Document) -> Resolved:
        stored = source.document()
        self.require_document(source, stored, config)
        if stored and "model_type" not in stored:
            what = "config.json has no model_type"
            raise MisfitError(source.path, what, f"{MODEL_TYPE} is supported; {OTHER}")
        document = self.read_settings(stored, source.path)
        return self.resolve_values(source, {"config.json": document, "config": config, "flag": flags})

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        """The fields of a configuration file, which is a ``config.json`` or part of one, the rotary position
        embeddings as ``rope_theta``; raises :class:`MisfitError` for other models, other types of rotary position
        embedding and unknown names.

        Names that begin with ``_`` are the library's own notes.
        """
        kind, classes = document.get("model_type", MODEL_TYPE), document.get("architectures")
        if kind != MODEL_TYPE:
            raise MisfitError(where, f"model_type is {quoted(kind)}", f"{MODEL_TYPE} is supported; {OTHER}")
        if classes is not None and classes != [self.library_class]:
            named = ", ".join(map(str, classes)) if isinstance(classes, list) else str(classes)
            what = f"architectures is {printable(named, 60)}"
            raise MisfitError(where, what, f"{self.library_class} is supported; {OTHER}")
        names = fields_of(Config)
        self.require_known(document, (*names, *ROPE, "model_type", "architectures", *INERT, FACTOR), where)
        return {**{name: value for name, value in document.items() if name in names}, **rotary(document, where)}

    def settings_schema(self) -> dict[str, object]:
        """Every field that is read, and those without effect; names that begin with ``_`` are the library's notes."""
        class_schema = {"anyOf": [{"const": [self.library_class]}, {"type": "null"}]}
        head = {
            "model_type": {"description": "Kind of the model; required in config.json.", "const": MODEL_TYPE},
            "architectures": {"description": "Class of the model.", **class_schema},
        }
        unread = {"description": "Not read: it does not change what the network computes."}
        return self.schema(head, {**rotary_schema(), **dict.fromkeys(INERT, unread)})

    def sizes(self, shapes: Shapes) -> dict[str, object]:
        table, first = "model.embed_tokens.weight", "model.layers.0."
        return {
            "vocab_size": size(shapes, table, 0),
            "hidden_size": size(shapes, table, 1),
            "intermediate_size": size(shapes, f"{first}mlp.gate_proj.weight", 0),
            "num_hidden_layers": count(shapes, "model.layers"),
            # Rows of a projection are heads times their width, so these two are compared as products, see `compared`.
            "num_attention_heads": size(shapes, f"{first}self_attn.q_proj.weight", 0),
            "num_key_value_heads": size(shapes, f"{first}self_attn.k_proj.weight", 0),
            "attention_bias": f"{first}self_attn.q_proj.bias" in shapes,
            "mlp_bias": f"{first}mlp.gate_proj.bias" in shapes,
        }

    def compared(self, config: Config) -> dict[str, object]:
        heads = {"num_attention_heads": config.num_attention_heads, "num_key_value_heads": config.kv_heads}
        return {name: (f"{name} {head_count} times head_dim {config.width}", head_count * config.width)
                for name, head_count in heads.items()}  # fmt: skip

    def contradictions(self, config: Config, shapes: Shapes) -> Iterator[str]:
        yield from super().contradictions(config, shapes)
        if not config.tie_word_embeddings and "lm_head.weight" not in shapes:
            yield "tie_word_embeddings is false, but the tensors have no lm_head.weight"

    def features(self, config: Config) -> frozenset[str]:
        """Kinds of heads, by their names under ``when:`` in the table."""
        if not config.tie_word_embeddings:
            return frozenset({"untied"})
        return frozenset({"tied", "tied_bias"} if config.mlp_bias else {"tied"})

    def misread(self, config: Config, stated: Stated, module: Any) -> list[str]:
        # The library writes its defaults and its own notes as well; only the fields that fix the function are compared.
        names = {*fields_of(Config), *ROPE}
        written = {name: value for name, value in module.config.to_dict().items() if name in names}
        theirs = self.load_config(self.read_settings(written, "config.json")).to_dict()
        return [f"{name} is {library_value!r} as transformers reads config.json, and {value!r} here"
                for name, value in config.to_dict().items()
                if (library_value := theirs[name]) != value and (name, value) != ("mask_token_id", None)]  # fmt: skip

    def is_configuration_of_library(self, document: Document) -> bool:
        return document.get("model_type") == MODEL_TYPE

    def create(self, released: Any, document: dict[str, object]) -> Any:
        return released(released.config_class.from_dict(document))

    def library_of(self, config: Config) -> str:
        return str(self.reference_module.library_of())

    def keep(self, model: MaskedLM, files: Mapping[str, bytes]) -> None:
        model.tokenizer_json = files.get(TOKENIZER, b"").decode(errors="replace")

    def tokenizer(self, model: MaskedLM) -> str:
        return str(model.tokenizer_json)

    def vocabulary(self, config: Config) -> Vocabulary:
        mask = config.mask_token_id
        # The default mask token, 128,002, is outside the vocabulary of a smaller model.
        return Vocabulary(config.vocab_size, mask if mask is not None and mask < config.vocab_size else None,
                          config.pad_token_id, config.max_position_embeddings)  # fmt: skip

    def token_network(self, model: MaskedLM) -> TokenNetwork:
        from wdport.uses.masked_lm.port import Predictor

        return Predictor(model)


FAMILY = MaskedLMFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Referenced, Configured, Completing, Accompanied] = (FAMILY,) * 6
