"""The list of variables against PyTorch's parameters: as many numbers, and the published counts."""

from __future__ import annotations

import math
from dataclasses import replace
from math import prod

import pytest

from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.variables import position_table, sizes, time_frequencies, variables

SMALL = Config((5, 5, 8, 13), 3, 16, 2, 2, 8)
RELEASED = Config((5, 5, 8, 13), 7, 256, 8, 8, 128)
CONFIGS = [
    SMALL,
    replace(SMALL, qk_norm=True, num_heads=4),
    replace(SMALL, cross_level_attention=False, num_layers=1),
    replace(SMALL, qk_norm=True, scale_embedding=True, features=1),
    Config((9, 9), 1, 12, 3, 3, 4),
    Config((4,), 2, 6, 1, 1, 4, cross_level_attention=False),
]


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_the_count_by_arithmetic(config: Config) -> None:
    shapes = variables(config).values()
    assert sizes(config) == (len(shapes), sum(map(prod, shapes)))


def test_the_released_size() -> None:
    trained = [shape for path, shape in variables(RELEASED).items() if not path.startswith("noise_schedule/")]
    assert sum(map(prod, trained)) == 63_099_552


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
