"""The two sinusoid tables against their formulas, number by number."""

from __future__ import annotations

import math

import pytest

from wdport.families.waveletdiff.variables import position_table, time_frequencies


@pytest.mark.parametrize(("length", "width"), [(1, 2), (5, 8), (13, 16), (4, 7), (3, 1)])
def test_positions_interleave_sines_and_cosines(length: int, width: int) -> None:
    table = position_table(length, width)
    assert table.shape == (length, width)
    assert table.dtype == "float64"
    for p in range(length):
        for channel in range(width):
            angle = p * 10_000 ** (-2 * (channel // 2) / width)
            wanted = math.cos(angle) if channel % 2 else math.sin(angle)
            assert table[p, channel] == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize("width", [4, 6, 8, 128])
def test_time_frequencies_run_from_one_to_a_ten_thousandth(width: int) -> None:
    """They divide by width / 2 - 1, so that the last is exactly the base's inverse."""
    frequencies = time_frequencies(width)
    assert frequencies.shape == (width // 2,)
    assert frequencies.dtype == "float64"
    assert frequencies[0] == 1.0
    assert frequencies[-1] == pytest.approx(1e-4, rel=1e-13)
    for k in range(width // 2):
        assert frequencies[k] == pytest.approx(10_000 ** (-k / (width // 2 - 1)), rel=1e-13)
