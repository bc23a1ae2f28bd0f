"""Noise schedules against their formulas, and told apart by their beta; noise is standard normal and never alike."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from wdport.uses.diffusion.noise import FIRST, sample_keys, step_noise
from wdport.uses.diffusion.schedules import NAMES, STEPS, identify_schedule, noise_schedule

EXACT = dict.fromkeys(NAMES, 1e-12)


def written_out(name: str, step: int) -> float:
    """beta of step 1 to 1000, in double precision, from the paper's formula alone."""
    if name == "linear":
        return 1e-4 + (0.02 - 1e-4) * (step - 1) / 999
    if name == "exponential":
        return 1e-4 + (0.02 - 1e-4) * (1 - math.exp(-2 * (step - 1) / 999))
    later, earlier = (math.cos((x / 1000 + 0.008) / 1.008 * math.pi / 2) ** 2 for x in (step, step - 1))
    return min(max(1 - later / earlier, 1e-4), 0.9999)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_follows_the_formula(name: str) -> None:
    beta, alpha, alpha_bar = schedule = noise_schedule(name)
    assert schedule._fields == ("beta", "alpha", "alpha_bar")
    assert beta.shape == alpha.shape == alpha_bar.shape == (STEPS + 1,) == (1001,)
    assert beta.dtype == alpha.dtype == alpha_bar.dtype == np.float64
    wanted = np.array([written_out(name, step) for step in range(1, 1001)])
    np.testing.assert_allclose(beta[1:], wanted, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(alpha, 1 - beta)
    assert [beta[0], alpha_bar[0]] == [0.0, 1.0], "step 0 is a dummy"
    product = 1.0
    for step in range(1, 1001):
        product *= 1 - wanted[step - 1]
        assert alpha_bar[step] == pytest.approx(product, rel=1e-9, abs=0)


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        noise_schedule("sigmoid")


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_identified_by_its_beta(name: str) -> None:
    beta = noise_schedule(name).beta
    assert identify_schedule(beta, EXACT) == name
    assert identify_schedule(beta.astype(np.float32), dict.fromkeys(NAMES, 1e-6)) == name
    for step in (0, 1, 500, 1000):
        changed = beta.copy()
        changed[step] += 1e-9
        assert identify_schedule(changed, EXACT) is None
        changed[step] = np.nan
        assert identify_schedule(changed, dict.fromkeys(NAMES, 1.0)) is None


def test_what_is_no_schedule_is_none() -> None:
    for shape in ((1000,), (1002,), (), (1001, 1), (1, 1001)):
        assert identify_schedule(np.zeros(shape), dict.fromkeys(NAMES, 1e9)) is None
    assert identify_schedule(np.zeros(1001), EXACT) is None


def test_tolerances_are_per_schedule_and_relative_ones_are_added() -> None:
    beta = noise_schedule("cosine").beta + 1e-6
    assert identify_schedule(beta, EXACT) is None
    assert identify_schedule(beta, {**EXACT, "cosine": 2e-6}) == "cosine"
    assert identify_schedule(beta, {**EXACT, "linear": 2e-6}) is None
    scaled = noise_schedule("linear").beta * 1.001
    assert identify_schedule(scaled, EXACT, relative=0.002) == "linear"
    assert identify_schedule(scaled, EXACT, relative=0.0005) is None


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
