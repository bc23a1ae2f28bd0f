"""Self-attention over the pixels of an image, and over tokens with rotary position embeddings, where several heads may
share keys and values."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax
from keras import layers, ops

from wdport.models.interface import Array
from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.composed import Composed, wide
from wdport.nets.norms import GroupNorm


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scaled dot-product attention of queries, keys and values (..., L, K) -> (..., L, K), in the dtype of the values.

    The scale is applied to the query: applied to the logits, XLA would contract it with the subtraction of the
    softmax's largest logit. The weighted sums of values are divided by the softmax's sums, not the weights: these are
    L / K times fewer numbers.
    """
    # Exponentials and their sums in at least float32, also where the products are computed in bfloat16.
    logits = wide((q * q.shape[-1] ** -0.5) @ jnp.swapaxes(k, -1, -2))
    # The softmax does not depend on the maximum that is subtracted, so its gradient is zero and need not be computed.
    powers = jnp.exp(logits - lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True)))
    sums = jnp.matmul(ops.cast(powers, v.dtype), v, preferred_element_type=powers.dtype)
    return ops.cast(sums / jnp.sum(powers, axis=-1, keepdims=True), v.dtype)


class ImageAttention(Composed):
    """Images (B, H, W, C) plus self-attention over their pixels, divided by ``factor``; ``norm`` comes first if
    ``groups`` is given.

    There are ``num_heads`` heads of ``head_width``, whose product may differ from C.
    """

    def __init__(self, channels: int, head_width: int, groups: int | None, epsilon: float, factor: float = 1.0,
                 **kwargs: object) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.head_width, self.num_heads = head_width, channels // head_width
        self.factor = factor
        inner = self.num_heads * head_width
        self.norm = None
        if groups is not None:
            self.add(GroupNorm(groups, epsilon, name="norm"), (None, None, None, channels))
        for name in ("query", "key", "value"):
            self.add(layers.Dense(inner, name=name), (None, None, channels))
        self.add(layers.Dense(channels, name="out"), (None, None, inner))
        # It does nothing; it is the counterpart of the module that PyTorch has there.
        self.dropout = layers.Dropout(0.0, name="dropout")

    def call(self, hidden_states: Tensor) -> Tensor:
        batch, _, _, channels = hidden_states.shape
        normed = hidden_states if self.norm is None else self.norm(hidden_states)
        pixels = jnp.reshape(normed, (batch, -1, channels))
        q, k, v = (self._heads(projection(pixels)) for projection in (self.query, self.key, self.value))
        read = jnp.swapaxes(attend(q, k, v), 1, 2)
        attended = self.dropout(self.out(jnp.reshape(read, (batch, -1, self.num_heads * self.head_width))))
        return (jnp.reshape(attended, hidden_states.shape) + hidden_states) / self.factor

    def _heads(self, x: Tensor) -> Tensor:
        """(B, L, heads * K) -> (B, heads, L, K), with the batch axes of the products in front: with these in the
        middle, XLA's CPU code took six times as long for a layer of 16 images of 16 x 16 pixels."""
        return jnp.swapaxes(jnp.reshape(x, (*x.shape[:2], self.num_heads, self.head_width)), 1, 2)


def rotary_frequencies(width: int, theta: float, dtype: str = "float64") -> Array:
    """(width / 2,) frequencies ``theta ** (-2 k / width)``.

    In float32 every step is rounded as PyTorch's code rounds it: exponent, power, reciprocal. For widths up to 128 that
    moves a frequency by up to 5 units in the last place, which the network was trained with; PyTorch's own power, on a
    CPU, differs from the rounded one by at most 1.
    """
    kind = np.dtype(dtype)
    exponents = (np.arange(0, width, 2).astype(kind) / kind.type(width)).astype(np.float64)
    frequencies: Array = kind.type(1.0) / (np.float64(theta) ** exponents).astype(kind)
    return frequencies


