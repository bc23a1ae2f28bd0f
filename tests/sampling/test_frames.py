"""Frames begin with the noise and end with the samples; figures show points, images and series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sampling.test_condition import network
from tests.sampling.toy import SHAPE, toy_network
from wdport.errors import UsageError
from wdport.files import figure
from wdport.files.figure import ANIMATED, animate_samples, draw_samples, figure_target
from wdport.sampling.job import plan_job
from wdport.sampling.output import frames_of
from wdport.sampling.request import Request
from wdport.sampling.sampler import Programs
from wdport.sampling.samples import Samples


@pytest.mark.parametrize(
    "given",
    [
        {"sampler": "ddim", "steps": 7, "eta": 0.5},
        {"sampler": "heun", "steps": 90},
        {"sampler": "ddim", "steps": 5, "init": np.ones((6, *SHAPE))},
        {"sampler": "ddim", "steps": 5, "condition": [0, 1, 2]},
    ],
)
def test_frames(given: dict[str, Any]) -> None:
    net = network() if "condition" in given else toy_network()
    job = plan_job(Programs(net), Request(count=6, seed=2, **given))
    samples = Samples.join(list(job.draw()))
    frames = frames_of(job, 4, limit=9)
    assert len(frames) == min(9, len(job.sampler.plan.steps) + 1)
    assert frames.shape[1:] == (4, *SHAPE)
    np.testing.assert_allclose(frames[-1], samples.series[:4], rtol=1e-5, atol=1e-5)
    if "init" in given:
        assert np.array_equal(frames[0], np.full((4, *SHAPE), 2.0, np.float32))
    assert len(np.unique(frames.reshape(len(frames), -1), axis=0)) == len(frames)


@pytest.mark.parametrize("shape", [(2,), (8, 8, 1), (6, 5, 3), (24, 3), (4, 5, 2), (7,)])
def test_figures(shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setattr(figure, "FRAMES_PER_SECOND", 1)  # so often the last frame is drawn again
    values = np.random.default_rng(0).uniform(0.0, 1.0, (5, *shape)).astype(np.float32)
    values[0].flat[0] = np.nan
    still = figure_target(tmp_path / "a.png")
    draw_samples(still, values)
    moving = figure_target(tmp_path / "a.gif", False, None, "--animate", ANIMATED)
    animate_samples(moving, np.stack([values, values / 2.0, 1.0 - values]))
    with Image.open(still.path) as image:
        assert len(image.convert("L").getcolors() or range(999)) > 10
    with Image.open(moving.path) as image:
        assert image.n_frames >= 3
    with pytest.raises(UsageError, match=r"unknown figure format; end the name in \.gif"):
        figure_target(tmp_path / "a.mp4", False, None, "--animate", ANIMATED)
