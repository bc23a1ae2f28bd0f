"""Compute one learning rate and one beta1 per optimiser step from a schedule's parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wdport.errors import UsageError


class Rates(NamedTuple):
    """Learning rate and first-moment decay of every optimiser step, (S,) each, float64."""

    rate: NDArray[np.float64]
    beta1: NDArray[np.float64]


def constant_rate(steps: int, rate: float, beta1: float = 0.9) -> Rates:
    """Return the same rate and beta1 for every step."""
    return Rates(np.full(steps, rate), np.full(steps, beta1))


def cosine_rate(steps: int, largest: float = 1e-3, warm_up: int = 0, beta1: float = 0.9) -> Rates:
    """Return rates that rise linearly to ``largest`` in ``warm_up`` steps, then fall to 0 along a half cosine
    (Loshchilov and Hutter, arXiv 1608.03983), which they would reach after the last step.

    Raises :class:`UsageError` if the warm-up has as many steps as there are.
    """
    if not 0 <= warm_up < steps:
        raise UsageError("warm_up", f"is {warm_up} of {steps} steps", "give fewer")
    index = np.arange(steps, dtype=np.float64)
    rising = (index + 1.0) / (warm_up + 1.0)
    falling = (1.0 + np.cos(np.pi * (index - warm_up) / (steps - warm_up))) / 2.0
    return Rates(largest * np.where(index < warm_up, rising, falling), np.full(steps, beta1))


def warmup_cosine(epochs: int, steps: int, largest: float, warm_up: int, least: float = 1e-6) -> Rates:
    """Rates that change after every epoch of ``steps``: they rise linearly to ``largest`` in ``warm_up`` epochs, then
    fall along a half cosine, as `torch.optim.lr_scheduler.LambdaLR` with such a function; ``least`` is where it ends.

    Raises :class:`UsageError` if the warm-up has as many epochs as there are.
    """
    if not 0 <= warm_up < epochs:
        raise UsageError("warmup_epochs", f"is {warm_up} of {epochs} epochs", "give fewer, or train longer")
    index = np.arange(epochs, dtype=np.float64)
    low = least / largest
    falling = low + (1.0 - low) * (1.0 + np.cos(np.pi * (index - warm_up) / (epochs - warm_up))) / 2.0
    factors = np.where(index < warm_up, (index + 1.0) / max(warm_up, 1), falling)
    return Rates(np.repeat(largest * factors, steps), np.full(epochs * steps, 0.9))


def one_cycle(
    steps: int,
    largest: float = 1e-3,
    warm_up: float = 0.3,
    divisor: float = 25.0,
    final_divisor: float = 1e4,
    beta1: tuple[float, float] = (0.85, 0.95),
) -> Rates:
    """Smith and Topin's one-cycle schedule (arXiv 1708.07120) as `torch.optim.lr_scheduler.OneCycleLR` computes it,
    with cosines.

    The rate rises from ``largest / divisor`` to ``largest`` over the fraction ``warm_up`` of the steps, then falls to
    ``largest / divisor / final_divisor``; beta1 moves in the opposite direction between the two given values.
    Raises :class:`UsageError` if the warm-up or the descent would have no step.
    """
    top = warm_up * steps - 1.0
    if not 0.0 < top < steps - 1.0:
        raise UsageError("one_cycle", f"a warm-up of {warm_up:g} of {steps} steps", "give more steps")
    index = np.arange(steps, dtype=np.float64)
    low, (least, largest_beta) = largest / divisor, beta1
    rising = index <= top
    share = np.where(rising, index / top, (index - top) / (steps - 1.0 - top))
    wave = (1.0 + np.cos(np.pi * share)) / 2.0

    def between(start: float, middle: float, end: float) -> NDArray[np.float64]:
        first, last = np.where(rising, start, middle), np.where(rising, middle, end)
        return np.asarray(last + (first - last) * wave)

    return Rates(between(low, largest, low / final_divisor), between(largest_beta, least, largest_beta))
