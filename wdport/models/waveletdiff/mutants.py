"""Known bugs of WaveletDiff ports: what published and attempted ports got wrong, one place each."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import jax.numpy as jnp
import keras
import numpy as np
from keras import ops

from wdport.models.mutants import Change, Mutant, attributes, calling, holding
from wdport.models.waveletdiff.config import Config
from wdport.models.waveletdiff.layers import STEPS_PER_TIME

Tensor = Any

ATTENTION = ("*/attention", "cross_level/attention_?")
NORM = ("*/norm1/norm", "*/norm2/norm", "cross_level/norm_?/norm")
ADAPTIVE = ("*/norm1", "*/norm2", "cross_level/norm_?")


def mutants(config: Config) -> tuple[Mutant, ...]:
    """All of them that this configuration can have."""
    found = [*_attention(config), *_norms(), *_mlps(), *_time(), *_positions(), *_levels(config), *_state()]
    return tuple(found + (_cross_level() if config.cross_level_attention else []))


def _attention(config: Config) -> list[Mutant]:
    packed = "" if config.qk_norm else "every logit of a query moves alike, and softmax does not see that"
    found = [Mutant(f"{part} weight not transposed", _below(part), _transposed) for part in ("query", "key", "value")]
    found += [
        Mutant("output weight not transposed", _below("out"), _transposed),
        Mutant("query and key swapped", ATTENTION, _swapped("query", "key"), shares=True),
        Mutant("key and value swapped", ATTENTION, _swapped("key", "value"), shares=True),
        Mutant("value heads split as (head width, heads)", _below("value"), _interleaved_heads),
        Mutant("heads merged without transposing", ATTENTION, calling(_merged_wrongly)),
        Mutant("scale 1/sqrt(model width)", ATTENTION, _scaled(lambda layer: layer.width**-0.5)),
        Mutant("attention without scale", ATTENTION, _scaled(lambda layer: 1.0)),
        Mutant("softmax over queries", ATTENTION, calling(_softmax_over_queries)),
        Mutant("key bias dropped", _below("key"), _bias(0.0), equivalent=packed),
    ]
    for part in ("query", "value", "out"):
        found.append(Mutant(f"{part} bias dropped", _below(part), _bias(0.0)))
        found.append(Mutant(f"{part} bias added twice", _below(part), _bias(2.0)))
    if config.qk_norm:
        found.append(Mutant("RMS norm epsilon 1e-5", ("*/query_norm", "*/key_norm"), _set(epsilon=1e-5)))
        found.append(Mutant("query and key not normalised", ATTENTION, _set(query_norm=None, key_norm=None), gate="0"))
    return found


def _norms() -> list[Mutant]:
    return [
        Mutant("layer norm epsilon 1e-3", NORM, _set(epsilon=1e-3)),
        Mutant("layer norm epsilon 1e-6", NORM, _set(epsilon=1e-6)),
        Mutant("unbiased variance", NORM, calling(_unbiased)),
        Mutant("adaptive halves swapped", ADAPTIVE, calling(_halves_swapped)),
        Mutant("adaptive halves interleaved", ADAPTIVE, calling(_halves_interleaved)),
        Mutant("adaptive scale plus one", ADAPTIVE, calling(_one_plus)),
        Mutant("SiLU before the adaptive layer", ADAPTIVE, calling(_silu_first)),
        Mutant("norm1's weights in norm2", ("*/block_?",), _norm1_in_norm2, shares=True),
    ]


def _mlps() -> list[Mutant]:
    places = ("*/mlp/activation", "cross_level/aggregator_?/activation")
    blocks, time = ("level_?/*/mlp/activation", places[1]), ("time_embedding/mlp/activation",)
    return [
        Mutant("GELU by tanh", blocks, _activation(lambda x: ops.gelu(x, approximate=True))),
        Mutant("ReLU for GELU", blocks, _activation(ops.relu)),
        Mutant("SiLU for GELU", blocks, _activation(ops.silu)),
        Mutant("GELU for SiLU", time, _activation(lambda x: ops.gelu(x, approximate=False))),
        Mutant("residual from the normed input", ("level_?/block_?",), calling(_normed_residual)),
    ]


def _time() -> list[Mutant]:
    site = ("time_embedding",)
    return [
        Mutant("time off by one", site, calling(lambda layer, t: _embedded(layer, t * STEPS_PER_TIME + 1.0))),
        Mutant("time not scaled by 1000", site, calling(_embedded)),
        Mutant("frequencies divided by half", site, _frequencies),
        Mutant("cosines before sines", site, calling(lambda layer, t: _embedded(layer, t * STEPS_PER_TIME, _cosines))),
        Mutant("sines and cosines interleaved", site,
               calling(lambda layer, t: _embedded(layer, t * STEPS_PER_TIME, _alternating))),
    ]  # fmt: skip


def _positions() -> list[Mutant]:
    def table(function: Any) -> Change:
        return lambda layer, _: attributes(layer, table=function(layer.table))

    site = ("level_?/position",)
    return [
        Mutant("position sines and cosines concatenated", site,
               table(lambda t: np.concatenate([t[:, 0::2], t[:, 1::2]], axis=1))),
        Mutant("position sines and cosines swapped", site,
               table(lambda t: np.stack([t[:, 1::2], t[:, 0::2]], axis=2).reshape(t.shape))),
        Mutant("positions off by one", site, table(lambda t: np.roll(t, 1, axis=0))),
        Mutant("position table missing", site, table(np.zeros_like)),
    ]  # fmt: skip


def _levels(config: Config) -> list[Mutant]:
    slices, whole = config.level_slices, ("",)
    equal = slices[0].stop - slices[0].start == slices[1].stop - slices[1].start
    found = [
        Mutant("one level reversed in time", whole, _network(lambda parts: [parts[0], parts[1][:, ::-1], *parts[2:]])),
        Mutant("levels start one coefficient early", whole, _network(_early)),
        Mutant("outputs concatenated in reverse", whole, _network(outputs=lambda parts: parts[::-1])),
        Mutant("approximation without its two extra blocks", ("level_0",), _shallow, gate="0"),
        Mutant("time of the first sample for all", whole, _network(time=lambda t: ops.broadcast_to(t[:1], t.shape))),
    ]
    if equal:
        found.append(Mutant("levels 0 and 1 swapped", whole, _network(lambda p: [p[1], p[0], *p[2:]])))
    if config.num_layers > 1:
        found.append(Mutant("block 1 with block 0's weights", ("level_1",), _repeated_block, shares=True))
    return found


def _cross_level() -> list[Mutant]:
    whole = ("cross_level",)
    return [
        Mutant("pooling softmax over the last axis", ("cross_level/aggregator_?/softmax",), _set(axis=-1)),
        Mutant("mean pooling", whole, _patched_method("_pool", _mean_pool), gate="0"),
        Mutant("level embeddings permuted", whole, _permuted_embeddings),
        Mutant("a level attends to itself", whole, _with_itself),
        Mutant("one attention for all levels", whole, _shared_attention, gate="0"),
        Mutant("gate input in the other order", ("cross_level/gate_?",), calling(_gate_reversed)),
        Mutant("SiLU for sigmoid", ("cross_level/gate_?/sigmoid",), _activation(ops.silu)),
        Mutant("one minus the gate", ("cross_level/gate_?",), calling(_one_minus)),
        Mutant("cross-level path dropped", whole, calling(lambda layer, tokens, time, **_: list(tokens)), gate="0"),
    ]  # fmt: skip


def _state() -> list[Mutant]:
    return [
        Mutant("bfloat16 weights", ("",), _rounded("bfloat16"), shares=True),
        Mutant("float16 weights", ("",), _rounded("float16"), shares=True),
        Mutant("dropout on", ("*/dropout",), calling(lambda layer, x, **_: x * _mask(x) / 0.9)),
    ]


def _below(part: str) -> tuple[str, ...]:
    return tuple(f"{place}/{part}" for place in ATTENTION)


def _set(**values: Any) -> Change:
    return lambda layer, _: attributes(layer, **values)


def _activation(function: Any) -> Change:
    return _set(activation=function)


def _scaled(scale: Any) -> Change:
    return lambda layer, _: attributes(layer, scale=scale(layer))


def _array(variable: Any) -> Any:
    return np.asarray(variable.value)


def _transposed(layer: Any, _: Any) -> AbstractContextManager[Any]:
    kernel = _array(layer.kernel)
    width = kernel.shape[0] if kernel.ndim == 2 or layer.name != "out" else kernel.shape[-1]
    return holding((layer.kernel, kernel.reshape(width, width).T.reshape(kernel.shape)))


def _swapped(first: str, second: str) -> Change:
    def change(layer: Any, _: Any) -> AbstractContextManager[Any]:
        a, b = getattr(layer, first), getattr(layer, second)
        return holding((a.kernel, _array(b.kernel)), (a.bias, _array(b.bias)),
                       (b.kernel, _array(a.kernel)), (b.bias, _array(a.bias)))  # fmt: skip

    return change


def _interleaved_heads(layer: Any, _: Any) -> AbstractContextManager[Any]:
    kernel, bias = _array(layer.kernel), _array(layer.bias)
    width, heads, head = kernel.shape
    turned = kernel.reshape(width, head, heads).transpose(0, 2, 1)
    return holding((layer.kernel, turned), (layer.bias, bias.reshape(head, heads).T))


def _bias(factor: float) -> Change:
    return lambda layer, _: holding((layer.bias, _array(layer.bias) * factor))


def _weights(layer: Any, query: Tensor, key: Tensor, axis: int = -1) -> Tensor:
    q, k = layer.query(query), layer.key(key)
    if layer.query_norm is not None:
        q, k = layer.query_norm(q), layer.key_norm(k)
    return ops.softmax(ops.einsum("bqhk,bshk->bhqs", q, k) * layer.scale, axis=axis)


def _softmax_over_queries(layer: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return layer.out(ops.einsum("bhqs,bshk->bqhk", layer.dropout(_weights(layer, query, key, -2)), layer.value(value)))


def _merged_wrongly(layer: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = layer.dropout(_weights(layer, query, key))
    heads = ops.einsum("bhqs,bshk->bhqk", weights, layer.value(value))
    batch, count, length, width = heads.shape
    return layer.out(ops.reshape(heads, (batch, length, count, width)))


def _unbiased(layer: Any, x: Tensor) -> Tensor:
    mean, variance = ops.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * ops.rsqrt(variance * (x.shape[-1] / (x.shape[-1] - 1)) + layer.epsilon)


def _halves(layer: Any, time: Tensor) -> Any:
    return ops.split(layer.ada_lin(time)[:, None, :], 2, axis=-1)


def _halves_swapped(layer: Any, tokens: Tensor, time: Tensor) -> Tensor:
    shift, scale = _halves(layer, time)
    return scale * layer.norm(tokens) + shift


def _halves_interleaved(layer: Any, tokens: Tensor, time: Tensor) -> Tensor:
    both = layer.ada_lin(time)[:, None, :]
    return both[..., 0::2] * layer.norm(tokens) + both[..., 1::2]


def _one_plus(layer: Any, tokens: Tensor, time: Tensor) -> Tensor:
    scale, shift = _halves(layer, time)
    return (1.0 + scale) * layer.norm(tokens) + shift


def _silu_first(layer: Any, tokens: Tensor, time: Tensor) -> Tensor:
    scale, shift = _halves(layer, ops.silu(time))
    return scale * layer.norm(tokens) + shift


def _norm1_in_norm2(layer: Any, _: Any) -> AbstractContextManager[Any]:
    one, two = layer.norm1.ada_lin, layer.norm2.ada_lin
    return holding((two.kernel, _array(one.kernel)), (two.bias, _array(one.bias)))


def _normed_residual(layer: Any, tokens: Tensor, time: Tensor) -> Tensor:
    a = layer.norm1(tokens, time)
    tokens = tokens + layer.dropout(layer.attention(a, a, a))
    m = layer.norm2(tokens, time)
    return m + layer.mlp(m)


def _sines(angle: Tensor) -> Tensor:
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def _cosines(angle: Tensor) -> Tensor:
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def _alternating(angle: Tensor) -> Tensor:
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(angle.shape[0], -1)


def _embedded(layer: Any, step: Tensor, waves: Any = _sines) -> Tensor:
    return layer.mlp(waves(step[:, None] * layer.frequencies))


def _frequencies(layer: Any, _: Any) -> AbstractContextManager[Any]:
    half = layer.width // 2
    return attributes(layer, frequencies=np.exp(-np.arange(half) * np.log(10000.0) / half))


def _early(parts: list[Tensor]) -> list[Tensor]:
    """Every level but the first begins with the last coefficient of the one before."""
    return [
        parts[0],
        *(ops.concatenate([a[:, -1:], b[:, :-1]], axis=1) for a, b in pairwise(parts)),
    ]


def _network(inputs: Any = list, outputs: Any = list, time: Any = lambda t: t) -> Change:
    """The network with its levels' inputs, its outputs or its time changed."""

    def call(model: Any, given: tuple[Tensor, ...], training: bool | None = None) -> Tensor:
        config = model.config
        embedded = model.time_embedding(time(given[1]))
        levels = [getattr(model, f"level_{i}") for i in range(config.groups)]
        parts = inputs([given[0][:, part] for part in config.level_slices])
        tokens = [level(part, embedded) for level, part in zip(levels, parts, strict=True)]
        if model.cross_level is not None:
            tokens = model.cross_level(tokens, embedded)
        made = [level.output_proj(h) for level, h in zip(levels, tokens, strict=True)]
        return ops.concatenate(outputs(made), axis=1)

    return lambda _, model: calling(call)(model, model)


