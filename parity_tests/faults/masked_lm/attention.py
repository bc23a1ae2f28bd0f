"""Known bugs of attention over tokens: heads, shared keys, scale, softmax, the mask of padding, rotary positions."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from keras import ops

from parity_tests.faults.changes import frequencies, kernel, swapped, transposed, without_bias
from parity_tests.faults.masked_lm.layers import ATTENTION, ROTARY
from wdport.families.faults import Change, Mutant, calling
from wdport.models.interface import KerasLayer, KerasTensor
from wdport.nets.attention import rotary_frequencies, turned
from wdport.uses.masked_lm.config import Config

Angles = tuple[KerasTensor, KerasTensor]
Turn = Callable[[KerasTensor, KerasTensor, KerasTensor, Angles], tuple[KerasTensor, ...]]
"""Queries, keys, values (B, heads, N, K) and angles (1, 1, N, K) to the three that attention uses."""

Hide = Callable[[KerasTensor, KerasTensor], KerasTensor]
"""Logits (B, heads, N, N) and the visible tokens (B, N) to the masked logits."""

Spread = Callable[[KerasTensor, int], KerasTensor]
"""Keys (B, pairs, N, K) for each of so many heads that share them."""


def attention_mutants(config: Config) -> list[Mutant]:
    """The mutants that this configuration's attention can have."""
    heads, pairs, width = config.num_attention_heads, config.kv_heads, config.width
    found = [
        Mutant("attention: no scale", ATTENTION, attending(scale=lambda _: 1.0)),
        Mutant("attention: scale by all channels", ATTENTION, attending(scale=lambda s: s.out.units**-0.5)),
        Mutant("attention: divided by the width, not its root", ATTENTION, attending(scale=lambda s: 1 / s.head_dim)),
        Mutant("attention: softmax over queries", ATTENTION, attending(axis=-2)),
        Mutant("attention: key and value swapped", ATTENTION, swapped("key", "value"), shares=True),
        Mutant("mask: not used", ATTENTION, attending(hide=lambda x, _: x)),
        Mutant("mask: true for padding", ATTENTION, attending(hide=lambda x, seen: _hidden(x, ~seen))),
        Mutant("mask: added as 0 and 1", ATTENTION, attending(hide=lambda x, seen: x + 1.0 * seen[:, None, None])),
        Mutant("mask: too weak", ATTENTION, attending(hide=lambda x, seen: x - 10.0 * (~seen)[:, None, None])),
        Mutant("mask: of queries", ATTENTION, attending(hide=lambda x, seen: jnp.swapaxes(
            _hidden(jnp.swapaxes(x, 2, 3), seen), 2, 3))),
        Mutant("mask: of the first sequence for all", ATTENTION, attending(hide=lambda x, seen: _hidden(x, seen[:1]))),
        Mutant("mask: a causal one too", ATTENTION, attending(hide=_causal)),
        Mutant("mask: on the weights, after the softmax", ATTENTION, attending(hide=lambda x, _: x, late=True)),
        Mutant("mask: a token too long", ATTENTION, attending(hide=lambda x, seen: _hidden(
            x, seen | jnp.pad(seen, ((0, 0), (1, 0)))[:, :-1]))),
    ]  # fmt: skip
    if pairs == heads:
        found.append(Mutant("attention: query and key swapped", ATTENTION, swapped("query", "key"), shares=True))
    if 1 < pairs < heads:
        found.append(Mutant("attention: keys tiled, not repeated", ATTENTION, attending(spread=_tiled)))
    if heads > 1:
        found += [
            Mutant("attention: heads merged without transposing", ATTENTION, attending(merged=True)),
            Mutant("attention: heads merged in reverse", ATTENTION, attending(order=-1)),
        ]
    if heads > 1 and width > 1:
        found.append(Mutant("attention: width before the heads", ATTENTION, attending(split=_width_first)))
    if pairs > 1:
        found.append(Mutant("attention: one key head for all", ATTENTION, attending(spread=_first)))
    if heads * width == config.hidden_size:
        places = tuple(f"{place}/{part}" for place in ATTENTION for part in ("query", "out"))
        found.append(Mutant("attention: weight not transposed", places, transposed))
    if config.attention_bias:
        places = tuple(f"{place}/{part}" for place in ATTENTION for part in ("query", "value", "out"))
        found.append(Mutant("attention: bias dropped", places, without_bias))
    values = tuple(f"{place}/value" for place in ATTENTION)
    return [*found, Mutant("attention: values zero", values, kernel(np.zeros_like))]


def attending(
    turn: Turn = lambda q, k, v, at: (turned(q, *at), turned(k, *at), v),
    scale: Callable[[KerasLayer], float] = lambda layer: layer.head_dim**-0.5,
    spread: Spread = lambda x, shared: jnp.repeat(x, shared, axis=1),
    hide: Hide | None = None,
    split: Callable[[KerasLayer, KerasTensor], KerasTensor] = lambda layer, x: layer._heads(x),
    axis: int = -1,
    late: bool = False,
    merged: bool = False,
    order: int = 1,
) -> Change:
    """Attention with other parts, written as the library does, with keys repeated."""
    hide = _hidden if hide is None else hide

    def call(
        layer: KerasLayer, x: KerasTensor, position_embeddings: Angles, visible: KerasTensor | None = None
    ) -> KerasTensor:
        q, k, v = (split(layer, projection(x)) for projection in (layer.query, layer.key, layer.value))
        cosines, sines = position_embeddings
        q, k, v = turn(q, k, v, (cosines[:, None], sines[:, None]))
        shared = layer.num_heads // layer.num_key_value_heads
        k, v = spread(k, shared), spread(v, shared)
        seen = jnp.ones(x.shape[:2], bool) if visible is None else ops.cast(visible, "bool")
        weights = jax.nn.softmax(hide(q * scale(layer) @ jnp.swapaxes(k, 2, 3), seen), axis=axis)
        if late:
            weights = weights * seen[:, None, None]
        read = (weights @ v)[:, ::order]
        shape = (*x.shape[:2], layer.num_heads * layer.head_dim)
        return layer.out(jnp.reshape(read if merged else jnp.swapaxes(read, 1, 2), shape))

    return calling(call)


