"""Noise: standard normal, another for every step, sample and seed, and the same when it is drawn again."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from wdport.diffusion.noise import FIRST, sample_keys, step_noise


def drawn(seed: int, step: int) -> np.ndarray:
    keys = sample_keys(seed, np.array([0, 1, 49], np.uint32))
    return np.asarray(step_noise(keys, step, (40, 50), "float32"))


def test_no_two_draws_are_alike() -> None:
    """Correlations of 2000 independent values are below 0.1, four and a half deviations."""
    draws = [sample for seed in (0, 1) for step in (FIRST, 1, 2, 999) for sample in drawn(seed, step)]
    for first, second in combinations(draws, 2):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1
    values = np.stack(draws)
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1.0) < 0.02
    assert np.array_equal(drawn(1, 999), drawn(1, 999))
