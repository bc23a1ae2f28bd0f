"""Known bugs of pixel attention: heads, scale, softmax, the order of pixels, the input added, the precision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
from keras import ops

from parity_tests.faults.changes import in_float32, swapped, transposed, without_bias
from parity_tests.faults.unet2d.places import CONV, attention
from wdport.families.faults import Mutant, attributes, calling, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.unet2d.config import Config

Pixels = Callable[[KerasTensor], KerasTensor]
"""(B, H, W, C) to (B, H * W, C)."""


def attention_mutants(config: Config) -> list[Mutant]:
    """The mutants that this configuration's attention layers can have."""
    every, several = attention(config), attention(config, several=True)
    if not every:
        return []
    found = [
        Mutant("attention: no scale", every, calling(_by(scale=lambda _: 1.0))),
        Mutant("attention: softmax over queries", every, calling(_by(axis=-2))),
        Mutant("attention: input not added", every, calling(_by(added=0.0))),
        Mutant("attention: pixels column by column", every, calling(_by(flat=lambda x: _rows(jnp.swapaxes(x, 1, 2))))),
        Mutant("attention: channels first reshaped for transposed", every, calling(_by(flat=_reshaped))),
        Mutant("attention: result read as channels first", every, calling(_by(mixed=True))),
        Mutant("attention: query and key swapped", every, swapped("query", "key"), shares=True),
        Mutant("attention: key and value swapped", every, swapped("key", "value"), shares=True),
    ]
    found += [Mutant(f"attention: {part} bias dropped", _below(every, part), without_bias)
              for part in ("query", "key", "value", "out")]  # fmt: skip
    if square := attention(config, square=True):
        found += [Mutant(f"attention: {part} weight not transposed", _below(square, part), transposed)
                  for part in ("query", "out")]  # fmt: skip
    if swappable := attention(config, swappable=True):
        found.append(Mutant("attention: width of a head taken for the number of heads", swappable, _mixed_up))
    if several:
        found.append(Mutant("attention: scale by all channels", several, calling(_by(scale=_all_channels))))
        found.append(Mutant("attention: one head", several, _one_head))
        found.append(Mutant("attention: heads merged without transposing", several, calling(_by(merged=True))))
    if normed := attention(config, normed=True):
        found.append(Mutant("attention: norm dropped", normed, setting(norm=None), gate="0"))
        found.append(Mutant("attention: normed input added", normed, calling(_by(added=None))))
    if "mid/attention" in every and config.mid_block_scale_factor != 1:
        found.append(Mutant("attention: output not divided", ("mid/attention",), setting(factor=1.0)))
    return found


def _below(places: tuple[str, ...], part: str) -> tuple[str, ...]:
    return tuple(f"{place}/{part}" for place in places)


def _rows(x: KerasTensor) -> KerasTensor:
    return jnp.reshape(x, (x.shape[0], -1, x.shape[-1]))


def _reshaped(x: KerasTensor) -> KerasTensor:
    return jnp.swapaxes(jnp.reshape(x, (x.shape[0], x.shape[-1], -1)), 1, 2)


def _all_channels(layer: KerasLayer) -> float:
    return float((layer.num_heads * layer.head_width) ** -0.5)


def _by(
    flat: Pixels = _rows,
    scale: Callable[[KerasLayer], float] = lambda layer: layer.head_width**-0.5,
    axis: int = -1,
    merged: bool = False,
    mixed: bool = False,
    added: float | None = 1.0,
) -> Callable[[KerasLayer, KerasTensor], KerasTensor]:
    """Attention with other parts; ``added`` is the factor of the input, ``None`` adds the normed input."""

    def call(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
        normed = x if layer.norm is None else layer.norm(x)
        pixels = flat(normed)
        q, k, v = (layer._heads(projection(pixels)) for projection in (layer.query, layer.key, layer.value))
        weights = jax.nn.softmax(jnp.einsum("bqhk,bshk->bhqs", q * scale(layer), k), axis=axis)
        read = jnp.einsum("bhqs,bshk->bhqk" if merged else "bhqs,bshk->bqhk", weights, v)
        made = layer.dropout(layer.out(jnp.reshape(read, (*pixels.shape[:2], layer.num_heads * layer.head_width))))
        if mixed:
            made = jnp.swapaxes(made, 1, 2)
        rest = normed if added is None else added * x
        return (jnp.reshape(made, x.shape) + rest) / layer.factor

    return call


def _mixed_up(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return attributes(layer, num_heads=layer.head_width, head_width=layer.num_heads)


def _one_head(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return attributes(layer, num_heads=1, head_width=layer.num_heads * layer.head_width)


def numerics_mutants(config: Config) -> list[Mutant]:
    """All of them."""
    found = [Mutant("convolutions in TF32", CONV, in_float32(calling(_tf32)), gate="B")]
    if places := attention(config):
        found.append(Mutant("attention: softmax in bfloat16", places, in_float32(calling(_rough)), gate="B"))
    return found


def _tf32(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """Operands rounded to ten mantissa bits, as in TF32 matrix units by default."""
    x, kernel = (jax.lax.reduce_precision(part, 8, 10) for part in (x, jnp.asarray(layer.kernel.value)))
    return ops.conv(x, kernel, padding="same") + layer.bias


def _rough(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    pixels = jnp.reshape(x if layer.norm is None else layer.norm(x), (x.shape[0], -1, x.shape[-1]))
    q, k, v = (layer._heads(projection(pixels)) for projection in (layer.query, layer.key, layer.value))
    logits = jnp.einsum("bqhk,bshk->bhqs", q * layer.head_width**-0.5, k)
    weights = ops.cast(ops.cast(jax.nn.softmax(logits, axis=-1), "bfloat16"), "float32")
    read = jnp.einsum("bhqs,bshk->bqhk", weights, v)
    made = layer.dropout(layer.out(jnp.reshape(read, (*pixels.shape[:2], layer.num_heads * layer.head_width))))
    return (jnp.reshape(made, x.shape) + x) / layer.factor
