"""Pad a denoiser's arranged weights with zeros to larger widths, without changing its function.

Padded entries stay zero: they are outputs of zero columns, activations of zero are zero (GELU(0) = 0), and products
with them add zeros. Means and variances are computed over the true width only (`fast.py`). Sizes: as there.
"""

from __future__ import annotations

from math import gcd

import jax.numpy as jnp
from jax import Array as Tensor

from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.kernels import Weights


def pad_weights(weights: Weights, config: Config, multiple: int) -> Weights:
    """Pad model widths, hidden widths and total head widths to multiples of ``multiple``."""
    padding = _Padding(config, multiple)
    padded = {**weights, "levels": [padding.level(level) for level in weights["levels"]]}
    if "cross" in weights:
        padded["cross"] = [padding.cross(part) for part in weights["cross"]]
        padded["embeddings"] = padding.ends(weights["embeddings"])
    return padded


class _Padding:
    """The padding of each part of the weights; a part's true widths are its own shape."""

    def __init__(self, config: Config, multiple: int) -> None:
        self.heads, self.multiple = config.num_heads, multiple

    def level(self, level: Weights) -> Weights:
        return {
            "input": self.ends(level["input"]),
            "position": self.ends(level["position"]),
            "blocks": [self.block(block) for block in level["blocks"]],
            "output": (self.ends(level["output"][0], 0), level["output"][1]),
        }

    def block(self, block: Weights) -> Weights:
        return {**self.attention(block), "norm1": self.halves(block["norm1"]), "norm2": self.halves(block["norm2"]),
                "mlp": [self.both(part) for part in block["mlp"]]}  # fmt: skip

    def cross(self, part: Weights) -> Weights:
        hidden, out = part["pool"]
        return {
            **self.attention(part),
            "pool": [self.both(hidden), (self.ends(out[0], 0), out[1])],
            "project": self.both(part["project"]),
            "expand": self.both(part["expand"]),
            "norm": self.halves(part["norm"]),
            "gate": self.ends(part["gate"], 0, 1),
            "gate_time": self.ends(part["gate_time"]),
            "gate_bias": self.ends(part["gate_bias"]),
        }

    def attention(self, part: Weights) -> Weights:
        """Pad every head to the same width K, so that the total width is a multiple."""
        (qkv, shift), (out, bias), heads = part["qkv"], part["out"], self.heads
        # heads * K must be a multiple: K a multiple of what the number of heads lacks.
        head, unit = qkv.shape[1] // (3 * heads), self.multiple // gcd(self.multiple, heads)
        more = -head % unit
        # Inside each head: zeros at the end of the whole axis would move entries to other heads.
        qkv = _zeros(qkv.reshape(-1, 3 * heads, head), (0, 0, more)).reshape(len(qkv), -1)
        shift = _zeros(shift.reshape(3 * heads, head), (0, more)).reshape(-1)
        out = _zeros(out.reshape(heads, head, -1), (0, more, 0)).reshape(-1, out.shape[1])
        norms: Weights = {name: _zeros(part[name], (more,)) for name in ("query_norm", "key_norm") if name in part}
        return {**norms, "qkv": (self.ends(qkv, 0), shift), "out": self.both((out, bias))}

    def both(self, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Pad a kernel's inputs and outputs, and the bias."""
        return self.ends(part[0], 0, 1), self.ends(part[1])

    def halves(self, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Pad both halves, scale and shift, of a kernel (T, 2D) and its bias."""
        kernel, bias = (self.ends(array.reshape(*array.shape[:-1], 2, -1)) for array in part)
        return kernel.reshape(len(kernel), -1), bias.reshape(-1)

    def ends(self, array: Tensor, *axes: int) -> Tensor:
        """Append zeros to these axes, by default the last."""
        padded = axes or (array.ndim - 1,)
        return _zeros(
            array, tuple(-size % self.multiple if axis in padded else 0 for axis, size in enumerate(array.shape))
        )


def _zeros(array: Tensor, more: tuple[int, ...]) -> Tensor:
    return jnp.pad(array, [(0, count) for count in more])
