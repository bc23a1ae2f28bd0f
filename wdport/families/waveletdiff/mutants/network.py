"""Known bugs of the network as a whole: the routing of coefficients, and its state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise

import jax.numpy as jnp
import keras
import numpy as np
from keras import ops

from wdport.families.mutants import Change, Mutant, array_of, attributes, calling, holding
from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.fast import SCALE_GAIN
from wdport.families.waveletdiff.mutants.places import NETWORK
from wdport.model import KerasLayer, KerasModel, KerasTensor

Parts = Callable[[list[KerasTensor]], list[KerasTensor]]
"""A change of one array for each level."""

Time = Callable[[KerasTensor], KerasTensor]
"""A change of the time (B,)."""

Embedding = Callable[..., KerasTensor]
"""A function of the model, the time (B,) and, if given, the scale (B,) to the embedding (B, T)."""

CLIP = 30.0
"""Tokens of the examples stay below it for inputs of unit size, and exceed it for inputs fifty times as large."""


def level_mutants(config: Config) -> list[Mutant]:
    """The mutants of levels: their order, boundaries, depth and time."""
    slices = config.level_slices
    equal = slices[0].stop - slices[0].start == slices[1].stop - slices[1].start
    found = [
        Mutant("one level reversed in time", NETWORK,
               _network(lambda parts: [parts[0], parts[1][:, ::-1], *parts[2:]])),
        Mutant("levels start one coefficient early", NETWORK, _network(_early)),
        Mutant("outputs concatenated in reverse", NETWORK, _network(outputs=lambda parts: parts[::-1])),
        Mutant("approximation without its two extra blocks", ("level_0",), _shallow, gate="0", quick=True),
        Mutant("time of the first sample for all", NETWORK,
               _network(time=lambda t: ops.broadcast_to(t[:1], t.shape))),
    ]  # fmt: skip
    if equal:
        swapped = _network(lambda parts: [parts[1], parts[0], *parts[2:]])
        found.append(Mutant("levels 0 and 1 swapped", NETWORK, swapped, quick=True))
    if config.num_layers > 1:
        found.append(Mutant("block 1 with block 0's weights", ("level_1",), _repeated_block, shares=True))
    return found


def scale_mutants() -> list[Mutant]:
    """The mutants of the condition."""

    def scaled(change: Callable[[KerasTensor], KerasTensor]) -> Change:
        def embedding(model: KerasModel, time: KerasTensor, *scale: KerasTensor) -> KerasTensor:
            embedded = model.time_embedding(time)
            return embedded + model.scale_embedding(change(scale[0])) if scale else embedded

        return _network(embedding=embedding)

    return [
        Mutant("logarithm of the scale left out", NETWORK, scaled(lambda s: SCALE_GAIN * s), quick=True),
        Mutant("scale not multiplied by 10", NETWORK, scaled(ops.log1p)),
        Mutant("logarithm of the scale without one added", NETWORK, scaled(lambda s: ops.log(SCALE_GAIN * s))),
        Mutant("scale of the first sample for all", NETWORK,
               scaled(lambda s: ops.log1p(SCALE_GAIN * ops.broadcast_to(s[:1], s.shape)))),
        Mutant("condition ignored", NETWORK,
               _network(embedding=lambda model, time, *_: model.time_embedding(time)), gate="0"),
    ]  # fmt: skip


def state_mutants() -> list[Mutant]:
    """The mutants not visible in the network's code: stored precision, dropout, a guard against large values."""
    clipped = calling(lambda layer, x: ops.clip(x + ops.cast(layer.table, x.dtype), -CLIP, CLIP))
    return [
        Mutant("bfloat16 weights", NETWORK, _rounded("bfloat16"), shares=True, quick=True),
        Mutant("float16 weights", NETWORK, _rounded("float16"), shares=True),
        Mutant("dropout on", ("*/dropout",), calling(lambda layer, x, **_: x * _mask(x) / 0.9)),
        Mutant("tokens clipped at 30", ("level_?/position",), clipped),
    ]


def _early(parts: list[KerasTensor]) -> list[KerasTensor]:
    """Every level but the first begins with the last coefficient of the one before."""
    return [parts[0], *(ops.concatenate([a[:, -1:], b[:, :-1]], axis=1) for a, b in pairwise(parts))]


def _own_embedding(model: KerasModel, *given: KerasTensor) -> KerasTensor:
    return model.embedding_of(*given)


def _network(
    inputs: Parts = list, outputs: Parts = list, time: Time = lambda t: t, embedding: Embedding = _own_embedding
) -> Change:
    """The network with its levels' inputs, its outputs, its time or its embedding changed."""

    def call(model: KerasModel, given: tuple[KerasTensor, ...], training: bool | None = None) -> KerasTensor:
        config = model.config
        embedded = embedding(model, time(given[1]), *given[2:])
        levels = [getattr(model, f"level_{i}") for i in range(config.groups)]
        parts = inputs([given[0][:, part] for part in config.level_slices])
        tokens = [level(part, embedded) for level, part in zip(levels, parts, strict=True)]
        if model.cross_level is not None:
            tokens = model.cross_level(tokens, embedded)
        made = [level.output_proj(h) for level, h in zip(levels, tokens, strict=True)]
        return ops.concatenate(outputs(made), axis=1)

    return lambda _, model: calling(call)(model, model)


def _shallow(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return attributes(layer, depth=layer.depth - 2)


def _repeated_block(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    pairs = zip(layer.block_1.weights, layer.block_0.weights, strict=True)
    return holding(*((into, array_of(source)) for into, source in pairs))


def _rounded(dtype: str) -> Change:
    kind = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}[dtype]

    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        arrays = ((variable, array_of(variable)) for variable in model.trainable_variables)
        return holding(*((variable, array.astype(kind).astype(array.dtype)) for variable, array in arrays))

    return change


def _mask(x: KerasTensor) -> KerasTensor:
    keep = np.random.default_rng(0).random(tuple(x.shape)) < 0.9
    return ops.cast(keep, keras.backend.standardize_dtype(x.dtype))
