"""Train the network on points in a plane: ``python train.py moons flow moons.pt``.

The sets are two moons, a two-dimensional Swiss roll, and a mixture of eight normal distributions, each of mean 0 and
variance 1. The process is "flow" or "diffusion".
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from net import MLP

BATCH, STEPS, RATE = 512, 4000, 2e-3


def points(name: str, count: int, seed: int = 0) -> np.ndarray:
    """(count, 2) float32."""
    rng = np.random.default_rng(seed)
    if name == "moons":
        angle, upper = rng.uniform(0.0, np.pi, count), rng.integers(2, size=count)
        found = np.stack([np.cos(angle), np.sin(angle)], 1)
        found[upper == 1] = np.array([1.0, 0.5]) - found[upper == 1]
        mean, std = np.array([0.5, 0.25]), np.array([0.867, 0.5])
        found = (found + 0.05 * rng.standard_normal(found.shape) - mean) / std
    elif name == "roll":
        angle = 1.5 * np.pi * (1.0 + 2.0 * rng.uniform(size=count))
        found = np.stack([angle * np.cos(angle), angle * np.sin(angle)], 1) / 7.0
        found = found + 0.05 * rng.standard_normal(found.shape)
    else:
        centre = rng.integers(8, size=count) * np.pi / 4.0
        found = np.sqrt(2.0) * np.stack([np.cos(centre), np.sin(centre)], 1) + 0.1 * rng.standard_normal((count, 2))
    return found.astype(np.float32)


def loss(model: MLP, process: str, data: torch.Tensor) -> torch.Tensor:
    noise = torch.randn_like(data)
    if process == "flow":
        time = torch.rand(len(data))
        x = time[:, None] * data + (1.0 - time[:, None]) * noise
        return torch.mean((model(x, time) - (data - noise)) ** 2)
    bars = torch.cumprod(1.0 - torch.linspace(1e-4, 0.02, 1000), 0)
    step = torch.randint(1, 1001, (len(data),))
    bar = bars[step - 1][:, None]
    return torch.mean((model(bar.sqrt() * data + (1.0 - bar).sqrt() * noise, step / 1000.0) - noise) ** 2)


def train(name: str, process: str, steps: int = STEPS) -> MLP:
    torch.manual_seed(0)
    model, data = MLP(), torch.tensor(points(name, 100_000))
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model, process, data[torch.randint(len(data), (BATCH,))]).backward()
        optimizer.step()
        rate.step()
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", choices=["moons", "roll", "mixture"])
    parser.add_argument("process", choices=["flow", "diffusion"])
    parser.add_argument("output")
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.save(train(given.points, given.process, given.steps).state_dict(), given.output)
