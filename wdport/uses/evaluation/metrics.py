"""The scores by name: each compares real and generated series, and is repeated with its own subsets and trainings.

A metric has two steps. What depends on the real series alone, such as a trained encoder, is made once for a repetition;
every other set of series is then scored with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.models.interface import Array
from wdport.uses.evaluation.context_fid import EncoderUse, context_fid, default_encoder, train_encoder
from wdport.uses.evaluation.distances import correlational_score, dtw_distances, jensen_shannon, sliced_wasserstein
from wdport.uses.evaluation.trained_scores import AHEAD, discriminative_scores, predictive_scores

WINDOWS: Final = 1000
"""Random series of each set for the correlational score."""

WARPED: Final = 100
"""Random series of each set, and of both together as references, for DTW-JS."""

Score = Callable[[Array, Array, int], float]
"""(real, generated, seed) to a number; both are (n, N, F), scaled."""


Prepare = Callable[[Array, int, EncoderUse | None], Score]
"""(real, seed, encoder) to the score of a repetition."""


@dataclass(frozen=True)
class Metric:
    """One score. Smaller is better for all of them. ``fewest`` are the steps that a series must have, by the number of
    its features, and ``features`` how many of those it must have."""

    name: str
    title: str
    prepare: Prepare
    fewest: Callable[[int], int] = lambda features: 1
    features: int = 1


def _context_fid(real: Array, seed: int, encoding: EncoderUse | None) -> Score:
    chosen = encoding or EncoderUse(default_encoder(real.shape[-1]))
    weights = train_encoder(chosen.encoder, real, seed) if chosen.weights is None else chosen.weights
    return lambda real, generated, _: context_fid(chosen.encoder, weights, real, generated)


def _correlational(real: Array, generated: Array, seed: int) -> float:
    random = np.random.default_rng(seed)
    return correlational_score(*(some(random, series, WINDOWS) for series in (real, generated)))


def _judged(scores: Callable[[Tensor, Tensor, Tensor], Tensor], real: Array, generated: Array, seed: int) -> float:
    keys = jax.random.split(jax.random.key(seed), 1)
    return float(scores(keys, _device(real), _device(generated))[0])


def _dtw_js(real: Array, generated: Array, seed: int) -> float:
    random = np.random.default_rng(seed)
    both = [some(random, series, WARPED) for series in (real, generated)]
    references = _device(some(random, np.concatenate([real, generated]), WARPED))
    return jensen_shannon(*(np.asarray(dtw_distances(_device(series), references).mean(1)) for series in both))


def _sliced_wasserstein(real: Array, generated: Array, seed: int) -> float:
    count = min(len(real), len(generated))
    random = np.random.default_rng(seed)
    return sliced_wasserstein(some(random, real, count), some(random, generated, count), seed)


def _same(score: Score, real: Array, seed: int, encoding: EncoderUse | None) -> Score:
    return score


METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric("context-fid", "Context-FID", _context_fid, lambda features: 2),
        Metric("correlational", "Correlational score", partial(_same, _correlational), features=2),
        Metric("discriminative", "Discriminative score", partial(_same, partial(_judged, discriminative_scores))),
        Metric(
            "predictive",
            "Predictive score",
            partial(_same, partial(_judged, predictive_scores)),
            lambda features: 2 if features > 1 else AHEAD + 1,
        ),
        Metric("dtw-js", "DTW-JS", partial(_same, _dtw_js)),
        Metric("sliced-wasserstein", "Sliced Wasserstein", partial(_same, _sliced_wasserstein)),
    )
}
"""In the order of a table."""


def some(random: np.random.Generator, series: Array, limit: int) -> Array:
    """At most ``limit`` different series, at random."""
    return series if len(series) <= limit else series[random.permutation(len(series))[:limit]]


def _device(series: Array) -> Tensor:
    return jnp.asarray(series, jnp.float32)
