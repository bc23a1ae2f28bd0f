"""Correct WaveletDiff ports that compute the same in another way: none of them may fail a gate.

Each is a reasonable alternative to code in `port.py`, and replaces it everywhere at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
from keras import ops

from wdport.families.faults import Change, Mutant, attributes, calling, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.waveletdiff.canary import ATTENTION, GELU, NETWORK, NORM
from wdport.uses.waveletdiff.config import Config


def rewrites(config: Config) -> tuple[Mutant, ...]:
    """All rewrites that this configuration can have; ``equivalent`` says why they are correct."""
    found = [*_attention(), *_layers(), *_network()]
    if config.qk_norm:
        norms = ("*/query_norm", "*/key_norm")
        found.append(_rewrite("RMS norm by a square root", norms, calling(_root), "x rsqrt(m) is x / sqrt(m)"))
    return tuple(found + (_cross_level() if config.cross_level_attention else []))


def _rewrite(name: str, sites: tuple[str, ...], change: Change, why: str) -> Mutant:
    return Mutant(name, sites, change, equivalent=why)


def _attention() -> list[Mutant]:
    return [
        _rewrite("logits scaled instead of the query", ATTENTION, calling(_scaled_logits), "(s q) k is s (q k)"),
        _rewrite("softmax written out", ATTENTION, calling(_written_out), "that is what softmax is"),
        _rewrite("softmax by its logarithm", ATTENTION, calling(_by_logarithm), "exp of log is the identity"),
        _rewrite("heads one by one", ATTENTION, calling(_heads_apart), "heads do not see each other"),
        _rewrite("query, key and value from one product", ATTENTION, _one_product, "columns of a product are apart"),
        _rewrite("heads merged before the output product", ATTENTION, _merged_output, "the sum over (h, k) is one"),
    ]


def _layers() -> list[Mutant]:
    silu, dense = ("time_embedding/mlp/activation",), ("*/mlp/hidden", "*/mlp/out", "*/input_proj", "*/output_proj")
    return [
        _rewrite("norm by division", NORM, calling(_by_division), "x rsqrt(v) is x / sqrt(v)"),
        _rewrite(
            "GELU by erfc", GELU, setting(activation=lambda x: ops.gelu(x, approximate=False)), "1 + erf(x) is erfc(-x)"
        ),
        _rewrite("SiLU written out", silu, setting(activation=lambda x: x / (1.0 + jnp.exp(-x))), "x sigmoid(x)"),
        _rewrite("dense layers by einsum", dense, calling(_dense_by_einsum), "the same product"),
        _rewrite("dense layers over flattened rows", dense, calling(_dense_by_rows), "rows of a product are apart"),
    ]


def _network() -> list[Mutant]:
    return [
        _rewrite("levels from the finest to the coarsest", NETWORK, _backwards, "levels do not see each other"),
        _rewrite("time frequencies by powers", ("time_embedding",), _powers, "exp(-k log 10000 / n)"),
    ]


def _cross_level() -> list[Mutant]:
    gate = ("cross_level/gate_?",)
    return [
        _rewrite("pooling as a matrix product", ("cross_level",), _pooled_product, "a weighted sum is a product"),
        _rewrite("sigmoid by tanh", ("cross_level/gate_?/sigmoid",),
                 setting(activation=lambda x: 0.5 * (1.0 + jnp.tanh(0.5 * x))),
                 "(1 + tanh(x / 2)) / 2"),
        _rewrite("gate's tokens and time multiplied apart", gate, _apart, "[a ; b] W is a W1 + b W2"),
    ]  # fmt: skip


def _projected(layer: KerasLayer, query: KerasTensor, key: KerasTensor) -> tuple[KerasTensor, KerasTensor]:
    q, k = layer.query(query), layer.key(key)
    return (q, k) if layer.query_norm is None else (layer.query_norm(q), layer.key_norm(k))


def _logits(layer: KerasLayer, query: KerasTensor, key: KerasTensor) -> KerasTensor:
    q, k = _projected(layer, query, key)
    return ops.einsum("bqhk,bshk->bhqs", q * layer.scale, k)


def _attend(layer: KerasLayer, weights: KerasTensor, value: KerasTensor) -> KerasTensor:
    return layer.out(ops.einsum("bhqs,bshk->bqhk", layer.dropout(weights), layer.value(value)))


def _scaled_logits(layer: KerasLayer, query: KerasTensor, key: KerasTensor, value: KerasTensor) -> KerasTensor:
    q, k = _projected(layer, query, key)
    return _attend(layer, ops.softmax(ops.einsum("bqhk,bshk->bhqs", q, k) * layer.scale, axis=-1), value)


def _written_out(layer: KerasLayer, query: KerasTensor, key: KerasTensor, value: KerasTensor) -> KerasTensor:
    logits = _logits(layer, query, key)
    exponentials = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))
    return _attend(layer, exponentials / ops.sum(exponentials, axis=-1, keepdims=True), value)


def _by_logarithm(layer: KerasLayer, query: KerasTensor, key: KerasTensor, value: KerasTensor) -> KerasTensor:
    return _attend(layer, ops.exp(ops.log_softmax(_logits(layer, query, key), axis=-1)), value)


def _heads_apart(layer: KerasLayer, query: KerasTensor, key: KerasTensor, value: KerasTensor) -> KerasTensor:
    (q, k), v = _projected(layer, query, key), layer.value(value)
    heads = []
    for head in range(q.shape[2]):
        weights = ops.softmax(q[:, :, head] * layer.scale @ jnp.swapaxes(k[:, :, head], 1, 2), axis=-1)
        heads.append(layer.dropout(weights) @ v[:, :, head])
    return layer.out(ops.stack(heads, axis=2))


@contextmanager
def _one_product(layer: KerasLayer, _: KerasModel) -> Iterator[None]:
    """Each of the three layers computes all of them, and gives its own part."""
    parts = [layer.query, layer.key, layer.value]

    def call(at: int, x: KerasTensor) -> KerasTensor:
        kernel = ops.concatenate([ops.convert_to_tensor(part.kernel) for part in parts], axis=1)
        made = ops.einsum("btd,dhk->bthk", x, kernel)
        heads = made.shape[2] // 3
        return made[:, :, at * heads : (at + 1) * heads] + parts[at].bias

    with ExitStack() as stack:
        for at, part in enumerate(parts):
            stack.enter_context(patch.object(part, "call", lambda x, at=at, **_: call(at, x)))
        yield


@contextmanager
def _merged_output(layer: KerasLayer, _: KerasModel) -> Iterator[None]:
    def call(x: KerasTensor, **_: object) -> KerasTensor:
        kernel = ops.convert_to_tensor(layer.out.kernel)
        rows = ops.reshape(x, (x.shape[0], x.shape[1], -1))
        return ops.matmul(rows, ops.reshape(kernel, (-1, kernel.shape[-1]))) + layer.out.bias

    with patch.object(layer.out, "call", call):
        yield


def _root(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + layer.epsilon) * ops.convert_to_tensor(layer.scale)


def _by_division(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + layer.epsilon)


def _dense_by_einsum(layer: KerasLayer, x: KerasTensor, **_: object) -> KerasTensor:
    return ops.einsum("...i,io->...o", x, layer.kernel) + layer.bias


def _dense_by_rows(layer: KerasLayer, x: KerasTensor, **_: object) -> KerasTensor:
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), layer.kernel) + layer.bias
    return ops.reshape(rows, (*x.shape[:-1], layer.units))


def _backwards(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    def call(given: tuple[KerasTensor, ...], training: bool | None = None) -> KerasTensor:
        embedded, config = model.embedding_of(*given[1:]), model.config
        levels = [getattr(model, f"level_{i}") for i in range(config.groups)]
        tokens: list[KerasTensor] = [None] * config.groups
        for i in reversed(range(config.groups)):
            tokens[i] = levels[i](given[0][:, config.level_slices[i]], embedded)
        if model.cross_level is not None:
            tokens = model.cross_level(tokens, embedded)
        made = [levels[i].output_proj(tokens[i]) for i in reversed(range(config.groups))]
        return ops.concatenate(made[::-1], axis=1)

    return patch.object(model, "call", call)


def _powers(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    half = len(layer.frequencies)
    made = 10_000.0 ** -(np.arange(half) / (half - 1))
    return attributes(layer, frequencies=made.astype(layer.frequencies.dtype))


def _pooled_product(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    def pool(level: int, tokens: KerasTensor) -> KerasTensor:
        summary = ops.einsum("blo,bld->bd", layer._part("aggregator", level)(tokens), tokens)
        return layer._part("projection", level)(summary) + layer.level_position_embeddings[level]

    return patch.object(layer, "_pool", pool)


@contextmanager
def _apart(layer: KerasLayer, _: KerasModel) -> Iterator[None]:
    linear = layer.linear

    def call(x: KerasTensor, **_: object) -> KerasTensor:
        width, kernel = linear.units, ops.convert_to_tensor(linear.kernel)
        return x[..., :width] @ kernel[:width] + x[..., width:] @ kernel[width:] + linear.bias

    with patch.object(linear, "call", call):
        yield
