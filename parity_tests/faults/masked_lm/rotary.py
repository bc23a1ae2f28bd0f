"""Known bugs of rotary position embeddings: the angles, and how heads are turned by them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from keras import ops

from parity_tests.faults.masked_lm.attention import attending
from parity_tests.faults.masked_lm.places import ATTENTION, ROTARY
from wdport.families.faults import Change, Mutant, attributes, calling
from wdport.families.masked_lm.config import Config
from wdport.model import Array, KerasLayer, KerasTensor
from wdport.nets.attention import rotary_frequencies, turned

Pair = tuple[KerasTensor, KerasTensor]


def rotary_mutants(config: Config) -> list[Mutant]:
    """Angles are seen at their layer, and turns at the attention. A head of two features has only one angle."""
    found = [
        Mutant("rotary: positions off by one", ROTARY, calling(_later), quick=True),
        Mutant("rotary: positions from the end", ROTARY, calling(_reversed)),
        Mutant("rotary: cosines and sines swapped", ROTARY, calling(lambda s, p: _angles(s, p)[::-1])),
        Mutant("rotary: values turned too", ATTENTION, attending(turn=lambda q, k, v, at: (
            turned(q, *at), turned(k, *at), turned(v, *at))), quick=True),
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
        Mutant(f"rotary: theta {other:g}", ROTARY, _frequencies(rotary_frequencies(width, other)), quick=True),
        Mutant("rotary: frequencies by half the width", ROTARY, _frequencies(rotary_frequencies(width, theta) ** 2)),
        Mutant("rotary: frequencies in reverse", ROTARY, _frequencies(rotary_frequencies(width, theta)[::-1])),
        Mutant("rotary: every angle twice in a row", ROTARY, calling(_in_a_row)),
        Mutant("rotary: pairs of neighbours turned", ATTENTION, attending(turn=_interleaved), quick=True),
        Mutant("rotary: neighbours turned by halves' angles", ATTENTION, attending(turn=_neighbours)),
    ]


def _angles(layer: KerasLayer, positions: KerasTensor) -> Pair:
    made: Pair = type(layer).call(layer, positions)
    return made


def _later(layer: KerasLayer, positions: KerasTensor) -> Pair:
    return _angles(layer, positions + 1)


def _reversed(layer: KerasLayer, positions: KerasTensor) -> Pair:
    return _angles(layer, positions[:, ::-1])


def _frequencies(made: Array) -> Change:
    return lambda layer, _: attributes(layer, frequencies=np.ascontiguousarray(made, layer.frequencies.dtype))


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
