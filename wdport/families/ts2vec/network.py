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


def represent(config: Config, weights: Weights, series: Tensor, inside: Tensor, seen: Tensor | None = None) -> Tensor:
    """The representation (B, T, D) of series (B, T, F) whose steps count where ``inside`` (B, T) is true.

    Steps where ``seen`` (B, T) is false are zero after the input projection, as the random masks of training are.
    Outputs beyond the end of a series are without meaning.
    """
    x = series @ weights["input_fc/kernel"] + weights["input_fc/bias"]
    if seen is not None:
        x = jnp.where(seen[..., None], x, 0.0)
    blocks = [_block_weights(weights, i) for i in range(config.depth + 1)]
    near = sum(2**i < series.shape[1] for i in range(config.depth))
    for begin, end, taps in ((0, near, config.kernel_size), (near, config.depth, 1)):
        if begin < end:  # one loop for the blocks that are alike compiles in a third of the time
            stacked = {name: jnp.stack([each[name] for each in blocks[begin:end]]) for name in blocks[begin]}
            dilations = 2 ** jnp.arange(begin, end)

            def block(x: Tensor, now: tuple[Block, Tensor], taps: int = taps) -> tuple[Tensor, None]:
                return _block(*now, x, inside, taps), None

            x, _ = jax.lax.scan(block, x, (stacked, dilations))
    reach = config.kernel_size if 2**config.depth < series.shape[1] else 1
    return _block(blocks[-1], jnp.asarray(2**config.depth), x, inside, reach)


def _block_weights(weights: Weights, number: int) -> Block:
    path = f"feature_extractor/net/block_{number}/"
    return {name.removeprefix(path): value for name, value in weights.items() if name.startswith(path)}


def _block(weights: Block, dilation: Tensor, x: Tensor, inside: Tensor, taps: int) -> Tensor:
    """(B, T, C) -> (B, T, C'), with the ``taps`` in the middle of every kernel."""
    kept = x
    if "projector/kernel" in weights:
        kept = x @ weights["projector/kernel"][0] + weights["projector/bias"]
    for name in ("conv1", "conv2"):
        given = jnp.where(inside[..., None], jax.nn.gelu(x, approximate=False), 0.0)
        x = _convolution(given, weights[f"{name}/conv/kernel"], dilation, taps) + weights[f"{name}/conv/bias"]
    return x + kept


def _convolution(x: Tensor, kernel: Tensor, dilation: Tensor, taps: int) -> Tensor:
    """(B, T, C) and a kernel (K, C, C') -> (B, T, C'), as one product for all taps."""
    length, middle, half = x.shape[1], kernel.shape[0] // 2, taps // 2
    if half:
        padded = jnp.pad(x, ((0, 0), (length, length), (0, 0)))
        reach = jnp.clip(jnp.arange(-half, half + 1) * dilation, -length, length) + length
        x = jnp.concatenate([jax.lax.dynamic_slice_in_dim(padded, at, length, 1) for at in reach], -1)
    return x @ kernel[middle - half : middle + half + 1].reshape(-1, kernel.shape[2])


def embed(config: Config, weights: Weights, series: Tensor) -> Tensor:
    """The embeddings (B, D) of whole series (B, T, F): the maximum over all steps."""
    found: Tensor = represent(config, weights, series, jnp.ones(series.shape[:2], bool)).max(1)
    return found
