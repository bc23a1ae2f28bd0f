"""The list of variables against PyTorch's parameters: as many numbers, and the published counts."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.variables import sizes, variables

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