def _shallow(layer: Any, _: Any) -> AbstractContextManager[Any]:
    return attributes(layer, depth=layer.depth - 2)


def _repeated_block(layer: Any, _: Any) -> AbstractContextManager[Any]:
    pairs = zip(layer.block_1.weights, layer.block_0.weights, strict=True)
    return holding(*((into, _array(source)) for into, source in pairs))


@contextmanager
def _method(layer: Any, name: str, function: Any) -> Any:
    with patch.object(layer, name, lambda *inputs: function(layer, *inputs)):
        yield


def _patched_method(name: str, function: Any) -> Change:
    return lambda layer, _: _method(layer, name, function)


def _mean_pool(layer: Any, level: int, tokens: Tensor) -> Tensor:
    return layer._part("projection", level)(ops.mean(tokens, axis=1)) + layer.level_position_embeddings[level]


def _permuted_embeddings(layer: Any, _: Any) -> AbstractContextManager[Any]:
    rows = _array(layer.level_position_embeddings)
    return holding((layer.level_position_embeddings, np.roll(rows, 1, axis=0)))


def _with_itself(layer: Any, _: Any) -> AbstractContextManager[Any]:
    return attributes(layer, others=[tuple(range(len(layer.others)))] * len(layer.others))


def _shared_attention(layer: Any, _: Any) -> AbstractContextManager[Any]:
    part = layer._part
    return patch.object(layer, "_part", lambda name, level: part(name, 0 if name == "attention" else level))


def _one_minus(layer: Any, x: Tensor) -> Tensor:
    return 1.0 - layer.sigmoid(layer.linear(x))


def _gate_reversed(layer: Any, x: Tensor) -> Tensor:
    width = layer.linear.units
    return layer.sigmoid(layer.linear(ops.concatenate([x[..., width:], x[..., :width]], axis=-1)))


def _rounded(dtype: str) -> Change:
    def change(_: Any, model: Any) -> AbstractContextManager[Any]:
        stack = ExitStack()
        kind = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}[dtype]
        pairs = (
            (v, np.asarray(jnp.asarray(v.value).astype(kind)).astype(np.float64)) for v in model.trainable_variables
        )
        stack.enter_context(holding(*pairs))
        return stack

    return change


def _mask(x: Tensor) -> Any:
    keep = np.random.default_rng(0).random(tuple(x.shape)) < 0.9
    return ops.cast(keep, keras.backend.standardize_dtype(x.dtype))
