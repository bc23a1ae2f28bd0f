"""Self-attention over the pixels of an image."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from keras import layers, ops

from wdport.model import KerasTensor as Tensor
from wdport.nets.norms import GroupNorm
from wdport.nets.precision import wide


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


class ImageAttention(layers.Layer):
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
        self.norm = None if groups is None else GroupNorm(groups, epsilon, name="norm")
        self.query = layers.Dense(inner, name="query")
        self.key = layers.Dense(inner, name="key")
        self.value = layers.Dense(inner, name="value")
        self.out = layers.Dense(channels, name="out")
        # It does nothing; it is the counterpart of the module that PyTorch has there.
        self.dropout = layers.Dropout(0.0, name="dropout")

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        if self.norm is not None:
            self.norm.build(x_shape)
        for layer in (self.query, self.key, self.value):
            layer.build((None, None, x_shape[-1]))
        self.out.build((None, None, self.num_heads * self.head_width))
        self.built = True

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
