"""EuroBertForMaskedLM in Keras 3: maps tokens (B, N) and a mask of padding (B, N) to logits (B, N, T).

The readable source of truth. Every layer named in `mappings/masked_lm.yaml` is a Keras layer whose output can be
recorded and whose inputs can be fed, eager or under jit. :meth:`MaskedLM.hidden` and :meth:`MaskedLM.logits`, whose
composition is the call, and :meth:`MaskedLM.part` compute logits only where they are needed. Source: transformers
5.23.0, ``EuroBertForMaskedLM``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from weakref import ref

import jax.numpy as jnp
import keras
from jax import lax
from keras import activations, layers, ops

from wdport.families.ported_model import PortedModel
from wdport.models.interface import KerasTensor as Tensor
from wdport.models.interface import KerasVariable
from wdport.nets.activations import gelu, gelu_tanh
from wdport.nets.attention import Rotary, TokenAttention
from wdport.nets.composed import Composed
from wdport.nets.norms import RMSNorm
from wdport.uses.masked_lm.config import TOKENIZER, Config

Activation = Callable[[Tensor], Tensor]


class TokenEmbedding(layers.Embedding):
    """Tokens (B, N) -> (B, N, C). The row of the token ``padding_idx`` is looked up like any other, but gets no
    gradient, as in ``torch.nn.Embedding``."""

    def __init__(self, tokens: int, channels: int, padding_idx: int | None = None, **kwargs: object) -> None:
        super().__init__(tokens, channels, **kwargs)
        self.padding_idx = padding_idx

    def call(self, inputs: Tensor) -> Tensor:
        # torch sets the gradient of this row to zero; the value of the row is looked up all the same.
        embedded = super().call(inputs)
        if self.padding_idx is None:
            return embedded
        return jnp.where((inputs == self.padding_idx)[..., None], lax.stop_gradient(embedded), embedded)


class TiedHead(layers.Layer):
    """(B, N, C) -> logits (B, N, T) by the ``table`` (T, C) of an embedding, which has the variable, and by a separate
    bias."""

    def __init__(self, units: int, table: Callable[[], KerasVariable], use_bias: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        # A function, not the variable: Keras would track it here too, and count and store the table twice.
        self.units, self.table, self.use_bias = units, table, use_bias

    def build(self, _: object = None) -> None:
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros") if self.use_bias else None

    def call(self, inputs: Tensor) -> Tensor:
        table = ops.cast(self.table(), inputs.dtype)
        # The embedding is (T, C), where a Dense kernel would be (C, T).
        logits = inputs @ jnp.swapaxes(table, 0, 1)
        return logits if self.bias is None else logits + self.bias


class GatedMlp(Composed):
    """(B, N, C) -> (B, N, C): ``down(act(gate(x)) * up(x))`` with ``width`` features; SwiGLU if the activation is
    SiLU."""

    def __init__(
        self, channels: int, width: int, activation: str | Activation, use_bias: bool, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.add(layers.Dense(width, use_bias=use_bias, name="gate"), (None, None, channels))
        self.act = layers.Activation(activations.get(activation), name="act")
        self.add(layers.Dense(width, use_bias=use_bias, name="up"), (None, None, channels))
        self.add(layers.Dense(channels, use_bias=use_bias, name="down"), (None, None, width))

    def call(self, x: Tensor) -> Tensor:
        # Only the gate is activated.
        return self.down(self.act(self.gate(x)) * self.up(x))


FUNCTIONS: dict[str, Activation] = {"gelu": gelu, "gelu_pytorch_tanh": gelu_tanh}
"""Activations that are not Keras's by that name."""


