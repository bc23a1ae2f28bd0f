"""Windows: every one is where it should be, and none is a copy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdport.data import sliding_windows
from wdport.errors import UsageError


@given(st.integers(1, 12), st.integers(1, 3), st.integers(1, 12), st.integers(1, 13))
def test_windows_are_slices(steps: int, features: int, length: int, stride: int) -> None:
    values = np.arange(steps * features).reshape(steps, features)
    if length > steps:
        with pytest.raises(UsageError, match=f"window: of {length} steps does not fit into a series of {steps}"):
            sliding_windows(values, length, stride)
        return
    windows = sliding_windows(values, length, stride)
    starts = range(0, steps - length + 1, stride)
    assert windows.shape == (len(starts), length, features)
    assert windows.shape[0] == (steps - length) // stride + 1
    for window, start in zip(windows, starts, strict=True):
        np.testing.assert_array_equal(window, values[start : start + length])


def test_windows_are_a_read_only_view() -> None:
    values = np.zeros((5, 2), np.float32)
    windows = sliding_windows(values, 3)
    assert np.shares_memory(windows, values)
    assert not windows.flags.writeable
    values[4] = 7
    assert windows[-1, -1].tolist() == [7, 7]


@pytest.mark.parametrize(
    ("length", "stride", "message"), [(0, 1, "length: is 0"), (-1, 1, "length: is -1"), (2, 0, "stride: is 0")]
)
def test_impossible_windows(length: int, stride: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sliding_windows(np.zeros((5, 2)), length, stride)


def test_a_series_has_two_axes() -> None:
    with pytest.raises(UsageError, match="shape"):
        sliding_windows(np.zeros(5), 2)
