"""The denoiser for sampling: the function of the Keras model and its weights, with nothing computed twice.

Within one sampling step all samples share the time, so everything that depends only on time (its embedding, every
adaptive scale and shift, half of each gate) is computed once per plan; a condition's part of these, which is added to
them since they are linear in the embedding, once per call; values equal for all tokens of a group
(cross-attention to the other groups) once per group. Queries, keys and values are one product, the attention's scale
and the position tables are folded into weights. The readable source of truth is `port.py`; a test compares both in
float64.

Sizes: S steps, B samples, L tokens of a group, D its width, H heads, K head width, T time width, W cross width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

import jax
import jax.numpy as jnp
from jax import Array as Tensor

from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.kernels import Kernel, Weights, lay_kernels, many_rows, product
from wdport.families.waveletdiff.padding import pad_weights
from wdport.families.waveletdiff.variables import STEPS_PER_TIME, position_table, time_frequencies

Get = Callable[[str], Tensor]
Dense = tuple[Kernel, Tensor]
"""A kernel and its bias."""

ScaleShift = tuple[Tensor, Tensor]
Norms = list[ScaleShift]
"""Scales and shifts of a block's two norms."""

Gate = tuple[ScaleShift, Tensor]
"""A group's norm in the cross-level block, and the time part of its gate."""


class Embedded(TypedDict):
    """Everything that depends on an embedding, arrays with leading axis S or B: norms by level and block, and gates by
    level."""

    norms: list[list[Norms]]
    gates: list[Gate]


SCALE_GAIN = 10.0

LAYER_NORM_EPSILON, RMS_NORM_EPSILON = 1e-5, 1e-8
SQRT_HALF = 0.5**0.5


@dataclass(frozen=True)
class Denoiser:
    """One configuration's functions, free of side effects; ``dtype`` is the dtype of products.

    ``pad_widths`` pads model, hidden and head widths with zeros to a multiple of it, which changes outputs only by
    rounding. It may be faster on a TPU or GPU with matrix units of such a size; it has no benefit on a CPU, or if
    widths are multiples already.
    """

    config: Config
    dtype: str
    pad_widths: int = 1

    def arrange(self, variables: Mapping[str, Tensor], by_outputs: bool = True) -> Weights:
        """Arrange the model's variables, by path, for the other two methods; their layout (`kernels.py`) only affects
        speed."""
        config, get = self.config, variables.__getitem__

        def low(path: str) -> Tensor:
            return get(path).astype(self.dtype)

        arranged: Weights = {"levels": [_level(config, i, low, get) for i in range(config.groups)]}
        for name in ("time", "scale") if config.scale_embedding else ("time",):
            arranged[name] = [_linear(get, f"{name}_embedding/mlp/{part}") for part in ("hidden", "out")]
        if config.cross_level_attention:
            arranged["cross"] = [_cross(config, i, low, get) for i in range(config.groups)]
            arranged["embeddings"] = low("cross_level/level_position_embeddings")
        if self.pad_widths > 1:
            arranged = pad_weights(arranged, config, self.pad_widths)
        if "cross" in arranged:
            # After the padding, which treats all attentions alike.
            arranged["cross"] = [_query_apart(part) for part in arranged["cross"]]
        return lay_kernels(arranged, by_outputs)

    def lay_out(self, weights: Weights, by_outputs: bool) -> Weights:
        """Arranged weights in this layout."""
        return lay_kernels(weights, by_outputs)

    def by_outputs(self, batch: int | None) -> bool:
        """The fastest layout for ``batch`` samples, or for any number (None)."""
        return many_rows(self.config, batch)

    def embed(self, weights: Weights, times: Tensor) -> Embedded:
        """Everything that depends only on time (S,) = step / 1000, arrays with leading axis S."""
        return self._modulations(weights, self._waves(weights["time"], times, STEPS_PER_TIME), True)

    def predict(self, weights: Weights, state: Tensor, embedded: Embedded, condition: Tensor | None = None) -> Tensor:
        """The prediction (B, C, F) for a state (B, C, F), one step's embedded time and, if given, scales (B,)."""
        config, heads, tokens = self.config, self.config.num_heads, []
        state = state.astype(self.dtype)
        if condition is not None:
            scale = self._waves(weights["scale"], jnp.log1p(SCALE_GAIN * condition))
            more = self._modulations(weights, scale, False)
            # Norms and gates are linear in the embedding, so parts of time and scale are added; the bias is in the
            # first.
            embedded = jax.tree.map(lambda time, offset: time + offset[:, None], embedded, more)
        parts = zip(weights["levels"], config.level_slices, config.widths, embedded["norms"], strict=True)
        for level, part, width, norms in parts:
            # The bias of the input projection is in the position table.
            h = product(state[:, part], level["input"]) + level["position"]
            for block, both in zip(level["blocks"], norms, strict=True):
                h = _block(block, h, both, width, heads)
            tokens.append(h)
        if "cross" in weights:
            tokens = _cross_level(weights, tokens, embedded["gates"], config)
        outputs = [_dense(h, level["output"]) for h, level in zip(tokens, weights["levels"], strict=True)]
        return jnp.concatenate(outputs, axis=1)

    def _waves(self, mlp: list[Dense], values: Tensor, gain: float = 1.0) -> Tensor:
        """The embedding (n, T) of times or scales (n,): sines and cosines, then an MLP."""
        (w1, b1), (w2, b2) = mlp
        wide = jnp.promote_types(b1.dtype, jnp.float32)  # in 16 bits neighbouring steps are equal
        frequencies = jnp.asarray(time_frequencies(self.config.time_embed_dim), wide)
        angle = (values.astype(wide) * gain)[:, None] * frequencies
        waves = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1).astype(b1.dtype)
        return product(jax.nn.silu(product(waves, w1) + b1), w2) + b2

    def _modulations(self, weights: Weights, embedded: Tensor, biases: bool) -> Embedded:
        """The scales and shifts of all norms, and the gates' part, of an embedding (n, T), with or without biases."""

        def linear(kernel: Kernel, bias: Tensor) -> Tensor:
            projected = product(embedded, kernel)
            return (projected + bias if biases else projected).astype(self.dtype)

        def scale_shift(ada: Dense) -> ScaleShift:
            scale, shift = jnp.split(linear(*ada), 2, axis=-1)
            return scale, shift

        norms = [[[scale_shift(block[name]) for name in ("norm1", "norm2")] for block in level["blocks"]]
                 for level in weights["levels"]]  # fmt: skip
        gates = [
            (scale_shift(part["norm"]), linear(part["gate_time"], part["gate_bias"]))
            for part in weights.get("cross", ())
        ]
        return {"norms": norms, "gates": gates}


