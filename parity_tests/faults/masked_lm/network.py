"""Known bugs of the network as a whole: embedding, layers, residual sums, head, and the precision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from keras import ops

from parity_tests.faults.changes import copied, in_float32, kernel, rounded, without_bias
from parity_tests.faults.masked_lm.attention import attending
from parity_tests.faults.masked_lm.layers import ATTENTION, BLOCK, EMBEDDING, HEAD, MLP, NETWORK, NORM, ROTARY
from wdport.families.faults import Change, Mutant, array_of, attributes, calling, holding
from wdport.models.interface import Array, KerasLayer, KerasModel, KerasTensor
from wdport.uses.masked_lm.config import Config

Angles = tuple[KerasTensor, KerasTensor]
Combined = Callable[[KerasLayer, KerasTensor, Callable[[KerasTensor], KerasTensor]], KerasTensor]
"""A block, its input, and its attention as a function of the normed input, to the block's output."""


def network_mutants(config: Config) -> list[Mutant]:
    """The mutants that this configuration can have."""
    last = f"block_{config.num_hidden_layers - 1}"
    found = [
        Mutant("block: input not added to attention", BLOCK, _block(lambda s, x, read: _rest(s, read(_normed(s, x))))),
        Mutant("block: input not added to the gated network", BLOCK, _block(
            lambda s, x, read: s.mlp(s.mlp_norm(x + read(_normed(s, x)))))),
        Mutant("block: normed input added", BLOCK, _block(
            lambda s, x, read: _rest(s, _normed(s, x) + read(_normed(s, x))))),
        Mutant("block: norm after attention", BLOCK, _block(
            lambda s, x, read: _rest(s, x + s.attention_norm(read(x))))),
        Mutant("block: both parts of one input", BLOCK, _block(
            lambda s, x, read: x + read(_normed(s, x)) + s.mlp(s.mlp_norm(x)))),
        Mutant("block: the two norms swapped", BLOCK, _norms_swapped, shares=True),
        Mutant("network: last norm left out", NETWORK, lambda _, model: attributes(model, norm=lambda x: x), gate="0"),
        Mutant("network: last layer left out", NETWORK, lambda _, model: attributes(model, depth=model.depth - 1),
               gate="0"),
        Mutant("network: mask not given to the layers", NETWORK, _hidden_without_mask, shares=True),
        Mutant("network: bfloat16 weights", NETWORK, rounded("bfloat16"), shares=True),
        Mutant("network: float16 weights", NETWORK, rounded("float16"), shares=True),
        Mutant("embedding: next token's", EMBEDDING,
               calling(lambda layer, ids: type(layer).call(layer, (ids + 1) % layer.input_dim))),
        Mutant("embedding: times the root of its width", EMBEDDING, calling(
            lambda s, ids: type(s).call(s, ids) * config.hidden_size**0.5)),
    ]  # fmt: skip
    if config.num_hidden_layers > 1:
        found.append(Mutant("block: weights of the first", (last,),
                            lambda layer, model: copied(layer, model.block_0), shares=True))  # fmt: skip
    if config.pad_token_id is not None:
        found.append(Mutant("embedding: padding zero", EMBEDDING, calling(_padding_zero)))
    return [*found, *_head_mutants(config)]


def _head_mutants(config: Config) -> list[Mutant]:
    if config.tie_word_embeddings:
        found = [
            Mutant("head: not tied", HEAD, _table(lambda table: np.random.default_rng(0).normal(size=table.shape))),
            Mutant("head: reshaped for transposed", HEAD, _table(lambda table: table.reshape(table.shape[::-1]).T)),
            Mutant("head: next token's row", HEAD, _table(lambda table: np.roll(table, -1, axis=0))),
        ]  # fmt: skip
    else:
        found = [
            Mutant("head: tied", HEAD, _tied),
            Mutant("head: next token's column", HEAD, kernel(lambda k: np.roll(k, -1, axis=1))),
        ]
    found.append(Mutant("head: divided by the root of the width", HEAD, calling(
        lambda s, x, **_: type(s).call(s, x) / config.hidden_size**0.5)))  # fmt: skip
    if config.mlp_bias:
        found.append(Mutant("head: bias dropped", HEAD, without_bias))
    return found


def _block(combined: Combined) -> Change:
    def call(
        layer: KerasLayer, x: KerasTensor, position_embeddings: Angles, visible: KerasTensor | None = None
    ) -> KerasTensor:
        return combined(layer, x, lambda normed: layer.attention(normed, position_embeddings, visible))

    return calling(call)


def _normed(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return layer.attention_norm(x)


def _rest(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return x + layer.mlp(layer.mlp_norm(x))


def _norms_swapped(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    first, second = layer.attention_norm.scale, layer.mlp_norm.scale
    return holding((first, array_of(second)), (second, array_of(first)))


def _hidden_without_mask(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    hidden = model.hidden
    return patch.object(model, "hidden", lambda input_ids, attention_mask=None: hidden(input_ids))


def _padding_zero(layer: KerasLayer, ids: KerasTensor) -> KerasTensor:
    return jnp.where((ids == layer.padding_idx)[..., None], 0.0, type(layer).call(layer, ids))


def _table(function: Callable[[Array], Array]) -> Change:
    """The head with another table, of which the embedding knows nothing."""

    def change(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
        held = array_of(layer.table())
        other = jnp.asarray(function(held).astype(held.dtype))
        return attributes(layer, table=lambda: other)

    return change


def _tied(layer: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    return holding((layer.kernel, array_of(model.embed_tokens.embeddings).T))


def numerics_mutants(config: Config) -> list[Mutant]:
    """All of them; the only angle of a head of two features is the position, which bfloat16 holds exactly."""
    dense = tuple(f"{place}/{part}" for place in MLP for part in ("gate", "up", "down"))
    found = [
        Mutant("products in TF32", dense, in_float32(calling(_tf32)), gate="B"),
        Mutant("norm: root in bfloat16", NORM, in_float32(calling(_rough_root)), gate="B"),
        Mutant("attention: logits in bfloat16", ATTENTION, in_float32(attending(hide=_rough_logits)), gate="B"),
    ]
    if config.width > 2:
        found.append(Mutant("rotary: angles in bfloat16", ROTARY, in_float32(calling(_rough_angles)), gate="B"))
    return found


def _rough(x: KerasTensor) -> KerasTensor:
    return ops.cast(ops.cast(x, "bfloat16"), "float32")


def _tf32(layer: KerasLayer, x: KerasTensor, **_: object) -> KerasTensor:
    """Operands rounded to ten mantissa bits, as in TF32 matrix units by default."""
    x, kernel = (jax.lax.reduce_precision(part, 8, 10) for part in (x, jnp.asarray(layer.kernel.value)))
    return x @ kernel if layer.bias is None else x @ kernel + layer.bias


def _rough_root(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    root = lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + layer.epsilon)
    return x * _rough(root) * layer.scale


def _rough_angles(layer: KerasLayer, positions: KerasTensor) -> tuple[KerasTensor, KerasTensor]:
    angles = _rough(ops.cast(positions, "float32")[..., None] * layer.frequencies)
    angles = jnp.concatenate([angles, angles], axis=-1)
    return jnp.cos(angles), jnp.sin(angles)


def _rough_logits(logits: KerasTensor, seen: KerasTensor) -> KerasTensor:
    return jnp.where(seen[:, None, None], _rough(logits), np.finfo(logits.dtype).min)
