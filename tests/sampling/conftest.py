"""A converted model for the tests of sampling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import wdport
from tests.make import SETTINGS, TINY, make_state, save


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that knows the units of its data."""
    path = save(tmp_path_factory.mktemp("sampling") / "small.ckpt", make_state(TINY))
    np.savez(path.with_suffix(".npz"), norm_mean=[1.0, -2.0, 30.0], norm_std=[0.5, 2.0, 10.0])
    return wdport.convert(path, values=SETTINGS, norm_stats=path.with_suffix(".npz")).output
