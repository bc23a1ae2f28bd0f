"""Fixtures of the tests of training."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from tests.uses.training.points import points
from wdport.models.keras_runtime import exact_float64

__all__ = ["points"]


@pytest.fixture
def exact() -> Iterator[None]:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64():
        yield