def _query_apart(part: Weights) -> Weights:
    """For attention whose queries come from other tokens than its keys: the query's kernel (D, D), and (D, 2D) of key
    and value."""
    # The query is of the group's own pooled vector, keys and values of the others'.
    (kernel, bias), rest = part["qkv"], {name: value for name, value in part.items() if name != "qkv"}
    width = kernel.shape[1] // 3
    return {**rest, "query": (kernel[:, :width], bias[:width]), "key_value": (kernel[:, width:], bias[width:])}


def _dense(x: Tensor, part: Dense) -> Tensor:
    return product(x, part[0]) + part[1]


def _linear(get: Get, path: str) -> tuple[Tensor, Tensor]:
    return get(f"{path}/kernel"), get(f"{path}/bias")


def _level(config: Config, index: int, low: Get, get: Get) -> Weights:
    path, width = f"level_{index}", config.widths[index]
    kernel, bias = _linear(low, f"{path}/input_proj")
    table = jnp.asarray(position_table(config.level_lengths[index], width), kernel.dtype)
    blocks = []
    for block in range(config.depths[index]):
        block_path = f"{path}/block_{block}"
        blocks.append({
            **_projections(config, low, f"{block_path}/attention"),
            "norm1": _linear(get, f"{block_path}/norm1/ada_lin"),
            "norm2": _linear(get, f"{block_path}/norm2/ada_lin"),
            "mlp": [_linear(low, f"{block_path}/mlp/{part}") for part in ("hidden", "out")],
        })  # fmt: skip
    # The norms' kernels stay in the dtype of the weights: they are used once per plan, by `embed`.
    return {"input": kernel, "position": bias + table, "blocks": blocks, "output": _linear(low, f"{path}/output_proj")}


def _projections(config: Config, get: Get, path: str) -> Weights:
    """Query, key and value side by side (D, 3D); the scale of the logits is folded into the query unless it is
    normalised."""
    kernels, biases = zip(*(_linear(get, f"{path}/{part}") for part in ("query", "key", "value")), strict=True)
    width, _, head = kernels[0].shape
    # Folded into the query's weights, or into the scale of its norm, where there is one: a norm would undo the former.
    scale = head**-0.5
    flat = [kernel.reshape(width, width) for kernel in kernels]
    shifts = [bias.reshape(width) for bias in biases]
    norms: Weights = {}
    if config.qk_norm:
        norms["query_norm"], norms["key_norm"] = get(f"{path}/query_norm/scale") * scale, get(f"{path}/key_norm/scale")
    else:
        flat[0], shifts[0] = flat[0] * scale, shifts[0] * scale
    out, bias = _linear(get, f"{path}/out")
    return {
        **norms,
        "qkv": (jnp.concatenate(flat, axis=1), jnp.concatenate(shifts)),
        "out": (out.reshape(width, width), bias),
    }


def _cross(config: Config, index: int, low: Get, get: Get) -> Weights:
    path, width = "cross_level", config.widths[index]
    kernel, bias = _linear(get, f"{path}/gate_{index}/linear")
    return {
        **_projections(config, low, f"{path}/attention_{index}"),
        "pool": [_linear(low, f"{path}/aggregator_{index}/{part}") for part in ("hidden", "out")],
        "project": _linear(low, f"{path}/projection_{index}"),
        "expand": _linear(low, f"{path}/expander_{index}"),
        "norm": _linear(get, f"{path}/norm_{index}/ada_lin"),
        # The gate's input is a token, then the time: rows of the kernel in this order.
        "gate": low(f"{path}/gate_{index}/linear/kernel")[:width],
        "gate_time": kernel[width:],
        "gate_bias": bias,
    }


