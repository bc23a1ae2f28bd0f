"""The list of variables against PyTorch's parameters: as many numbers, and the published counts."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.variables import sizes, variables

from .sources import state

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
BUFFERS = ("alpha_all", "alpha_bar_all", ".emb", ".pe")


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_as_many_numbers_as_pytorch_has_parameters(config: Config) -> None:
    """The three schedule arrays apart, which are buffers there and variables here."""
    parameters = {n: t for n, t in state(config).items() if not n.endswith((*BUFFERS, "beta_all"))}
    ours = {path: shape for path, shape in variables(config).items() if not path.startswith("noise_schedule/")}
    assert sum(map(prod, ours.values())) == sum(tensor.numel() for tensor in parameters.values())
    packed = sum("in_proj_" in name for name in parameters)
    assert len(ours) == len(parameters) + 2 * packed


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_the_state_dict_has_as_many_tensors_as_the_formula_says(config: Config) -> None:
    """The published 9 + 21 n + 12 (n layers + 2), without or with what a variant takes away or adds."""
    groups, blocks = config.groups, config.groups * config.num_layers + 2
    count = 9 + 21 * groups + 12 * blocks
    if not config.cross_level_attention:
        count -= 1 + 16 * groups
    if config.qk_norm:
        count += 6 * (blocks + groups * config.cross_level_attention)
    if config.scale_embedding:
        count += 5
    assert len(state(config)) == count


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_the_count_by_arithmetic(config: Config) -> None:
    shapes = variables(config).values()
    assert sizes(config) == (len(shapes), sum(map(prod, shapes)))


def test_the_released_size() -> None:
    trained = [shape for path, shape in variables(RELEASED).items() if not path.startswith("noise_schedule/")]
    assert sum(map(prod, trained)) == 63_099_552
