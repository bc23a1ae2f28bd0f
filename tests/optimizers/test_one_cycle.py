"""Our one cycle against PyTorch's, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wdport.errors import UsageError
from wdport.optimizers.schedules import one_cycle


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
