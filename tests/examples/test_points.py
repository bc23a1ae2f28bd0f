"""The example of points, trained: samples of the port are as near to held-out data as those of the PyTorch model."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wdport.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "points"
COUNT, STEPS, DIRECTIONS = 10_000, 20, 200


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("net", "twin", "train"):
        sys.modules.pop(name, None)


def sliced_wasserstein(one: np.ndarray, other: np.ndarray, seed: int = 0) -> float:
    """The root mean square over directions of the distance between the sorted projections, of equally many points."""
    angle = np.random.default_rng(seed).uniform(0.0, np.pi, DIRECTIONS)
    direction = np.stack([np.cos(angle), np.sin(angle)])
    return float(np.sqrt(np.mean((np.sort(one @ direction, 0) - np.sort(other @ direction, 0)) ** 2)))


@torch.no_grad()
def drawn_by_torch(model: Any, seed: int) -> np.ndarray:
    """Heun's method, the last step Heun's too, since the velocity is seen at the end."""
    x, h = torch.randn(COUNT, 2, generator=torch.Generator().manual_seed(seed)), 1.0 / STEPS
    for step in range(STEPS):
        t = torch.full((COUNT,), step * h)
        first = model(x, t)
        x = x + h / 2.0 * (first + model(x + h * first, t + h))
    return x.numpy()


@pytest.mark.full
@pytest.mark.parametrize("name", ["moons", "mixture"])
def test_the_port_draws_as_well_as_the_model(name: str, folder: Path) -> None:
    import train  # type: ignore[import-not-found, unused-ignore]

    model = train.train(name, "flow", steps=1500)
    torch.save(model.state_dict(), "a.pt")
    table = ["--mapping", "flow.yaml"]
    assert main(["convert", "a.pt", *table]) == 0
    held_out = train.points(name, COUNT, seed=1)
    theirs, ours = [], []
    for seed in range(5):
        theirs.append(sliced_wasserstein(drawn_by_torch(model, seed), held_out))
        words = ["-n", str(COUNT), "--steps", str(STEPS), "--seed", str(seed), "-o", f"{seed}.npy"]
        assert main(["sample", "a.keras", *table, *words]) == 0
        ours.append(sliced_wasserstein(np.load(f"{seed}.npy"), held_out))
    error = np.hypot(np.std(theirs, ddof=1), np.std(ours, ddof=1)) / np.sqrt(5)
    print(f"{name}: PyTorch {np.mean(theirs):.4f}, port {np.mean(ours):.4f}, standard error {error:.4f}")  # noqa: T201
    assert abs(np.mean(theirs) - np.mean(ours)) < 3.0 * error
    noise = np.random.default_rng(0).standard_normal((COUNT, 2))
    assert max(ours) < 0.5 * sliced_wasserstein(noise, held_out)  # and they are points of the set, not noise
