"""The encoder as a pure function of its weights, for crops of different lengths in one batch: what training needs.

It computes what the Keras model in :mod:`wdport.families.ts2vec.port` computes. Series are padded to one length, and
steps beyond the end of a series are zero wherever a convolution reads them, as its padding is. Taps that read only
padding are left out: with 24 steps and dilations up to 1024, half of the products remains.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array as Tensor

from wdport.families.ts2vec.config import Config

Weights = Mapping[str, Tensor]
"""The variables of the Keras model by path."""

Block = dict[str, Tensor]
"""Those of a block, by their path within it."""


def represent(
    config: Config, weights: Weights, series: Tensor, inside: Tensor, visible: Tensor | None = None
) -> Tensor:
    """The representation (B, T, D) of series (B, T, F) whose steps count where ``inside`` (B, T) is true.

    Steps where ``visible`` (B, T) is false are zero after the input projection, as the random masks of training are.
    Outputs beyond the end of a series are without meaning.
    """
    x = series @ weights["input_fc/kernel"] + weights["input_fc/bias"]
    if visible is not None:
        x = jnp.where(visible[..., None], x, 0.0)
    for i in range(config.depth + 1):
        x = _block(_block_weights(weights, i), 2**i, x, inside)
    return x


def _block_weights(weights: Weights, number: int) -> Block:
    path = f"feature_extractor/net/block_{number}/"
    return {name.removeprefix(path): value for name, value in weights.items() if name.startswith(path)}


def _block(weights: Block, dilation: int, x: Tensor, inside: Tensor) -> Tensor:
    """(B, T, C) -> (B, T, C')."""
    shortcut = x
    if "projector/kernel" in weights:
        shortcut = x @ weights["projector/kernel"][0] + weights["projector/bias"]
    for name in ("conv1", "conv2"):
        activated = jnp.where(inside[..., None], jax.nn.gelu(x, approximate=False), 0.0)
        x = _convolution(activated, weights[f"{name}/conv/kernel"], dilation) + weights[f"{name}/conv/bias"]
    return x + shortcut


def _convolution(x: Tensor, kernel: Tensor, dilation: int) -> Tensor:
    """(B, T, C) and a kernel (K, C, C') -> (B, T, C'), as one product of the taps that reach a step of the series."""
    length, middle = x.shape[1], kernel.shape[0] // 2
    half = min(middle, (length - 1) // dilation)
    if half:
        padded = jnp.pad(x, ((0, 0), (half * dilation, half * dilation), (0, 0)))
        x = jnp.concatenate([padded[:, tap * dilation : tap * dilation + length] for tap in range(2 * half + 1)], -1)
    return x @ kernel[middle - half : middle + half + 1].reshape(-1, kernel.shape[2])


def embed(config: Config, weights: Weights, series: Tensor) -> Tensor:
    """The embeddings (B, D) of whole series (B, T, F): the maximum over all steps."""
    embeddings: Tensor = represent(config, weights, series, jnp.ones(series.shape[:2], bool)).max(1)
    return embeddings