class Rotary(layers.Layer):
    """Positions (1 or B, N) -> cosines and sines (1 or B, N, D) of the angles; both halves of D have the same angles.

    The angles are computed in at least float32 under any policy: in bfloat16 neighbouring positions are equal.
    """

    def __init__(self, width: int, theta: float, **kwargs: object) -> None:
        super().__init__(autocast=False, **kwargs)
        exact = "float64" if self.compute_dtype == "float64" else "float32"
        self.frequencies = rotary_frequencies(width, theta, exact)

    def call(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = ops.cast(position_ids, self.frequencies.dtype.name)[..., None] * self.frequencies
        # Halves and not interleaved pairs: feature k is turned with feature k + D / 2, as in the checkpoints.
        angles = jnp.concatenate([angles, angles], axis=-1)
        return ops.cast(jnp.cos(angles), self.compute_dtype), ops.cast(jnp.sin(angles), self.compute_dtype)


def turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Heads (..., N, D) turned in the planes of the k-th and the (k + D / 2)-th feature."""
    first, second = jnp.split(x, 2, axis=-1)
    return x * cosines + jnp.concatenate([-second, first], axis=-1) * sines


class TokenAttention(Composed):
    """Tokens (B, N, C) -> (B, N, C): every token reads all ``visible`` tokens, before and after it.

    ``num_heads`` heads of ``head_dim`` share ``num_key_value_heads`` keys and values: consecutive heads have the same
    ones. Keys are not repeated; the heads that share them are joined along the tokens. If no token of a sequence is
    visible, all are read with equal weights, so nothing is NaN.
    """

    def __init__(
        self, channels: int, num_heads: int, num_key_value_heads: int, head_dim: int, use_bias: bool, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.head_dim, self.num_heads, self.num_key_value_heads = head_dim, num_heads, num_key_value_heads
        for name, heads in (("query", num_heads), ("key", num_key_value_heads), ("value", num_key_value_heads)):
            self.add(layers.Dense(heads * head_dim, use_bias=use_bias, name=name), (None, None, channels))
        self.add(layers.Dense(channels, use_bias=use_bias, name="out"), (None, None, num_heads * head_dim))

    def call(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], visible: Tensor | None = None
    ) -> Tensor:
        """``position_embeddings`` are cosines and sines (1 or B, N, head_dim); ``visible`` (B, N) is true for tokens
        that are read, all if ``None``."""
        return self.part(hidden_states, position_embeddings, visible, lambda x: x)

    def part(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        visible: Tensor | None,
        cut: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The result for a part of the tokens, (B, M, C), which ``cut`` takes of any array (B, N, ...)."""
        q = self._heads(self.query(cut(hidden_states)))
        k, v = (self._heads(projection(hidden_states)) for projection in (self.key, self.value))
        angles = [ops.cast(wave, q.dtype) for wave in position_embeddings]
        q, k = turned(q, *(cut(wave)[:, None] for wave in angles)), turned(k, *(wave[:, None] for wave in angles))
        return self.out(self._merged(self._read(q * self.head_dim**-0.5, k, v, visible)))

    def _heads(self, x: Tensor) -> Tensor:
        """(B, N, heads * K) -> (B, heads, N, K)."""
        return jnp.swapaxes(jnp.reshape(x, (*x.shape[:2], -1, self.head_dim)), 1, 2)

    def _read(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
        """Scaled queries (B, heads, N, K), keys and values (B, pairs, N, K) -> (B, heads, N, K)."""
        batch, _, length, width = q.shape
        # Consecutive heads share a key, so joining them along the tokens needs no copy of keys and values.
        together = jnp.reshape(q, (batch, self.num_key_value_heads, -1, width))
        logits = wide(together @ jnp.swapaxes(k, 2, 3))
        if visible is not None:
            least = np.finfo(logits.dtype).min  # finite: a sequence without visible tokens has equal weights
            logits = jnp.where(ops.cast(visible, "bool")[:, None, None, :], logits, least)
        powers = jnp.exp(logits - lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True)))
        weights = ops.cast(powers / jnp.sum(powers, axis=-1, keepdims=True), v.dtype)
        return jnp.reshape(weights @ v, (batch, self.num_heads, length, width))

    def _merged(self, x: Tensor) -> Tensor:
        """(B, heads, N, K) -> (B, N, heads * K)."""
        return jnp.reshape(jnp.swapaxes(x, 1, 2), (x.shape[0], x.shape[2], self.num_heads * self.head_dim))
