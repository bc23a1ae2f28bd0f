"""Our AdamW and our one cycle against PyTorch's, in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from wdport.errors import UsageError
from wdport.optimizers.schedules import constant_rate, one_cycle
from wdport.optimizers.torch_like import AdamW, clip_factor

SHAPES = ((3, 4), (5,), ())
STEPS = 7


@pytest.mark.parametrize(("largest", "weight_decay"), [(0.05, 0.3), (1e3, 0.0)], ids=["clipped", "not clipped"])
def test_steps(largest: float, weight_decay: float) -> None:
    rng = np.random.default_rng(0)
    start = [rng.normal(size=shape) for shape in SHAPES]
    gradients = [[rng.normal(size=shape) * 10.0 ** rng.integers(-9, 1) for shape in SHAPES] for _ in range(STEPS)]
    rates = one_cycle(STEPS, largest=0.1, warm_up=0.4)

    theirs = [torch.nn.Parameter(torch.tensor(value)) for value in start]
    optimizer = torch.optim.AdamW(theirs, lr=0.1, weight_decay=weight_decay)
    ours, moments = start, [(np.zeros(s), np.zeros(s)) for s in SHAPES]
    rule = AdamW(weight_decay=weight_decay)
    for step in range(STEPS):
        for parameter, gradient in zip(theirs, gradients[step], strict=True):
            parameter.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_(theirs, largest)
        group = optimizer.param_groups[0]
        group["lr"], group["betas"] = rates.rate[step], (rates.beta1[step], 0.999)
        optimizer.step()
        with jax.enable_x64(True):
            clipped = clip_factor([jnp.asarray(g) for g in gradients[step]], largest)
            made = [
                rule.update(p, clipped * g, m, step + 1, float(rates.rate[step]), float(rates.beta1[step]))
                for p, g, m in zip(ours, gradients[step], moments, strict=True)
            ]
        ours, moments = [each[0] for each in made], [each[1] for each in made]
        for mine, (first, second), parameter in zip(ours, moments, theirs, strict=True):
            state = optimizer.state[parameter]
            np.testing.assert_allclose(mine, parameter.detach().numpy(), rtol=1e-13)
            np.testing.assert_allclose(first, state["exp_avg"].numpy(), rtol=1e-13)
            np.testing.assert_allclose(second, state["exp_avg_sq"].numpy(), rtol=1e-13)


@pytest.mark.parametrize(("steps", "warm_up"), [(10, 0.3), (100, 0.3), (37, 0.5), (1000, 0.01)])
def test_one_cycle(steps: int, warm_up: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=steps, pct_start=warm_up)
    rates, betas = [], []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        betas.append(optimizer.param_groups[0]["betas"][0])
        optimizer.step()
        if step + 1 < steps:
            schedule.step()
    ours = one_cycle(steps, warm_up=warm_up)
    np.testing.assert_allclose(ours.rate, rates, rtol=1e-12)
    np.testing.assert_allclose(ours.beta1, betas, rtol=1e-12)


def test_one_cycle_without_a_warm_up_is_refused() -> None:
    with pytest.raises(UsageError, match="more steps"):
        one_cycle(3)


def test_constant_rate() -> None:
    rates = constant_rate(3, 1e-4)
    assert rates.rate.tolist() == [1e-4] * 3
    assert rates.beta1.tolist() == [0.9] * 3
