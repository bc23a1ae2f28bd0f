"""Projections to and from attention heads as products of matrices."""

from __future__ import annotations

from keras import layers, ops

from wdport.model import KerasTensor as Tensor


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
