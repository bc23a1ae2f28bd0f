"""Context-FID: the Fréchet distance of the embeddings of real and generated series (Jeha et al., PSA-GAN, ICLR 2022).

The embeddings are those of an encoder that is trained on the real series, without labels; the weights used are the
mean over all steps of its training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.base.jax_settings import short_run
from wdport.families.registry import all_families
from wdport.models.interface import Array
from wdport.uses.evaluation.distances import frechet_distance
from wdport.uses.roles import Encoding, SeriesEncoder

BATCH: Final = 8
RATE: Final = 1e-3
DECAY, BETAS, EPSILON = 0.01, (0.9, 0.999), 1e-8
"""AdamW's other constants, the defaults of `torch.optim`."""

SEGMENT: Final = 50
"""Steps that run without returning to Python."""

SMALL, FEW, MANY = 100_000, 200, 600
"""Steps for data of up to so many values, and for more."""

CHUNK: Final = 512
"""Series that are encoded at a time."""

Weights = dict[str, Array]
Form = tuple[tuple[str, tuple[int, ...]], ...]


def default_encoder(features: int) -> SeriesEncoder:
    """The encoder that is trained where none is given."""
    for family in all_families():
        if isinstance(family, Encoding):
            encoder: SeriesEncoder = family.series_encoder(family.usual(features))
            return encoder
    raise LookupError("no family encodes series")


def steps_for(series: Array) -> int:
    """Training steps for series (n, N, F)."""
    return FEW if series.size <= SMALL else MANY


def train_encoder(encoder: SeriesEncoder, series: Array, seed: int, steps: int | None = None) -> Weights:
    """Return the mean over all steps of the weights of an encoder that is trained on series (n, N, F), float32.

    AdamW at a rate of 1e-3 takes batches of 8 different series, all of them once before any again.
    """
    count = steps or steps_for(series)
    random = np.random.default_rng(seed)
    # On the device once; a step gets the numbers of its series only.
    held, key = jax.device_put(np.asarray(series, np.float32)), jax.random.key(seed)
    weights, numbers = encoder.initial(random), _order(random, len(series), count)
    form = tuple((name, value.shape) for name, value in weights.items())
    flat = np.concatenate([value.ravel() for value in weights.values()])
    state = flat, *(np.zeros_like(flat) for _ in range(3))
    for begin in range(0, count, SEGMENT):
        step_numbers = np.arange(begin, min(begin + SEGMENT, count), dtype=np.int32)
        state = _program()(
            encoder, form, held, key, jax.device_put(state), step_numbers, numbers[begin : begin + SEGMENT]
        )
    return _by_name(np.asarray(state[3]) / np.float32(count), form)


def _order(random: np.random.Generator, count: int, steps: int) -> Array:
    """The series of every batch (steps, 8)."""
    size = min(BATCH, count)
    epochs = -(-steps // (count // size))
    batches = [random.permutation(count)[: count // size * size].reshape(-1, size) for _ in range(epochs)]
    return np.concatenate(batches)[:steps].astype(np.int32)


@cache
def _program() -> Any:
    # Made when it is first needed, since the options ask jax for its platform.
    return jax.jit(_steps, static_argnums=(0, 1), donate_argnums=4, compiler_options=short_run())


def _steps(
    encoder: SeriesEncoder, form: Form, series: Tensor, key: Tensor, state: Any, step_numbers: Tensor, numbers: Tensor
) -> Any:
    """Steps ``step_numbers``; the state is the weights, AdamW's moments and the sum of the weights so far, each as one
    vector: updating 48 variables one by one takes longer to compile."""

    def step(state: Any, now: tuple[Tensor, Tensor]) -> tuple[Any, None]:
        flat, first, second, total = state
        # The key of a step follows from its number, so segments of any length give the same training.
        slopes = jax.grad(encoder.loss)(_by_name(flat, form), jax.random.fold_in(key, now[0]), series[now[1]])
        slope = jnp.concatenate([slopes[name].ravel() for name, _ in form])
        number: Any = (now[0] + 1).astype(flat.dtype)
        first = BETAS[0] * first + (1.0 - BETAS[0]) * slope
        second = BETAS[1] * second + (1.0 - BETAS[1]) * slope**2
        size = jnp.sqrt(second) / (1.0 - BETAS[1] ** number) ** 0.5 + EPSILON
        flat = flat * (1.0 - RATE * DECAY) - RATE / (1.0 - BETAS[0] ** number) * (first / size)
        return (flat, first, second, total + flat), None

    return jax.lax.scan(step, state, (step_numbers, numbers))[0]


def _by_name(flat: Any, form: Form) -> dict[str, Any]:
    """Values of these shapes from one vector."""
    ends = np.cumsum([prod(shape) for _, shape in form])
    return {name: flat[end - prod(shape) : end].reshape(shape) for (name, shape), end in zip(form, ends, strict=True)}


def embeddings(encoder: SeriesEncoder, weights: Mapping[str, Array | Tensor], series: Array) -> Array:
    """The vectors (n, D) of series (n, N, F), in the dtype of the weights."""
    dtype = next(iter(weights.values())).dtype
    parts = []
    for begin in range(0, len(series), CHUNK):
        part = np.asarray(series[begin : begin + CHUNK], dtype)
        # One shape for all chunks, and so one program; a small set is not padded to a full chunk.
        padded = np.pad(part, ((0, min(CHUNK, len(series)) - len(part)), (0, 0), (0, 0)))
        parts.append(np.asarray(_embedded(encoder, weights, padded))[: len(part)])
    return np.concatenate(parts)


@partial(jax.jit, static_argnums=0)
def _embedded(encoder: SeriesEncoder, weights: Mapping[str, Tensor], series: Tensor) -> Tensor:
    return encoder.embed(weights, series)


def context_fid(encoder: SeriesEncoder, weights: Mapping[str, Array | Tensor], real: Array, generated: Array) -> float:
    """The Fréchet distance of the embeddings of two sets of series (n, N, F); 0 is best."""
    return frechet_distance(*(embeddings(encoder, weights, series) for series in (real, generated)))


@dataclass(frozen=True)
class EncoderUse:
    """The encoder of Context-FID: its weights if it is given, otherwise it is trained for every repetition."""

    encoder: SeriesEncoder
    weights: Mapping[str, Array | Tensor] | None = None