def _wide(x: Tensor) -> Tensor:
    """In at least float32, as in the port: sums and exponentials are not computed in 16 bits."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _adapted(x: Tensor, scale_shift: ScaleShift, width: int) -> Tensor:
    """scale * LN(x) + shift over the first ``width`` entries of the last axis; beyond them all three are zero."""
    scale, shift = scale_shift
    centred = _wide(x) - jnp.sum(_wide(x), axis=-1, keepdims=True) / width
    if x.shape[-1] > width:
        # Padding is zero, but zero minus the mean is not.
        centred = jnp.where(jnp.arange(x.shape[-1]) < width, centred, 0.0)
    variance = jnp.sum(centred * centred, axis=-1, keepdims=True) / width
    return (centred * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)).astype(x.dtype) * scale + shift


@partial(jax.jit, static_argnums=(3, 4))
def _block(block: Weights, h: Tensor, norms: Norms, width: int, heads: int) -> Tensor:
    """A transformer block, jitted separately so that blocks of one shape are traced and lowered once."""
    first, second = norms
    h = h + _attention(block, _adapted(h, first, width), width, heads)
    return h + _mlp(block["mlp"], _adapted(h, second, width))


def _mlp(parts: list[Dense], x: Tensor) -> Tensor:
    return _dense(_gelu(_dense(x, parts[0])), parts[1])


def _gelu(x: Tensor) -> Tensor:
    """GELU by the error function, as in PyTorch: by its complement, as in jax, it takes twice as long on a CPU."""
    return x * (0.5 + 0.5 * jax.lax.erf(x * SQRT_HALF))


def _attention(part: Weights, x: Tensor, width: int, heads: int) -> Tensor:
    """Self-attention of tokens (B, L, D), of which ``width`` entries are not padding."""
    query, key, value = _by_head(_dense(x, part["qkv"]), 3, heads)
    return _attend(part, query, key, value, width // heads)


def _by_head(x: Tensor, count: int, heads: int) -> Tensor:
    """(B, L, count H K) to (count, B, H, L, K): one transposition, after which every product is a plain batched one."""
    return jnp.moveaxis(x.reshape(*x.shape[:2], count, heads, -1), (2, 3), (0, 2))


def _attend(part: Weights, query: Tensor, key: Tensor, value: Tensor, head: int) -> Tensor:
    """Projected query (B, H, Q, K), key and value (B, H, L, K) to (B, Q, D); ``head`` of the K entries are not
    padding."""
    if "query_norm" in part:
        query, key = _rms(query, head) * part["query_norm"], _rms(key, head) * part["key_norm"]
    both = ((0, 1), (0, 1))
    logits = jax.lax.dot_general(query, key, (((3,), (3,)), both))
    # Exponentials and their sum in float32 at least, as in the port.
    weights = jax.nn.softmax(_wide(logits), axis=-1).astype(value.dtype)
    attended = jnp.moveaxis(jax.lax.dot_general(weights, value, (((3,), (2,)), both)), 1, 2)
    return _dense(attended.reshape(*attended.shape[:2], -1), part["out"])


def _rms(x: Tensor, head: int) -> Tensor:
    square = jnp.sum(_wide(x) ** 2, axis=-1, keepdims=True) / head
    return (_wide(x) * jax.lax.rsqrt(square + RMS_NORM_EPSILON)).astype(x.dtype)


def _cross_level(weights: Weights, tokens: list[Tensor], gates: list[Gate], config: Config) -> list[Tensor]:
    """Every group's tokens plus the attention of its pooled vector to those of the other groups."""
    pooled = jnp.stack([_pooled(part, h) for part, h in zip(weights["cross"], tokens, strict=True)], axis=1)
    pooled = pooled + weights["embeddings"]
    outputs: list[Tensor] = []
    heads = config.num_heads
    for part, h, width, (norm, time) in zip(weights["cross"], tokens, config.widths, gates, strict=True):
        index = len(outputs)
        # All groups read the vectors from before the block: none sees another's update.
        others = jnp.concatenate([pooled[:, :index], pooled[:, index + 1 :]], axis=1)
        (query,) = _by_head(_dense(pooled[:, index : index + 1], part["query"]), 1, heads)
        key, value = _by_head(_dense(others, part["key_value"]), 2, heads)
        read = _attend(part, query, key, value, config.cross_width // heads)
        read = _dense(read, part["expand"])
        outputs.append(h + jax.nn.sigmoid(product(h, part["gate"]) + time) * _adapted(read, norm, width))
    return outputs


def _pooled(part: Weights, h: Tensor) -> Tensor:
    """Tokens (B, L, D) to one vector (B, W): a mean weighted by a softmax over the tokens, projected."""
    weights = jax.nn.softmax(_wide(_mlp(part["pool"], h)), axis=1).astype(h.dtype)
    return _dense(jnp.sum(weights * h, axis=1), part["project"])
