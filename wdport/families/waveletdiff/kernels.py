"""Memory layout of the kernels of matrix products: by inputs for few rows, by outputs for many.

XLA's products on a CPU are fastest with (out, in) for many rows, but transpose it again at every step for few (jax
0.10). The network has one row per token of every sample, so the batch size determines the layout: nothing is measured
at run time, and a resumed run gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
from jax import Array as Tensor

from wdport.families.waveletdiff.config import Config

Weights = dict[str, Any]
"""A denoiser's arranged weights by name: arrays, or lists, tuples and dictionaries of them."""

MANY_ROWS = 256
"""Rows of a product, on average over the groups. On an AMD EPYC (AVX-512, two cores) single products by (out, in) took
1.0 to 1.8 times as long as by (in, out) at 5 to 40 rows, 1.0 to 1.2 at 80 and 160, 0.8 to 1.1 from 320 on; on an Intel
Xeon (AVX-512) three quarters at 320 to 832."""

TABLES = ("position", "embeddings")
"""Arrays with two axes that are not kernels."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kernel:
    """A matrix ``array`` (in, out), or (out, in) if ``by_outputs``, which is static in compiled programs."""

    array: Tensor
    by_outputs: bool = field(metadata={"static": True})

    def laid(self, by_outputs: bool) -> Kernel:
        """The same matrix in this layout."""
        return self if by_outputs == self.by_outputs else Kernel(self.array.T, by_outputs)


def many_rows(config: Config, batch: int | None) -> bool:
    """Whether batches of this size use kernels (out, in); any number of samples (None) does."""
    return batch is None or batch * config.coefficients >= MANY_ROWS * config.groups


def lay_kernels(weights: Weights, by_outputs: bool) -> Weights:
    """Every matrix (in, out) or kernel among arranged weights as a kernel in this layout."""

    def laid(path: tuple[object, ...], leaf: Tensor | Kernel) -> Tensor | Kernel:
        if isinstance(leaf, Kernel):
            return leaf.laid(by_outputs)
        # Biases and norms have one axis; these tables are added, not multiplied.
        table = leaf.ndim != 2 or getattr(path[-1], "key", None) in TABLES
        return leaf if table else Kernel(leaf, False).laid(by_outputs)

    arranged: Weights = jax.tree_util.tree_map_with_path(laid, weights, is_leaf=lambda leaf: isinstance(leaf, Kernel))
    return arranged


def product(x: Tensor, kernel: Kernel) -> Tensor:
    """(..., in) times a kernel to (..., out)."""
    # dot_general contracts either axis, so the matrix is never transposed.
    contracted = ((x.ndim - 1,), (1 if kernel.by_outputs else 0,))
    return jax.lax.dot_general(x, kernel.array, (contracted, ((), ())))
