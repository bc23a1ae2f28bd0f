"""Train an encoder on series alone: two overlapping crops of a series must be represented alike where they overlap.

The network of one batch computes what the Keras model in :mod:`wdport.uses.ts2vec.port` computes. Series are
padded to one length, and steps beyond the end of a series are zero wherever a convolution reads them, as its padding
is. Taps that read only padding are left out: with 24 steps and dilations up to 1024, half of the products remains.

Crops, masks and the hierarchical loss are those of arXiv 2106.10466, sections 3.2 and 3.3. Crops have random lengths;
here they are padded to the length of the series, so one compiled program is enough for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.families.ported import described_variables
from wdport.mapping.axes import Shape
from wdport.models.interface import Array
from wdport.nets.activations import gelu
from wdport.nets.random_bits import one_loop
from wdport.uses.ts2vec.config import Config

Weights = Mapping[str, Tensor]
"""The variables of the Keras model by path."""

Block = dict[str, Tensor]
"""The variables of a block by their path within it."""


def represent(
    config: Config, weights: Weights, series: Tensor, inside: Tensor, visible: Tensor | None = None
) -> Tensor:
    """The representation (B, T, D) of series (B, T, F) whose steps count where ``inside`` (B, T) is true.

    Steps where ``visible`` (B, T) is false are zero after the input projection, as the random masks of training are.
    Outputs beyond the end of a series are without meaning.
    """
    x = series @ weights["input_fc/kernel"] + weights["input_fc/bias"]
    # After the projection: of a masked input its bias would remain.
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
        activated = jnp.where(inside[..., None], gelu(x), 0.0)
        x = _convolution(activated, weights[f"{name}/conv/kernel"], dilation) + weights[f"{name}/conv/bias"]
    return x + shortcut


def _convolution(x: Tensor, kernel: Tensor, dilation: int) -> Tensor:
    """(B, T, C) and a kernel (K, C, C') -> (B, T, C'), as one product of the taps that reach a step of the series."""
    length, middle = x.shape[1], kernel.shape[0] // 2
    # Taps beyond these read only padding for every step of the series.
    half = min(middle, (length - 1) // dilation)
    # One product with (2 half + 1) C inputs, in place of a product for each tap.
    if half:
        padded = jnp.pad(x, ((0, 0), (half * dilation, half * dilation), (0, 0)))
        x = jnp.concatenate([padded[:, tap * dilation : tap * dilation + length] for tap in range(2 * half + 1)], -1)
    return x @ kernel[middle - half : middle + half + 1].reshape(-1, kernel.shape[2])


def embed(config: Config, weights: Weights, series: Tensor) -> Tensor:
    """The embeddings (B, D) of whole series (B, T, F): the maximum over all steps."""
    embeddings: Tensor = represent(config, weights, series, jnp.ones(series.shape[:2], bool)).max(1)
    return embeddings


DROPOUT = 0.1
"""Rate of the dropout of the representation."""

SEEN = 0.5
"""Share of the steps that a mask keeps."""


class Crops(NamedTuple):
    """Two crops of each series: their first steps (2, B), their lengths (2,), and the length of what they share, which
    ends the first crop and begins the second."""

    first: Tensor
    length: Tensor
    shared: Tensor


@dataclass(frozen=True)
class ContrastEncoder:
    """See :class:`wdport.uses.roles.SeriesEncoder`."""

    config: Config

    def initial(self, random: np.random.Generator) -> dict[str, Array]:
        return initial(described_variables("wdport.uses.ts2vec.port", "TS2Vec", self.config), random)

    def loss(self, weights: Weights, key: Tensor, series: Tensor) -> Tensor:
        return loss(self.config, weights, key, series)

    def embed(self, weights: Weights, series: Tensor) -> Tensor:
        return embed(self.config, weights, series)


def initial(shapes: Mapping[str, Shape], random: np.random.Generator) -> dict[str, Array]:
    """PyTorch's initial weights of linear and convolution layers, float32: uniform within 1 / sqrt(fan-in).

    Drawn by numpy, since JAX would compile a program for every shape.
    """
    # A bias has no inputs: torch takes the fan-in of its layer's kernel.
    fans = {path.rpartition("/")[0]: int(np.prod(shape[:-1])) for path, shape in shapes.items() if len(shape) > 1}
    return {path: (random.uniform(-1.0, 1.0, shape) * fans[path.rpartition("/")[0]] ** -0.5).astype(np.float32)
            for path, shape in shapes.items()}  # fmt: skip


def draw_crops(key: Tensor, count: int, length: int) -> Crops:
    """Crops for ``count`` series of ``length`` steps; both have at least two steps in common."""
    drawn = jax.random.uniform(key, (4 + count,))

    def between(index: int | slice, least: Tensor | int, end: Tensor) -> Tensor:
        """A whole number from ``least`` to ``end``, which is excluded."""
        # `uniform` is at most 1 - 2^-23, and float32 numbers near n are 2^-23 n or less apart: the product never rounds
        # to n.
        number: Tensor = least + (drawn[index] * (end - least)).astype(jnp.int32)
        return number

    shared = between(0, 2, jnp.asarray(length + 1))
    left = between(1, 0, length - shared + 1)
    begin = between(2, 0, left + 1)
    end = between(3, left + shared, jnp.asarray(length + 1))
    shift = between(slice(4, None), -begin, length - end + 1)
    return Crops(jnp.stack([shift + begin, shift + left]), jnp.stack([left + shared - begin, end - left]), shared)


def loss(config: Config, weights: Weights, key: Tensor, series: Tensor) -> Tensor:
    """The loss of a batch of series (B, T, F) with random crops, masks and dropout."""
    crops_key, masks_key, dropout_key = (one_loop(part) for part in jax.random.split(key, 3))
    count, length, _ = series.shape
    crops = draw_crops(crops_key, count, length)
    steps = jnp.arange(length)
    # Both crops in one batch: the network runs once.
    inputs = jnp.concatenate([_shifted(series, first) for first in crops.first])
    inside = jnp.repeat(steps < crops.length[:, None], count, 0)
    visible = jax.random.bernoulli(masks_key, SEEN, inside.shape)
    representations = represent(config, weights, inputs, inside, visible)
    # A mask of shape (2 B, T, D): dropout is independent for each crop.
    keep_mask = jax.random.bernoulli(dropout_key, 1.0 - DROPOUT, representations.shape)
    representations = jnp.where(keep_mask, representations / (1.0 - DROPOUT), 0.0)
    # `dynamic_slice` moves the start back where the slice would pass the end, so there must be steps to pass into.
    padded = jnp.pad(representations[:count], ((0, 0), (0, length), (0, 0)))
    one = jax.lax.dynamic_slice_in_dim(padded, crops.length[0] - crops.shared, length, 1)
    return hierarchical_loss(one, representations[count:], crops.shared)


def _shifted(series: Tensor, first: Tensor) -> Tensor:
    """Every series from its own first step on; its last step fills the end."""
    steps = jnp.minimum(first[:, None] + jnp.arange(series.shape[1]), series.shape[1] - 1)
    return jnp.take_along_axis(series, steps[..., None], 1)


def hierarchical_loss(one: Tensor, other: Tensor, length: Tensor) -> Tensor:
    """The contrastive loss of two representations (B, T, D) of the same steps, of which the first ``length`` count.

    At every scale it is half the loss among the series of a batch and half that among the steps of a series; time is
    halved by maxima until one step is left, where the first half alone counts. The result is the mean over the scales.
    """
    total, scales = jnp.zeros((), one.dtype), jnp.zeros((), one.dtype)
    # Unrolled when it is traced: the shapes halve, the number of valid steps is a traced value.
    while True:
        valid = jnp.arange(one.shape[1]) < length
        both = _among_series(one, other, valid) / 2.0
        if one.shape[1] > 1:
            both += jnp.where(length > 1, _among_steps(one, other, valid) / 2.0, 0.0)
        total += jnp.where(length > 0, both, 0.0)
        # A crop shorter than the series has no valid steps left at the last scales.
        scales += length > 0
        if one.shape[1] == 1:
            return total / scales
        one, other, length = _halved(one), _halved(other), length // 2


def _halved(x: Tensor) -> Tensor:
    """(B, T, D) -> (B, T // 2, D)."""
    half = x.shape[1] // 2
    pooled: Tensor = x[:, : 2 * half].reshape(x.shape[0], half, 2, -1).max(2)
    return pooled


def _among_series(one: Tensor, other: Tensor, valid: Tensor) -> Tensor:
    """The cross-entropy of finding, at a step, the other crop of a series among the 2 B - 1 other vectors; the mean
    over the valid steps."""
    # A series alone has its partner only, which is found with certainty.
    if one.shape[0] == 1:
        return jnp.zeros((), one.dtype)
    both = jnp.moveaxis(jnp.concatenate([one, other]), 1, 0)  # (T, 2 B, D)
    log_probabilities = _partner_log_probabilities(both, jnp.ones(both.shape[1], bool)).mean(1)
    return -jnp.where(valid, log_probabilities, 0.0).sum() / jnp.maximum(valid.sum(), 1)


def _among_steps(one: Tensor, other: Tensor, valid: Tensor) -> Tensor:
    """The cross-entropy of finding, in a series, the same step of the other crop among the 2 T - 1 other vectors; the
    mean over series and valid steps."""
    both = jnp.tile(valid, 2)
    log_probabilities = _partner_log_probabilities(jnp.concatenate([one, other], 1), both).mean(0)  # of (B, 2 T)
    return -jnp.where(both, log_probabilities, 0.0).sum() / jnp.maximum(both.sum(), 1)


def _partner_log_probabilities(z: Tensor, valid: Tensor) -> Tensor:
    """The log-probability (A, n) of every vector's partner, which is n / 2 places on, among the other valid vectors of
    its row (A, n, D): the softmax of their products."""
    count = z.shape[1]
    same = np.eye(count, dtype=bool)
    # Not -inf: rows without a valid vector must stay finite, since a NaN passes through a later `where` in the
    # gradient.
    products = jnp.where(valid & ~same, jnp.einsum("aid,ajd->aij", z, z), -1e30)
    partner = jnp.where(np.roll(same, count // 2, 1), products, 0.0).sum(-1)
    return partner - jax.nn.logsumexp(products, -1)