class Block(Composed):
    """Tokens (B, N, C) -> (B, N, C): attention, then the gated network, each after a norm and added to its input."""

    def __init__(self, config: Config, **kwargs: object) -> None:
        super().__init__(**kwargs)
        channels, epsilon = config.hidden_size, config.rms_norm_eps
        self.add(RMSNorm(epsilon, name="attention_norm"), (None, None, channels))
        self.add(TokenAttention(
            channels, config.num_attention_heads, config.kv_heads, config.width, config.attention_bias, name="attention"
        ))  # fmt: skip
        self.add(RMSNorm(epsilon, name="mlp_norm"), (None, None, channels))
        act = FUNCTIONS.get(config.hidden_act, config.hidden_act)
        self.add(GatedMlp(channels, config.intermediate_size, act, config.mlp_bias, name="mlp"))

    def call(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], visible: Tensor | None = None
    ) -> Tensor:
        normed = self.attention_norm(hidden_states)
        hidden_states = hidden_states + self.attention(normed, position_embeddings, visible)
        return hidden_states + self.mlp(self.mlp_norm(hidden_states))

    def part(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        visible: Tensor | None,
        cut: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The result for a part of the tokens, (B, M, C), which ``cut`` takes of any array (B, N, ...)."""
        normed = self.attention_norm(hidden_states)
        # Keys and values are of all tokens; only queries, and everything after them, are cut.
        tokens = cut(hidden_states) + self.attention.part(normed, position_embeddings, visible, cut)
        return tokens + self.mlp(self.mlp_norm(tokens))


@keras.saving.register_keras_serializable("wdport")
class MaskedLM(PortedModel):
    """The network: ``model((input_ids, attention_mask))``.

    Args:
        config: a :class:`Config` or its :meth:`Config.to_dict`; fixes every variable.

    ``tokenizer_json`` is the library's ``tokenizer.json``, "" if the checkpoint had none.

    Inputs: input_ids (B, N) below ``vocab_size``; attention_mask (B, N), true or nonzero for tokens that are read,
        false for padding, on any side. Output: logits (B, N, vocab_size) in the compute dtype.
    """

    configuration, family = Config, "masked_lm"

    def create(self, config: Config) -> None:
        self.tokenizer_json, self.depth = "", config.num_hidden_layers
        tokens, hidden = config.vocab_size, (None, None, config.hidden_size)
        embedding = TokenEmbedding(tokens, config.hidden_size, config.pad_token_id, name="embed_tokens")
        self.add(embedding, (None, None))
        self.add(Rotary(config.width, config.rope_theta, name="rotary"), (None, None))
        for index in range(self.depth):
            self.add(Block(config, name=f"block_{index}"))
        self.add(RMSNorm(config.rms_norm_eps, name="norm"), hidden)
        if config.tie_word_embeddings:
            self.add(TiedHead(tokens, lambda: embedding.embeddings, config.mlp_bias, name="lm_head"), hidden)
        else:
            self.add(layers.Dense(tokens, use_bias=config.mlp_bias, name="lm_head"), hidden)

    def call(self, inputs: tuple[Tensor, ...], training: bool | None = None) -> Tensor:
        input_ids, attention_mask = inputs
        return self.logits(self.hidden(input_ids, attention_mask))

    def hidden(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The features (B, N, C) after the last norm; all tokens are read if ``attention_mask`` is ``None``."""
        # Padding on the left shifts positions too: the library numbers all tokens, read or not.
        positions = self.rotary(jnp.arange(input_ids.shape[1])[None])
        x = self.embed_tokens(input_ids)
        for index in range(self.depth):
            x = getattr(self, f"block_{index}")(x, positions, attention_mask)
        return self.norm(x)

    def part(self, input_ids: Tensor, visible: Tensor, position_ids: Tensor, first: Tensor, count: int) -> Tensor:
        """The logits (B, count, vocab_size) of the tokens from ``first`` on, which may be a traced integer.

        All arguments but these two are (B, N); ``position_ids`` are positions in the text, in any order.
        """

        def cut(x: Tensor) -> Tensor:
            return lax.dynamic_slice_in_dim(x, first, count, axis=1)

        positions = self.rotary(position_ids)
        x = self.embed_tokens(input_ids)
        for index in range(self.depth - 1):
            x = getattr(self, f"block_{index}")(x, positions, visible)
        # Earlier blocks need every token: the last one reads all of them.
        x = getattr(self, f"block_{self.depth - 1}").part(x, positions, visible, cut)
        return self.logits(self.norm(x))

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits (B, M, vocab_size) of features (B, M, C) at any positions."""
        return self.lm_head(hidden)

    def compute_output_shape(self, inputs_shape: tuple[tuple[int | None, ...], ...]) -> tuple[int | None, ...]:
        return (*inputs_shape[0], self.config.vocab_size)

    def save_assets(self, folder: str) -> None:
        """Keep the tokenizer in a file that Keras saves."""
        if self.tokenizer_json:
            (Path(folder) / TOKENIZER).write_text(self.tokenizer_json, encoding="utf-8")

    def load_assets(self, folder: str) -> None:
        """Take the tokenizer from a file that Keras reads, if it is there."""
        if (file := Path(folder) / TOKENIZER).is_file():
            self.tokenizer_json = file.read_text(encoding="utf-8")


class Predictor:
    """The network for generation, :meth:`MaskedLM.part` as a pure function of the model's weights: a
    :class:`wdport.uses.roles.TokenNetwork`."""

    def __init__(self, model: MaskedLM) -> None:
        # What keeps this network, with its compiled programs, must not keep the model alive.
        self._model = ref(model)

    def weights(self) -> list[Tensor]:
        return [variable.value for variable in self._variables()]

    def predict(
        self, weights: list[Tensor], tokens: Tensor, visible: Tensor, positions: Tensor, first: Tensor, count: int
    ) -> Tensor:
        # Values as arguments: a program that closed over them would hold them as constants.
        mapping = list(zip(self._variables(), weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return self._live_model().part(tokens, visible, positions, first, count)

    def _variables(self) -> list[KerasVariable]:
        return list(self._live_model().weights)

    def _live_model(self) -> MaskedLM:
        model = self._model()
        if model is None:
            raise ReferenceError("the model no longer exists")
        return model
