"""Error measures: numbers worked out by hand, and NaN never passes."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from wdport.compare.gate_bounds import UNIT_ROUNDOFF
from wdport.compare.measure import ErrorPair, Ranges, float32_share, like, relative_l2, ulps


def test_relative_l2() -> None:
    assert relative_l2(np.array([3.0, 4.5]), np.array([3.0, 4.0])) == pytest.approx(0.1)
    assert relative_l2(np.zeros(3), np.zeros(3)) == 0.0
    assert relative_l2(np.ones(3), np.zeros(3)) == inf


@pytest.mark.parametrize("bad", [nan, inf])
def test_nan_and_infinity_are_infinitely_wrong(bad: float) -> None:
    assert relative_l2(np.array([1.0, bad]), np.ones(2)) == inf
    assert relative_l2(np.array([1.0, bad]), np.array([1.0, bad])) == inf
    pair = ErrorPair()
    pair.add(np.array([1.0, bad]), np.ones(2), np.ones(2))
    assert pair.rms_ratio == inf
    assert pair.max_ratio == inf


def test_float32_share() -> None:
    exact = np.random.default_rng(0).standard_normal(1000)
    assert float32_share(exact) < 0.01
    assert float32_share(exact.astype(np.float32).astype(np.float64)) == 1.0
    assert float32_share(np.array([0.0, 1.0, -1.0])) == 0.0
    bias = np.float64(np.float32([0.1, 0.2]))
    assert float32_share(np.concatenate([exact[:8], *[bias] * 99])) == 0.2


def test_ratio_counts_rounding_as_the_least_error() -> None:
    truth = np.ones(100)
    pair = ErrorPair()
    pair.add(truth + 4 * UNIT_ROUNDOFF, truth, truth)
    assert pair.rms_ratio == pytest.approx(4.0)
    assert pair.max_ratio == pytest.approx(4.0)
    assert pair.bias == pytest.approx(4 * UNIT_ROUNDOFF)


def test_ratio_against_the_references_own_error() -> None:
    truth = np.ones(2)
    pair = ErrorPair()
    pair.add(np.array([1.0, 1.0 + 6e-6]), np.array([1.0 + 3e-6, 1.0]), truth)
    assert pair.rms_ratio == pytest.approx(2.0)


def test_like_merges_trailing_axes_only() -> None:
    array = np.arange(24.0).reshape(2, 3, 2, 2)
    assert np.array_equal(like(array, np.zeros((2, 3, 4))), array.reshape(2, 3, 4))
    for shape in [(3, 2, 4), (2, 3, 5), (4, 6)]:
        with pytest.raises(ValueError, match="shape"):
            like(array.reshape(2, 3, 4), np.zeros(shape))


def test_ulps() -> None:
    assert ulps(np.float32([1.0]), np.array([1.0 + 2**-24])) == pytest.approx(0.5)
    assert ulps(np.nextafter(np.float32([1.0]), np.float32(2.0)), np.array([1.0])) == pytest.approx(1.0)
    assert ulps(np.zeros(3), np.zeros(2)) == inf, "a table of another shape"


def test_constant() -> None:
    ranges = Ranges()
    ranges.add("one number", [np.full(4, 0.3)])
    ranges.add("two numbers", [np.array([0.3, 0.4])])
    ranges.add("ones", [np.ones((2, 1, 1))])
    ranges.add("the second output", [np.array([0.3, 0.4]), np.zeros(2)])
    for value in (0.3, 0.5):
        ranges.add("another number in another case", [np.full(4, value)])
    ranges.add("one value", [np.zeros(1)])
    assert ranges.constant == ["one number", "the second output"]


def test_integers_have_no_precision_to_lose() -> None:
    assert float32_share(np.array([3, -100, 7])) == 0.0
