"""Flows through the scan, against plain loops and flows that are known; convergence of the samplers without noise."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.uses.diffusion.scanned import states
from wdport.base.errors import UsageError
from wdport.uses.diffusion.flow import PATHS, SAMPLERS, TARGETS, Flow
from wdport.uses.diffusion.plans import make_plan
from wdport.uses.diffusion.process import Run
from wdport.uses.diffusion.schedules import noise_schedule

SHAPE = (4, 3)


def toy(x: Any, time: Any, xp: Any = np) -> Any:
    return xp.sin(1.3 * x + 2.0 * time[:, None]) + 0.3 * xp.mean(x, axis=1, keepdims=True)


TWIN = partial(toy, xp=jnp)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", PATHS)
def test_plans_do_what_plain_loops_do(path: str, target: str, sampler: str) -> None:
    flow, run = Flow(path, target, lambda t: 1000.0 * t), Run(sampler, 0.0, target)
    init = np.random.default_rng(0).standard_normal(SHAPE)
    truth = flow.loop(run, toy, init, init)
    plan = flow.trial(run)
    ours = states(plan, TWIN, init)
    assert plan.steps.tolist() == flow.visited(run)
    assert plan.slots == 0
    errors = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(ours, truth, strict=True)]
    assert max(errors) <= 1e-12


@cache
def best(path: str, target: str, std: float) -> Any:
    """What a perfect network predicts where the data are normal with this deviation and mean 0."""

    def network(x: Any, time: Any) -> Any:
        t = time[:, None]
        if path == "linear":
            a, s, da, ds = t, 1.0 - t, 1.0, -1.0
        else:
            a, s = jnp.sin(jnp.pi * t / 2), jnp.cos(jnp.pi * t / 2)
            da, ds = jnp.pi / 2 * s, -jnp.pi / 2 * a
        variance = a**2 * std**2 + s**2
        data, noise = a * std**2 / variance * x, s / variance * x
        return {"velocity": da * data + ds * noise, "noise": noise, "sample": data}[target]

    return network


@pytest.mark.parametrize(("sampler", "order"), [("euler", 1), ("heun", 2), ("rk4", 4)])
@pytest.mark.parametrize("path", PATHS)
def test_orders(path: str, sampler: str, order: int) -> None:
    """Of normal data the flow is known: x(1) = std x(0). Halved steps divide the error by 2 to the order."""
    init, std, errors = np.ones((1, 1)), 2.0, []
    for steps in (16, 32, 64):
        last = states(Flow(path).plan(sampler, steps), best(path, "velocity", std), init)[-1, 0, 0]
        errors.append(abs(last - std))
    for coarse, fine in pairwise(errors):
        assert abs(np.log2(coarse / fine) - order) < 0.35


@pytest.mark.parametrize("target", ["noise", "sample"])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("path", PATHS)
def test_targets_say_the_same(path: str, sampler: str, target: str) -> None:
    """A flow whose network predicts something else leads to the same place, where that is known at the ends."""
    init = np.linspace(-2.0, 2.0, 5)[:, None]
    plan = Flow(path, target).plan(sampler, 400)
    last = states(plan, best(path, target, 0.5), init)[-1]
    np.testing.assert_allclose(last, 0.5 * init, atol=0.02)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", PATHS)
def test_the_data_as_the_network_sees_them(path: str, target: str) -> None:
    """A change that changes nothing leaves the trajectory as it was; one that fixes the data leads to them."""
    init, network = np.random.default_rng(0).standard_normal(SHAPE), best(path, target, 2.0)
    flow = Flow(path, target)
    plain = states(flow.plan("euler", 10), network, init)
    same = states(flow.plan("euler", 10, changed=True), network, init, change=lambda data: data)
    np.testing.assert_allclose(same, plain, rtol=1e-9, atol=1e-9)
    plan = flow.plan("heun", 10, changed=True)
    fixed = states(plan, network, init, change=lambda data: jnp.full_like(data, 0.7))
    np.testing.assert_allclose(fixed[-1], 0.7, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Flow("curly"), "path: 'curly' is unknown; use one of linear, cosine"),
        (lambda: Flow("linear", "speed"), "target: 'speed' is unknown"),
        (lambda: Flow().plan("ddim"), "sampler: unknown flow sampler 'ddim'; use one of heun, euler, rk4"),
        (lambda: Flow().plan(eta=0.5), "eta: a flow adds no noise"),
        (lambda: Flow().plan(steps=0), "steps: invalid value 0; give a whole number from 1 to 1000"),
        (lambda: Flow().plan(times=2), "resample: a flow adds no noise"),
    ],
)
def test_what_is_refused(call: Any, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert text in str(caught.value)


SCHEDULE = noise_schedule("linear")
MEAN = np.array([0.3, -1.0, 2.0])
SPREAD = np.array([0.5, 1.0, 0.1])
"""Three independent Gaussians, of which the network knows all."""


def expected_noise(alpha_bar: Any, x: Any, time: Any) -> Any:
    """What a perfect network predicts."""
    bar = alpha_bar[jax.numpy.rint(time * 1000).astype(int)][:, None]
    return (x - bar**0.5 * MEAN) * (1.0 - bar) ** 0.5 / (bar * SPREAD**2 + 1.0 - bar)


def known_noise(x: Any, time: Any) -> Any:
    return expected_noise(jnp.asarray(SCHEDULE.alpha_bar), x, time)


def flowed(x: np.ndarray, start: int, end: int) -> np.ndarray:
    """The probability flow of Gaussian data, exactly: standardise at one step, undo it at the other."""
    bars = SCHEDULE.alpha_bar[start], SCHEDULE.alpha_bar[end]
    spreads = [np.sqrt(bar * SPREAD**2 + 1.0 - bar) for bar in bars]
    return (x - np.sqrt(bars[0]) * MEAN) / spreads[0] * spreads[1] + np.sqrt(bars[1]) * MEAN


@pytest.mark.parametrize(
    ("sampler", "order"),
    [("ddim", 1), ("ddim-textbook", 1), ("probability-flow", 1), ("heun", 2), ("dpm++2m", 2), ("unipc", 3)],
)
def test_order_of_convergence(sampler: str, order: int) -> None:
    """From step 900 to step 100, where the flow is smooth, in 40, 80 and 160 steps. UniPC has a corrector."""
    init = np.random.default_rng(0).standard_normal((4, 3))
    truth, errors = flowed(init, 900, 100), []
    for stride in (20, 10, 5):
        plan = make_plan(sampler, SCHEDULE, np.arange(900, 99, -stride))
        errors.append(np.linalg.norm(states(plan, known_noise, init)[-2] - truth))
    measured = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert abs(measured[-1] - order) < 0.2
    assert errors[-1] < 0.1
