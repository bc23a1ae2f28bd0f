"""The list of variables against PyTorch's parameters: as many numbers, and the published counts."""

from __future__ import annotations

from collections import Counter
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


def test_shapes_of_one_of_everything() -> None:
    shapes = variables(replace(SMALL, qk_norm=True, scale_embedding=True))
    wanted = {
        "noise_schedule/alpha_bar": (1001,),
        "time_embedding/mlp/hidden/kernel": (8, 32),
        "scale_embedding/mlp/out/bias": (8,),
        "level_0/input_proj/kernel": (3, 32),
        "level_0/block_3/attention/query/kernel": (32, 2, 16),
        "level_3/block_1/attention/value/bias": (2, 8),
        "level_1/block_0/attention/key_norm/scale": (8,),
        "level_1/block_0/attention/out/kernel": (2, 8, 16),
        "level_2/block_0/norm2/ada_lin/kernel": (8, 32),
        "level_2/block_0/mlp/hidden/kernel": (16, 64),
        "level_0/output_proj/kernel": (32, 3),
        "cross_level/level_position_embeddings": (4, 32),
        "cross_level/aggregator_1/hidden/kernel": (16, 8),
        "cross_level/aggregator_1/out/kernel": (8, 1),
        "cross_level/attention_3/query/kernel": (32, 2, 16),
        "cross_level/gate_2/linear/kernel": (24, 16),
        "cross_level/expander_2/kernel": (32, 16),
    }
    assert {path: shapes[path] for path in wanted} == wanted


def test_what_is_off_is_absent() -> None:
    tops = Counter(path.split("/")[0] for path in variables(SMALL))
    assert list(tops) == [
        "noise_schedule", "time_embedding", "level_0", "level_1", "level_2", "level_3", "cross_level",
    ]  # fmt: skip
    assert not any("norm/scale" in path for path in variables(SMALL))
    assert "cross_level" not in {p.split("/")[0] for p in variables(replace(SMALL, cross_level_attention=False))}
    assert {p.split("/")[1] for p in variables(SMALL) if p.startswith("level_0/block")} == {
        f"block_{i}" for i in range(4)
    }
