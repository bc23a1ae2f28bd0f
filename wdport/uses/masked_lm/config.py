"""The configuration: the fields of ``config.json`` that fix the function of a EuroBertForMaskedLM, with the
library's defaults.

Source: transformers 5.23.0, ``EuroBertConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from wdport.base.errors import MisfitError
from wdport.base.fields import (
    FINITE,
    NETWORK,
    UNUSED,
    Choices,
    Dropout,
    Effect,
    FieldRefusal,
    Fields,
    Summary,
    Width,
    fields_of,
)
from wdport.base.limits import MAX_LAYERS, MAX_STEPS, MAX_WIDTH, require_model_size
from wdport.models.interface import Document
from wdport.uses.library_config import FIX, quoted

ROPE: Final = ("rope_parameters", "rope_scaling")
"""Names of the rotary position embeddings in new and in old files; the latter have a separate ``rope_theta``."""

FACTOR: Final = "partial_rotary_factor"


def rotary(document: Document, where: str | Path) -> dict[str, object]:
    """``rope_theta`` if the document states it; raises :class:`MisfitError` for other types of rotary position
    embedding.

    ``rope_scaling`` precedes ``rope_parameters``, and a value in either of them the separate field, as in the library.
    """
    name = next((name for name in reversed(ROPE) if document.get(name)), "")
    rope = document.get(name) if name else {}
    if not isinstance(rope, Mapping):
        raise MisfitError(where, f"{name} is not a table of values or null", FIX)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise MisfitError(
            where, f"{name} has the type {quoted(kind)}", "rotary positions of type default are supported"
        )
    factor = rope.get(FACTOR, document.get(FACTOR))
    if factor is not None and (type(factor) not in (int, float) or factor != 1):
        raise MisfitError(where, f"{FACTOR} is {quoted(factor)}", "1 is supported: heads that are turned as a whole")
    if unknown := sorted(str(key) for key in set(rope) - {"rope_theta", "rope_type", "type", FACTOR}):
        fix = "rope_theta and the type default are supported"
        raise MisfitError(where, f"{name} has {quoted(unknown[0])}, which is not supported", fix, unknown)
    return {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}


def rotary_schema() -> dict[str, object]:
    """JSON Schema of the fields of rotary position embeddings, except ``rope_theta``."""
    theta = {**fields_of(Config)["rope_theta"].schema(), "description": "Base of the frequencies."}
    factor = {"description": "Fraction of a head that is rotated.", "enum": [1, None]}
    kind = {"description": "Type of rotary position embedding.", "const": "default"}
    table = {
        "type": "object",
        "properties": {"rope_theta": theta, "rope_type": kind, "type": kind, FACTOR: factor},
        "additionalProperties": False,
    }
    either = {"anyOf": [table, {"type": "null"}]}
    return {
        ROPE[0]: {"description": "Rotary position embeddings.", **either},
        ROPE[1]: {
            "description": "Rotary position embeddings in old files, with rope_theta next to this field.",
            **either,
        },
        FACTOR: factor,
    }


ACTIVATIONS: Final = Choices(
    ("silu", "gelu", "gelu_pytorch_tanh", "relu", "mish"),
    synonyms={"swish": "silu", "gelu_python": "gelu", "gelu_new": "gelu_pytorch_tanh",
              "gelu_python_tanh": "gelu_pytorch_tanh"},
)  # fmt: skip
"""The activations, and other names of the library for these functions."""

TOKENIZER: Final = "tokenizer.json"
"""The file of the library's tokenizer, which a converted model keeps."""

LAYER_VARIABLES: Final = 16
"""Variables of a layer with all biases: those of seven products, and of two norms."""

Token = Annotated[int, Meta(ge=0, le=MAX_STEPS)]
NOT_REAL: Final = FieldRefusal("is not a number from 0 to 1e30")


