"""Samples that rounding decides: how far they may differ."""

from __future__ import annotations

import numpy as np
import pytest

from wdport.compare.explained import MOST_MOVED, beyond_rounding
from wdport.recording.cases import Case

CASE = Case(seed=0, batch=2, scale=1.0, extremes=("zeros", ""))


@pytest.mark.parametrize(("off", "moves", "error"), [
    (1e3, 1.0, 1e3), (MOST_MOVED / 2, 1.0, None), (1e-17, 0.0, 1e-17), (0.0, 0.0, None),
])  # fmt: skip
def test_a_sample_that_rounding_decides_is_off_relative_to_an_ordinary_one(
    off: float, moves: float, error: float | None
) -> None:
    reference, moved = np.array([[0.0], [1.0]]), np.array([[moves], [0.0]])
    ours = reference + np.array([[off], [0.0]])
    found = list(beyond_rounding((ours,), (reference,), (moved,), {0}, CASE))
    assert found == ([] if error is None else [(0, pytest.approx(error))])