def _hidden(logits: KerasTensor, seen: KerasTensor) -> KerasTensor:
    return jnp.where(seen[:, None, None], logits, np.finfo(logits.dtype).min)


def _causal(logits: KerasTensor, seen: KerasTensor) -> KerasTensor:
    earlier = jnp.tril(jnp.ones(logits.shape[-2:], bool))
    return jnp.where(earlier, _hidden(logits, seen), np.finfo(logits.dtype).min)


def _tiled(x: KerasTensor, shared: int) -> KerasTensor:
    return jnp.tile(x, (1, shared, 1, 1))


def _first(x: KerasTensor, shared: int) -> KerasTensor:
    return jnp.tile(x[:, :1], (1, shared * x.shape[1], 1, 1))


def _width_first(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """(B, N, K * heads) -> (B, heads, N, K)."""
    return jnp.moveaxis(jnp.reshape(x, (*x.shape[:2], layer.head_dim, -1)), 3, 1)


Pair = tuple[KerasTensor, KerasTensor]


def rotary_mutants(config: Config) -> list[Mutant]:
    """Angles are seen at their layer, and turns at the attention. A head of two features has only one angle."""
    found = [
        Mutant("rotary: positions off by one", ROTARY, calling(lambda layer, positions: _angles(layer, positions + 1))),
        Mutant("rotary: positions from the end", ROTARY,
               calling(lambda layer, positions: _angles(layer, positions[:, ::-1]))),
        Mutant("rotary: cosines and sines swapped", ROTARY, calling(lambda s, p: _angles(s, p)[::-1])),
        Mutant("rotary: values turned too", ATTENTION, attending(turn=lambda q, k, v, at: (
            turned(q, *at), turned(k, *at), turned(v, *at)))),
        Mutant("rotary: keys not turned", ATTENTION, attending(turn=lambda q, k, v, at: (turned(q, *at), k, v))),
        Mutant("rotary: heads not turned", ATTENTION, attending(turn=lambda q, k, v, _: (q, k, v))),
        Mutant("rotary: keys a position later", ATTENTION, attending(turn=_keys_later)),
        Mutant("rotary: queries turned the other way", ATTENTION, attending(turn=lambda q, k, v, at: (
            turned(q, at[0], -at[1]), turned(k, *at), v))),
    ]  # fmt: skip
    if (width := config.width) == 2:
        return found
    theta = config.rope_theta
    other = 10_000.0 if theta != 10_000.0 else 500_000.0
    return [
        *found,
        Mutant(f"rotary: theta {other:g}", ROTARY, frequencies(rotary_frequencies(width, other))),
        Mutant("rotary: frequencies by half the width", ROTARY, frequencies(rotary_frequencies(width, theta) ** 2)),
        Mutant("rotary: frequencies in reverse", ROTARY, frequencies(rotary_frequencies(width, theta)[::-1])),
        Mutant("rotary: every angle twice in a row", ROTARY, calling(_in_a_row)),
        Mutant("rotary: pairs of neighbours turned", ATTENTION, attending(turn=_interleaved)),
        Mutant("rotary: neighbours turned by halves' angles", ATTENTION, attending(turn=_neighbours)),
    ]


def _angles(layer: KerasLayer, positions: KerasTensor) -> Pair:
    made: Pair = type(layer).call(layer, positions)
    return made


def _in_a_row(layer: KerasLayer, positions: KerasTensor) -> Pair:
    angles = ops.cast(positions, layer.frequencies.dtype.name)[..., None] * np.repeat(layer.frequencies, 2)
    return jnp.cos(angles), jnp.sin(angles)


def _keys_later(q: KerasTensor, k: KerasTensor, v: KerasTensor, at: Pair) -> tuple[KerasTensor, ...]:
    return turned(q, *at), turned(k, *(jnp.roll(each, -1, axis=-2) for each in at)), v


def _neighbour(x: KerasTensor, cosines: KerasTensor, sines: KerasTensor) -> KerasTensor:
    """Features 2k and 2k + 1 turned as one pair."""
    pairs = jnp.reshape(x, (*x.shape[:-1], -1, 2))
    crossed = jnp.stack([-pairs[..., 1], pairs[..., 0]], axis=-1)
    return x * cosines + jnp.reshape(crossed, x.shape) * sines


def _interleaved(q: KerasTensor, k: KerasTensor, v: KerasTensor, at: Pair) -> tuple[KerasTensor, ...]:
    cosines, sines = (jnp.repeat(each[..., : each.shape[-1] // 2], 2, axis=-1) for each in at)
    return _neighbour(q, cosines, sines), _neighbour(k, cosines, sines), v


def _neighbours(q: KerasTensor, k: KerasTensor, v: KerasTensor, at: Pair) -> tuple[KerasTensor, ...]:
    return _neighbour(q, *at), _neighbour(k, *at), v
