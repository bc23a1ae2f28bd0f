"""Samples depend on the seed and their own number alone: not on the batch, the chunk, the dtype or the devices."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.sampling.toy import SHAPE, toy_network, toy_programs
from wdport.diffusion.noise import lay_out, sample_keys, step_noise
from wdport.diffusion.plans import make_plan
from wdport.diffusion.scan import plan_rows, run_plan
from wdport.diffusion.schedules import noise_schedule, step_list
from wdport.sampling.job import Job
from wdport.sampling.sampler import SEGMENT, Programs, Sampler, plan_of, segment_length
from wdport.sampling.samples import Samples

SCHEDULE = noise_schedule("exponential")
PLANS = {
    "ddpm": make_plan("ddpm", SCHEDULE, step_list(50)),
    "ddim": make_plan("ddim", SCHEDULE, step_list(50), eta=0.5),
    "heun": make_plan("heun", SCHEDULE, step_list(25)),
}
"""All of 51 rows, so that they share their programs."""


def together(
    sampler: Sampler, count: int, batch: int, chunk: int | None = None, start: int = 0, **given: np.ndarray
) -> Samples:
    return Samples.join(list(Job(sampler, count, batch, **given).draw(chunk, start)))


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 64])
def test_chunks_change_no_bit(name: str, chunk: int) -> None:
    sampler = Sampler(toy_programs(), PLANS[name], seed=5)
    parts = list(Job(sampler, 10, 4).draw(chunk))
    assert [len(part) for part in parts] == [min(chunk, 10 - begin) for begin in range(0, 10, chunk)]
    whole, split = together(sampler, 10, 4), Samples.join(parts)
    assert np.array_equal(split.coefficients, whole.coefficients)
    assert np.array_equal(split.series, whole.series)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("batch", [1, 4, 64])
def test_any_batch_gives_the_same_samples(name: str, batch: int) -> None:
    sampler = Sampler(toy_programs(), PLANS[name], seed=5)
    whole, split = together(sampler, 10, 10), together(sampler, 10, batch)
    assert whole.coefficients.shape == split.coefficients.shape == (10, *SHAPE)
    np.testing.assert_allclose(split.coefficients, whole.coefficients, rtol=2e-5, atol=1e-5)
    assert np.array_equal(split.series, 2.0 * split.coefficients)


def test_the_noise_itself_is_the_same_bit_for_bit() -> None:
    drawn = [
        np.concatenate([np.asarray(step_noise(sample_keys(5, part), step, SHAPE, "float32"))
                        for part in np.split(np.arange(12, dtype=np.uint32), pieces)])
        for pieces in (1, 3, 12) for step in (0, 7)
    ]  # fmt: skip
    assert all(np.array_equal(drawn[i], drawn[i + 2]) for i in range(4))
    assert not np.array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize(
    ("setting", "value"),
    [("jax_random_seed_offset", 5), ("jax_threefry_partitionable", False), ("jax_default_prng_impl", "rbg")],
)
def test_no_setting_of_jax_changes_the_noise(setting: str, value: object) -> None:
    """A run that resumes under another setting would mix two streams."""
    indices = np.arange(4, dtype=np.uint32)

    def draw() -> np.ndarray:
        return np.asarray(jax.jit(lambda seed: step_noise(sample_keys(seed, indices), 7, SHAPE, "float32"))(5))

    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5, impl="threefry2x32"), 2), 7)
    assert np.array_equal(draw()[2], jax.random.normal(key, SHAPE, np.float32))
    before, plain = getattr(jax.config, setting), draw()
    try:
        jax.config.update(setting, value)
        assert np.array_equal(draw(), plain)
    finally:
        jax.config.update(setting, before)


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("start", [1, 4, 6, 9])
def test_samples_go_on_where_others_stopped(start: int, chunk: int | None) -> None:
    """Also within a batch."""
    sampler = Sampler(toy_programs(), PLANS["ddim"])
    whole, rest = together(sampler, 10, 4), together(sampler, 10, 4, chunk, start=start)
    assert np.array_equal(rest.coefficients, whole.coefficients[start:])
    assert [len(part) for part in Job(sampler, 10, 4).draw()] == [4, 4, 2]


def test_dtypes_see_the_same_noise() -> None:
    single, double = (together(Sampler(toy_programs(dtype), PLANS["ddpm"]), 2, 2) for dtype in ("float32", "float64"))
    assert double.coefficients.dtype == np.float64
    np.testing.assert_allclose(single.coefficients, double.coefficients, rtol=1e-3, atol=1e-3)


def test_a_tape_is_what_the_seed_would_have_drawn() -> None:
    """The slots of the tape are the noise of the noisy steps, in their order."""
    plan, indices = PLANS["ddim"], np.arange(4, dtype=np.uint32)
    keys = sample_keys(9, indices)
    init = np.asarray(step_noise(keys, 0, SHAPE, "float32"))
    noisy = plan.steps[plan.noisy]
    tape = np.stack([np.asarray(step_noise(keys, int(step), SHAPE, "float32")) for step in noisy])
    assert len(tape) == plan.slots == 50
    drawn = together(Sampler(toy_programs(), plan, seed=9), 4, 4)
    given = together(Sampler(toy_programs(), plan, seed=1), 4, 3, init=init, tape=tape)
    np.testing.assert_allclose(given.coefficients, drawn.coefficients, rtol=1e-5, atol=1e-5)


def test_a_laid_out_tape_has_its_slots_in_the_noisy_rows() -> None:
    noisy = np.array([True, False, True, False])
    laid = lay_out(np.array([[[[1.0]]], [[[2.0]]], [[[3.0]]]]), noisy)
    assert laid[:, 0, 0, 0].tolist() == [1.0, 0.0, 2.0, 0.0]


def test_plans_of_equal_length_share_one_program() -> None:
    programs = Programs(toy_network())
    for name, eta in (("ddim", 0.0), ("ddim", 0.7), ("ddim-textbook", 0.3), ("dpm++2m", 0.0), ("euler", 0.0)):
        Sampler(programs, plan_of(programs.network, name, 50, eta), seed=3).run(np.arange(4))
    assert programs.drawn._cache_size() == 1


@pytest.mark.parametrize("count", [1, 51, 64, 65, 101, 129, 334, 1000, 1999])
def test_segments_are_of_one_length_and_waste_little(count: int) -> None:
    length = segment_length(count)
    assert length <= SEGMENT
    assert -count % length <= 0.02 * count


def test_segments_change_nothing() -> None:
    """101 rows are two segments and one row that changes nothing; the scan in one go is the truth."""
    network, reports = toy_network("float64"), []
    plan, start = plan_of(network, "dpm++2m", 100), np.random.default_rng(0).standard_normal((2, *SHAPE))
    assert len(plan.steps) == 101
    with jax.enable_x64(True):
        sampler = Sampler(Programs(network), plan)
        found = sampler.run(np.arange(2), start, report=lambda *report: reports.append(report))
        weights = network.weights()
        whole = jax.jit(lambda rows: run_plan(lambda x, t: network.apply(weights, x, t), rows, start,
                                              np.zeros((101, *start.shape))))  # fmt: skip
        np.testing.assert_allclose(found.coefficients, whole(plan_rows(plan, "float64")), rtol=1e-11)
    assert reports == [(0, 101), (51, 101), (101, 101)]  # the first when all is compiled