@dataclass(frozen=True)
class Config(Fields):
    """Sizes and switches of one network; raises ``ValueError`` for values that the library or this family does not
    support.

    ``num_key_value_heads`` and ``head_dim`` are computed if they are ``None``, as in the library. ``mask_token_id`` is
    used by generation, and the embedding of ``pad_token_id`` only has no gradient. ``rope_theta`` holds the value of
    all spellings of the rotary position embeddings.
    """

    vocab_size: Annotated[
        int, Meta(ge=1, le=MAX_STEPS), "Number of tokens in the vocabulary.", NETWORK, Summary("tokens")
    ] = 128256
    hidden_size: Annotated[
        Width, "Number of channels per token; a multiple of num_attention_heads.", NETWORK, Summary("channels")
    ] = 768
    intermediate_size: Annotated[
        int, Meta(ge=1, le=4 * MAX_WIDTH), "Width of the gated feed-forward network.", NETWORK
    ] = 3072
    num_hidden_layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS), "Number of layers.", NETWORK, Summary("layers")] = 12
    num_attention_heads: Annotated[Width, "Number of attention heads.", NETWORK, Summary("heads")] = 12
    num_key_value_heads: Annotated[
        Width | None,
        "Number of key and value heads, a divisor of num_attention_heads; num_attention_heads if null.",
        NETWORK,
        Summary("key heads"),
    ] = None
    head_dim: Annotated[
        Annotated[int, Meta(ge=2, le=MAX_WIDTH)] | None,
        "Width of a head, an even number; hidden_size / num_attention_heads if null.",
        NETWORK,
    ] = None
    hidden_act: Annotated[str, ACTIVATIONS, "Activation function of the gated feed-forward network.", NETWORK] = "silu"
    max_position_embeddings: Annotated[
        int, Meta(ge=1, le=MAX_STEPS), "Longest sequence in training; the network has no limit.", UNUSED
    ] = 8192
    rms_norm_eps: Annotated[float, Meta(ge=0, lt=FINITE), "Epsilon of the norms.", NETWORK, NOT_REAL] = 1e-5
    rope_theta: Annotated[
        float,
        Meta(gt=0, lt=FINITE),
        "Base of the frequencies of the rotary position embeddings in old files; new files contain it in "
        "rope_parameters.",
        NETWORK,
        NOT_REAL,
    ] = 10_000.0
    attention_bias: Annotated[bool, "Whether the attention projections have biases.", NETWORK] = False
    mlp_bias: Annotated[bool, "Whether the gated feed-forward network and the head have biases.", NETWORK] = False
    tie_word_embeddings: Annotated[
        bool, "Whether the head shares the weights of the embedding.", NETWORK, Summary("tied head")
    ] = False
    attention_dropout: Dropout = 0.0
    pad_token_id: Annotated[
        Token | None, "Padding token, whose embedding gets no gradient; null for none.", Effect(gates=("C",))
    ] = 128001
    mask_token_id: Annotated[
        Token | None, "Mask token, which stands for a token to be predicted; null for none.", UNUSED
    ] = 128002

    def __post_init__(self) -> None:
        # Before the fields are checked, whose bound would report it as not a number above zero; False is not a number.
        if self.rope_theta == 0 and self.rope_theta is not False:
            raise ValueError("rope_theta is zero")
        super().__post_init__()
        if self.pad_token_id is not None and self.pad_token_id >= self.vocab_size:
            raise ValueError(f"pad_token_id {self.pad_token_id} is not below vocab_size {self.vocab_size}")
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"num_attention_heads {self.num_attention_heads} does not divide hidden_size "
                             f"{self.hidden_size}")  # fmt: skip
        if self.num_attention_heads % self.kv_heads:
            raise ValueError(f"num_key_value_heads {self.kv_heads} does not divide num_attention_heads "
                             f"{self.num_attention_heads}")  # fmt: skip
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)
        # A rotary position turns pairs of features, the first half of a head with the second.
        if self.width % 2:
            raise ValueError(f"head_dim {self.width} is odd, and rotary positions turn pairs")
        self._require_sizes()

    def _require_sizes(self) -> None:
        # Queries and the output have all heads, keys and values only theirs: twice the sum, times the width of a head.
        inner = self.num_attention_heads + self.kv_heads
        layer = self.hidden_size * (2 * inner * self.width + 3 * self.intermediate_size)
        values = layer * self.num_hidden_layers + 2 * self.vocab_size * self.hidden_size
        require_model_size(LAYER_VARIABLES * self.num_hidden_layers, values, "about ")

    @property
    def kv_heads(self) -> int:
        """The number of key and value heads."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def width(self) -> int:
        """The width of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads
