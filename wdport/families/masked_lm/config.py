"""The configuration: the fields of ``config.json`` that fix the function of a EuroBertForMaskedLM, with the library's
defaults.

Source: transformers 5.23.0, ``EuroBertConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Final

from wdport.limits import MAX_LAYERS, MAX_STEPS, MAX_VALUES, MAX_VARIABLES, MAX_WIDTH

ACTIVATIONS: Final = ("silu", "gelu", "gelu_pytorch_tanh", "relu", "mish")
SYNONYMS: Final[Mapping[str, str]] = {
    "swish": "silu", "gelu_python": "gelu", "gelu_new": "gelu_pytorch_tanh", "gelu_python_tanh": "gelu_pytorch_tanh",
}  # fmt: skip
"""Other names of the library for these functions."""

TOKENIZER: Final = "tokenizer.json"
"""The file of the library's tokenizer, which a converted model keeps."""

LAYER_VARIABLES: Final = 16
"""Of one layer with all biases."""


@dataclass(frozen=True)
class Config:
    """Sizes and switches of one network; raises ``ValueError`` for values that the library or this family does not
    support.

    ``num_key_value_heads`` and ``head_dim`` are computed if they are ``None``, as in the library: as many as heads, and
    ``hidden_size`` over the heads. The network does not depend on ``max_position_embeddings``, nor on the value of
    ``mask_token_id``, which generation uses. ``pad_token_id`` only has no gradient.
    """

    vocab_size: int = 128256
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    attention_dropout: float = 0.0
    pad_token_id: int | None = 128001
    mask_token_id: int | None = 128002

    def __post_init__(self) -> None:
        for name, (accepted, word) in KINDS.items():
            value = getattr(self, name)
            if type(value) not in accepted and not (value is None and name in OPTIONAL):
                raise ValueError(f"{name} is not {word}")
        self._check_numbers()
        act = SYNONYMS.get(self.hidden_act, self.hidden_act)
        if act not in ACTIVATIONS:
            raise ValueError(f"hidden_act {_shown(act)} is not supported: use {', '.join(ACTIVATIONS)}")
        self._set("hidden_act", act)
        if self.num_key_value_heads is None:
            self._set("num_key_value_heads", self.num_attention_heads)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"num_attention_heads {self.num_attention_heads} does not divide hidden_size "
                             f"{self.hidden_size}")  # fmt: skip
        if self.num_attention_heads % self.kv_heads:
            raise ValueError(f"num_key_value_heads {self.kv_heads} does not divide num_attention_heads "
                             f"{self.num_attention_heads}")  # fmt: skip
        if self.head_dim is None:
            self._set("head_dim", self.hidden_size // self.num_attention_heads)
        if self.width % 2:
            raise ValueError(f"head_dim {self.width} is odd, and rotary positions turn pairs")
        self._check_sizes()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_numbers(self) -> None:
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} {_shown(value)}: from {least} to {most} is supported")
        for name in ("rms_norm_eps", "rope_theta"):
            value = getattr(self, name)
            if not (0 <= value < 1e30 and isfinite(value)):
                raise ValueError(f"{name} is not a number from 0 to 1e30")
        if self.rope_theta <= 0:
            raise ValueError("rope_theta is zero")
        if not 0.0 <= self.attention_dropout < 1.0:
            raise ValueError(f"attention_dropout {_shown(self.attention_dropout)} is not in [0, 1)")
        if self.pad_token_id is not None and self.pad_token_id >= self.vocab_size:
            raise ValueError(f"pad_token_id {self.pad_token_id} is not below vocab_size {self.vocab_size}")

    def _check_sizes(self) -> None:
        inner = self.num_attention_heads + self.kv_heads
        layer = self.hidden_size * (2 * inner * self.width + 3 * self.intermediate_size)
        values = layer * self.num_hidden_layers + 2 * self.vocab_size * self.hidden_size
        variables = LAYER_VARIABLES * self.num_hidden_layers
        for count, most, word in ((variables, MAX_VARIABLES, "variables"), (values, MAX_VALUES, "values")):
            if count > most:
                raise ValueError(
                    f"the sizes are those of a model of about {count} {word}, at most {most} are supported"
                )

    @property
    def kv_heads(self) -> int:
        """The number of key and value heads."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def width(self) -> int:
        """The width of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; :meth:`from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """A configuration from such values, with the library's defaults for absent ones; raises ``ValueError``."""
        if not isinstance(values, Mapping):
            raise ValueError("the configuration is not a table of values")
        if unknown := sorted(str(name) for name in set(values) - set(FIELDS)):
            raise ValueError(f"unknown field {_shown(unknown[0])}")
        return cls(**values)


def _shown(value: object) -> str:
    """A value for an error message; numbers of thousands of digits are not written out."""
    if type(value) is int:
        return str(value) if abs(value) < 1 << 64 else f"of {value.bit_length()} bits"
    return repr(value)[:60]


FIELDS: Final = tuple(field.name for field in fields(Config))
"""Every field that is read; ``rope_theta`` stands for all spellings of the rotary positions."""

_INTEGER, _REAL, _FLAG = ((int,), "a whole number"), ((int, float), "a number"), ((bool,), "true or false")
KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    **dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                     "num_key_value_heads", "head_dim", "max_position_embeddings", "pad_token_id", "mask_token_id"),
                    _INTEGER),
    **dict.fromkeys(("rms_norm_eps", "rope_theta", "attention_dropout"), _REAL),
    **dict.fromkeys(("attention_bias", "mlp_bias", "tie_word_embeddings"), _FLAG),
    "hidden_act": ((str,), "text"),
}  # fmt: skip
"""Types of the fields (a bool is not a number), and their descriptions."""

OPTIONAL: Final = ("num_key_value_heads", "head_dim", "pad_token_id", "mask_token_id")

BOUNDS: Final = {
    "vocab_size": (1, MAX_STEPS),
    "hidden_size": (1, MAX_WIDTH),
    "intermediate_size": (1, 4 * MAX_WIDTH),
    "num_hidden_layers": (1, MAX_LAYERS),
    "num_attention_heads": (1, MAX_WIDTH),
    "num_key_value_heads": (1, MAX_WIDTH),
    "head_dim": (2, MAX_WIDTH),
    "max_position_embeddings": (1, MAX_STEPS),
    "pad_token_id": (0, MAX_STEPS),
    "mask_token_id": (0, MAX_STEPS),
}
"""The smallest and largest value of every size."""
