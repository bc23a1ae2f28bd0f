"""Plans through the scan against plain loops, over random schedules, steps and targets; repeated steps; refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uses.diffusion import scanned
from wdport.base.errors import UsageError
from wdport.uses.diffusion.noise import lay_out
from wdport.uses.diffusion.plans import SamplingPlan, make_plan, repeated
from wdport.uses.diffusion.reference_samplers import ddim_states, ddim_step_list, ddpm_states
from wdport.uses.diffusion.run_plan import plan_rows
from wdport.uses.diffusion.sampler_updates import SAMPLERS, TARGETS
from wdport.uses.diffusion.schedules import NAMES, NoiseSchedule, noise_schedule, step_list

ROWS = 8
PUBLIC = ("noise", "sample")
"""The targets that the public loops know."""
SHAPE = (2, 5, 3)


def toy(x: Any, time: Any, xp: Any = np) -> Any:
    """A network of (B, C, F) and (B,): every output depends on every input."""
    return xp.sin(1.3 * x + 7.0 * time[:, None, None]) + 0.3 * xp.mean(x, axis=1, keepdims=True)


@cache
def twin(network: Any) -> Any:
    """The network in JAX."""
    return partial(network, xp=jnp)


def states(
    plan: SamplingPlan, init: np.ndarray, tape: np.ndarray, network: Any = toy, change: Any = None
) -> np.ndarray:
    return scanned.states(plan, twin(network), init, tape, change)


def same(clean: Any) -> Any:
    return clean


@st.composite
def schedules(draw: st.DrawFn) -> NoiseSchedule:
    """One of the named schedules, or a random one whose alpha_bar falls from nearly 1 to nearly 0."""
    if draw(st.booleans()):
        return noise_schedule(draw(st.sampled_from(NAMES)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    beta = np.concatenate([[0.0], rng.uniform(1e-5, 10.0 ** -rng.uniform(1.5, 3.0), 1000)])
    return NoiseSchedule(beta, 1.0 - beta, np.cumprod(1.0 - beta))


lists = st.lists(st.integers(1, 1000), min_size=ROWS, max_size=ROWS, unique=True).map(lambda s: sorted(s)[::-1])


@settings(max_examples=60)
@given(schedules(), lists, st.sampled_from(PUBLIC), st.sampled_from([None, 0.0, 0.3, 1.0]), st.integers(0, 2**32 - 1))
def test_plans_do_what_plain_loops_do(
    schedule: NoiseSchedule, steps: list[int], target: str, eta: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    init, tape = rng.standard_normal(SHAPE), rng.standard_normal((ROWS - 1, *SHAPE))
    if eta is None:
        plan = make_plan("ddpm", schedule, steps, target=target)
        truth = ddpm_states(toy, schedule, target, steps, init, tape)
    else:
        plan = make_plan("ddim", schedule, steps, eta=eta, target=target)
        truth = ddim_states(toy, schedule, target, steps, init, eta, tape)
    assert plan.slots == (0 if eta == 0.0 else ROWS - 1)
    ours = states(plan, init, tape)
    errors = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(ours, truth, strict=True)]
    assert max(errors) <= 1e-12


def test_step_lists_are_the_checkpoints() -> None:
    for count in (*range(1, 40), 50, 100, 300, 499, 500, 501, 999, 1000):
        assert step_list(count).tolist() == ddim_step_list(count), count


def test_step_counts_of_the_public_sampler() -> None:
    assert {n: len(step_list(n)) for n in (50, 100, 300, 7, 999, 1000)} == {
        50: 51, 100: 101, 300: 334, 7: 9, 999: 1000, 1000: 1000}  # fmt: skip
    assert step_list().tolist() == list(range(1000, 0, -1))


def test_times_are_those_of_a_float32_division() -> None:
    plan = make_plan("ddpm", noise_schedule("linear"), step_list())
    divided = plan.steps.astype(np.float32) / np.float32(1000.0)
    assert np.array_equal(plan_rows(plan, "float32").times, divided)
    assert not np.array_equal(plan.steps.astype(np.float32) * np.float32(0.001), divided)


def test_textbook_ddim_without_noise_is_the_checkpoints() -> None:
    schedule, steps = noise_schedule("cosine"), step_list(10)
    own, textbook = (make_plan(name, schedule, steps).coefficients for name in ("ddim", "ddim-textbook"))
    assert np.array_equal(own, textbook)
    own, textbook = (make_plan(name, schedule, steps, eta=0.5).coefficients for name in ("ddim", "ddim-textbook"))
    assert not np.allclose(own, textbook)


def test_full_textbook_ddim_is_ancestral_sampling() -> None:
    """With eta 1 over every step, DDIM is DDPM with the posterior's deviation (arXiv 2010.02502, sec. 4.1)."""
    schedule = noise_schedule("exponential")
    for target in TARGETS:
        ddim = make_plan("ddim-textbook", schedule, step_list(), eta=1.0, target=target).coefficients[:, 0]
        ddpm = make_plan("ddpm", schedule, step_list(), target=target).coefficients[:, 0]
        np.testing.assert_allclose(ddim[:, :4], ddpm[:, :4], rtol=1e-9, atol=1e-11)
        assert np.all(ddim[:-1, 4] < ddpm[:-1, 4])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_targets_say_the_same(sampler: str) -> None:
    """Networks that predict the noise, what that noise leaves, and the velocity between the two: one trajectory."""
    schedule, steps = noise_schedule("exponential"), [900, 700, 400, 100, 20]
    if sampler == "ddpm":
        steps = list(range(8, 0, -1))
    signal, spread = np.sqrt(schedule.alpha_bar), np.sqrt(1.0 - schedule.alpha_bar)

    def clean(x: Any, time: Any, xp: Any) -> Any:
        at = xp.rint(time * 1000).astype(int)
        return (x - xp.asarray(spread)[at, None, None] * toy(x, time, xp)) / xp.asarray(signal)[at, None, None]

    def velocity(x: Any, time: Any, xp: Any) -> Any:
        at = xp.rint(time * 1000).astype(int)
        noise, sample = toy(x, time, xp), clean(x, time, xp)
        return xp.asarray(signal)[at, None, None] * noise - xp.asarray(spread)[at, None, None] * sample

    rng = np.random.default_rng(0)
    init, tape = rng.standard_normal(SHAPE), rng.standard_normal((len(steps), *SHAPE))
    plans = [make_plan(sampler, schedule, steps, target=target) for target in TARGETS]
    by_noise, *others = (states(plan, init, tape, n) for plan, n in zip(plans, (toy, clean, velocity), strict=True))
    for other in others:
        np.testing.assert_allclose(by_noise[-1], other[-1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_change_that_changes_nothing(sampler: str, target: str) -> None:
    """The clean state as the network sees it, put back as it is, leaves the trajectory as it was."""
    schedule, steps = noise_schedule("exponential"), [900, 700, 400, 100, 20]
    rng = np.random.default_rng(0)
    init, tape = rng.standard_normal(SHAPE), rng.standard_normal((len(steps), *SHAPE))
    plain, changed = (make_plan(sampler, schedule, steps, target=target, changed=each) for each in (False, True))
    assert (plain.changed, changed.changed) == (False, True)
    assert np.array_equal(plain.noisy, changed.noisy)
    ours = states(changed, init, tape, change=same)
    np.testing.assert_allclose(ours, states(plain, init, tape), rtol=1e-9, atol=1e-9)


STEPS = [1000, 500, 1]
GOOD = noise_schedule("exponential")


def with_value(name: str, step: int, value: float) -> NoiseSchedule:
    values = getattr(GOOD, name).copy()
    values[step] = value
    return GOOD._replace(**{name: values})


IMPOSSIBLE: dict[str, tuple[Callable[[], Any], str]] = {
    "sampler": (lambda: make_plan("ancestral", GOOD, STEPS), "unknown sampler 'ancestral'; use one of ddpm, ddim"),
    "target": (lambda: make_plan("ddim", GOOD, STEPS, target="speed"), "unknown prediction target 'speed'"),
    "negative eta": (lambda: make_plan("ddim", GOOD, STEPS, eta=-0.1), "eta: invalid value -0.1"),
    "eta is not a number": (lambda: make_plan("ddim", GOOD, STEPS, eta=float("nan")), "eta: invalid value nan"),
    "eta for ddpm": (lambda: make_plan("ddpm", GOOD, STEPS, eta=0.5), "eta: is for ddim and ddim-textbook, not"),
    "too much eta": (lambda: make_plan("ddim-textbook", GOOD, STEPS, eta=3.0), "more noise than is left"),
    "no steps": (lambda: make_plan("ddim", GOOD, []), "steps: must be a list of whole numbers"),
    "rising steps": (lambda: make_plan("ddim", GOOD, [1, 2]), "steps: do not fall from 1000"),
    "a step twice": (lambda: make_plan("ddim", GOOD, [2, 2, 1]), "steps: do not fall from 1000"),
    "step 0": (lambda: make_plan("ddim", GOOD, [2, 0]), "steps: do not fall from 1000"),
    "step 1001": (lambda: make_plan("ddim", GOOD, [1001, 1]), "steps: do not fall from 1000"),
    "broken steps": (lambda: make_plan("ddim", GOOD, [2.5, 1.0]), "steps: must be a list of whole numbers"),
    "count 0": (lambda: step_list(0), "steps: invalid value 0; give a whole number from 1 to 1000"),
    "count 1001": (lambda: step_list(1001), "steps: invalid value 1001"),
    "a schedule that 16 bits have ruined": (
        lambda: make_plan("ddim", with_value("alpha_bar", 1, 1.0), STEPS),
        "noise schedule: alpha_bar is 1 at step 1, where it must be between 0 and 1",
    ),
    "nothing of the signal left": (
        lambda: make_plan("ddim", with_value("alpha_bar", 1000, 0.0), STEPS), "alpha_bar is 0 at step 1000"),
    "a schedule with NaN": (
        lambda: make_plan("ddpm", with_value("beta", 500, np.nan), STEPS), "beta is nan at step 500"),
    "a schedule that rises": (
        lambda: make_plan("heun", with_value("alpha_bar", 500, 0.9999999), STEPS), "alpha_bar does not fall"),
    "a schedule of other lengths": (
        lambda: make_plan("ddim", GOOD._replace(beta=GOOD.beta[1:]), STEPS), "has shapes (1000,), (1001,) and (1001,)"),
    "a short tape": (
        lambda: lay_out(np.zeros((1, *SHAPE)), make_plan("ddpm", GOOD, STEPS).noisy),
        "noise: has 1 slots, the sampler takes 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_the_impossible_is_refused(case: str) -> None:
    call, expected = IMPOSSIBLE[case]
    with pytest.raises(UsageError) as raised:
        call()
    assert expected in str(raised.value)


SCHEDULE = noise_schedule("exponential")


@pytest.mark.parametrize(("sampler", "eta"), [("ddim", 0.0), ("ddim", 0.7), ("ddpm", 0.0)])
def test_every_step_but_the_last_is_taken_three_times(sampler: str, eta: float) -> None:
    once = make_plan(sampler, SCHEDULE, step_list(10), eta=eta)
    plan = repeated(once, SCHEDULE, 3)
    assert plan.steps.tolist() == [*np.repeat(once.steps[:-1], 3), 1]
    assert np.array_equal(plan.coefficients[2::3], once.coefficients[:-1])
    assert np.array_equal(plan.coefficients[-1], once.coefficients[-1])
    for i, step in enumerate(once.steps[:-1]):
        ratio = SCHEDULE.alpha_bar[step] / SCHEDULE.alpha_bar[once.steps[i + 1]]
        again, plain = plan.coefficients[3 * i, 0], once.coefficients[i, 0]
        np.testing.assert_allclose(again[:4], plain[:4] * np.sqrt(ratio))
        np.testing.assert_allclose(again[4] ** 2, plain[4] ** 2 * ratio + 1.0 - ratio)


def test_no_noise_is_drawn_twice() -> None:
    plan = repeated(make_plan("ddpm", SCHEDULE, step_list()), SCHEDULE, 4)
    assert len(set(plan.draws.tolist())) == len(plan.draws) == 999 * 4 + 1
    assert plan.draws.min() == 1
    late = replace(plan, steps=2 * plan.steps)  # of a schedule of 2000 steps
    assert len(set(late.draws.tolist())) == len(late.draws)
    once = make_plan("ddpm", SCHEDULE, step_list())
    assert np.array_equal(once.draws, once.steps)
    assert repeated(once, SCHEDULE, 1) is once


@pytest.mark.parametrize(("sampler", "times", "expected"), [
    ("ddim", 0, "invalid value 0"), ("ddim", 1.5, "invalid value 1.5"),
    ("heun", 2, "heun cannot repeat single steps; take ddpm or ddim, or resample once"),
    ("dpm++2m", 2, "dpm\\+\\+2m cannot repeat"),
])  # fmt: skip
def test_what_cannot_be_repeated_is_refused(sampler: str, times: int, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        repeated(make_plan(sampler, SCHEDULE, step_list(10)), SCHEDULE, times)
