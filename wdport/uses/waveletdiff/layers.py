"""The building blocks of the Keras port: Keras layers, each one tap, exact in float64.

Keras's own layers are used where they fit. Four do not, for measured reasons (Keras 3.15 on JAX, see
`tests/families/test_keras_precision.py`): `LayerNormalization` and `ops.var` compute in float32 inside
a float64 model; so do `ops.sin` and `ops.cos`; `MultiHeadAttention` casts its softmax to float32 on its fused path and
has no query/key normalisation.

Shapes: B batch, L tokens of a level, D width, H heads, K = D / H head width, T time width.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from keras import layers, ops

from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.boundary import once
from wdport.nets.composed import Composed, wide
from wdport.nets.dropout import Dropout
from wdport.nets.norms import RMSNorm
from wdport.uses.waveletdiff.initial import XavierUniform, Zeros, linear
from wdport.uses.waveletdiff.variables import position_table, time_frequencies

SCALE_GAIN = 10.0
"""Of a scale within the logarithm that is embedded."""


class ToHeads(layers.EinsumDense):
    """(B, L, D) -> (B, L, H, K), with a kernel (D, H, K).

    As a product with (D, H K): by an einsum, XLA would lay out the kernel's gradient in another order than the kernel,
    and every step of an optimizer would transpose it.
    """

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        width, *heads = self.kernel.shape
        projected = ops.matmul(x, ops.reshape(self.kernel, (width, -1)))
        return ops.reshape(projected, (*ops.shape(projected)[:2], *heads)) + self.bias


class FromHeads(layers.EinsumDense):
    """(B, L, H, K) -> (B, L, D), with a kernel (H, K, D); a product with (H K, D)."""

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        *heads, width = self.kernel.shape
        flat = ops.reshape(x, (*ops.shape(x)[:2], heads[0] * heads[1]))
        return ops.matmul(flat, ops.reshape(self.kernel, (-1, width))) + self.bias


class Standardize(layers.Layer):
    """Normalise (..., D) to zero mean and unit biased variance over the last axis; no parameters."""

    def __init__(self, epsilon: float = 1e-5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def call(self, x: Tensor) -> Tensor:
        # In float32 at least: 16 bits would round the deviations from the mean.
        mean, variance = ops.moments(wide(x), axes=[-1], keepdims=True)
        return ops.cast((wide(x) - mean) * ops.rsqrt(variance + self.epsilon), x.dtype)


class Softmax(layers.Softmax):
    """A softmax in at least float32 under any policy; Keras's own computes in the policy's dtype."""

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return ops.cast(super().call(wide(inputs), mask), inputs.dtype)


class AdaptiveNorm(Composed):
    """Tokens (B, L, D), time embedding (B, T) -> scale * LN(tokens) + shift, [scale | shift] from time.

    The scale is the first half and is used without the usual "1 +".
    """

    def __init__(self, width: int, time_width: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.norm = Standardize(name="norm")
        self.add(linear(time_width, 2 * width, name="ada_lin"), (None, time_width))

    def call(self, tokens: Tensor, time: Tensor) -> Tensor:
        # No "1 +", so a zero embedding gives a zero scale: the public code overwrites its identity initialisation.
        scale, shift = ops.split(self.ada_lin(time)[:, None, :], 2, axis=-1)
        return scale * self.norm(tokens) + shift


class Mlp(Composed):
    """(..., D) -> Dense, activation, Dense; ``widths`` are input, hidden and output.

    With ``dropout`` there is a dropout layer after the activation and at the end.
    """

    def __init__(
        self, widths: tuple[int, int, int], activation: str | Callable[[Tensor], Tensor], dropout: float | None = None,
        **kwargs: object,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.add(linear(*widths[:2], name="hidden"), (None, widths[0]))
        self.activation = layers.Activation(activation, name="activation")
        self.add(linear(*widths[1:], name="out"), (None, widths[1]))
        self.hidden_dropout = self.out_dropout = None
        if dropout is not None:
            self.hidden_dropout = Dropout(dropout, name="hidden_dropout")
            self.out_dropout = Dropout(dropout, name="out_dropout")

    def call(self, x: Tensor) -> Tensor:
        # Computed once also where gradients need it: see wdport.nets.boundary.
        x = once(self.activation(once(self.hidden(x))))
        if self.hidden_dropout is None or self.out_dropout is None:
            return self.out(x)
        return self.out_dropout(self.out(self.hidden_dropout(x)))


class Attention(Composed):
    """Multi-head attention: query (B, Lq, D), key and value (B, Lk, D) -> (B, Lq, D), with biases.

    Kernels are laid out as in `keras.layers.MultiHeadAttention`: query, key, value (D, H, K) and
    out (H, K, D). With ``qk_norm`` query and key are RMS-normalised per head after projection.

    The scale is applied to the query, as in PyTorch's own attention, not to the logits: XLA would contract that product
    and the softmax's subtraction of the largest logit into one instruction. Its exact product is above the rounded
    largest by up to half a unit in the last place, 512 at logits of 1e10, and the exponential of that is infinite.
    """

    def __init__(
        self, num_heads: int, width: int, qk_norm: bool = False, dropout: float = 0.0, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        head_width = width // num_heads
        # The approximation has the same number of heads at twice the width, so its scale is another one.
        self.scale = head_width**-0.5
        heads = (None, num_heads, head_width)
        start = XavierUniform((2 if qk_norm else 4) * width)  # packed in PyTorch: one (3D, D) matrix
        for name in ("query", "key", "value"):
            projection = ToHeads(
                "btd,dhk->bthk", heads, bias_axes="hk", kernel_initializer=start, bias_initializer=Zeros(), name=name
            )
            self.add(projection, (None, None, width))
        self.query_norm = self.key_norm = None
        for name in ("query_norm", "key_norm") if qk_norm else ():
            self.add(RMSNorm(1e-8, name=name), (None, *heads))
        self.dropout = Dropout(dropout, name="dropout")
        start = XavierUniform(2 * width)
        out = FromHeads(
            "bthk,hkd->btd",
            (None, width),
            bias_axes="d",
            kernel_initializer=start,
            bias_initializer=Zeros(),
            name="out",
        )
        self.add(out, (None, *heads))

    def call(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = self.query(query), self.key(key), self.value(value)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        # An explicit softmax: Keras's fused attention computes it in float32, also in a float64 model.
        logits = query_key(q * self.scale, k)
        weights = self.dropout(ops.cast(ops.softmax(wide(logits), axis=-1), v.dtype))
        return self.out(weighted_sum(weights, v))


def query_key(query: Tensor, key: Tensor) -> Tensor:
    """Products of queries (B, Q, H, K) and keys (B, L, H, K), as (B, H, Q, L).

    The heads come first, so that it is a plain batched product, as is the sum of values: with two einsums of the other
    order the whole network takes 8 to 10 % longer at batch 64 (XLA for CPU, jax 0.10).
    """
    return ops.matmul(ops.transpose(query, (0, 2, 1, 3)), ops.transpose(key, (0, 2, 3, 1)))


def weighted_sum(weights: Tensor, value: Tensor) -> Tensor:
    """Sums of values (B, L, H, K) with weights (B, H, Q, L), as (B, Q, H, K)."""
    return ops.transpose(ops.matmul(weights, ops.transpose(value, (0, 2, 1, 3))), (0, 2, 1, 3))


class SinusoidEmbedding(Composed):
    """A step or log-scale (B,) -> (B, T): sines then cosines of it times fixed frequencies, then an MLP.

    ``gain`` multiplies the input first. The angles are computed in at least float32 whatever the
    policy: in bfloat16 neighbouring steps are equal. Sine and cosine are JAX's, because
    Keras's compute in float32 inside a float64 model.
    """

    def __init__(self, width: int, gain: float = 1.0, **kwargs: object) -> None:
        # Keras would round the time to the compute dtype before the call.
        super().__init__(autocast=False, **kwargs)
        self.gain = gain
        self.frequencies = time_frequencies(width).astype(np.float64 if self.compute_dtype == "float64" else np.float32)
        self.add(Mlp((width, 4 * width, width), "silu", name="mlp"))

    def call(self, value: Tensor) -> Tensor:
        angle = (ops.cast(value, self.frequencies.dtype.name) * self.gain)[:, None] * self.frequencies
        waves = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)
        return self.mlp(ops.cast(waves, self.compute_dtype))


class Position(layers.Layer):
    """Tokens (B, L, D) plus the fixed sinusoid table (L, D)."""

    def __init__(self, length: int, width: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        # Computed in float64 and rounded once: float32 angles would be wrong by p * 2^-24 of a radian at position p.
        self.table = position_table(length, width).astype(np.float64 if self.compute_dtype == "float64" else np.float32)

    def call(self, tokens: Tensor) -> Tensor:
        return tokens + ops.cast(self.table, tokens.dtype)
