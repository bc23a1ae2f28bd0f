"""The configuration object: derived sizes, its JSON form, combinations that cannot be; and its variables."""

from __future__ import annotations

import json
import math
import re
from dataclasses import FrozenInstanceError, fields, replace
from math import prod
from typing import Any

import pytest

from wdport.base.fields import marked
from wdport.uses.waveletdiff.config import OMITTED, Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.variables import position_table, sizes, time_frequencies, variables

SMALL = Config((5, 5, 8, 13), 3, 16, 2, 2, 8)


def test_derived_sizes() -> None:
    assert SMALL.groups == 4
    assert SMALL.coefficients == 31
    assert SMALL.widths == (32, 16, 16, 16)
    assert SMALL.depths == (4, 2, 2, 2)
    assert SMALL.cross_width == 32
    assert SMALL.level_names == ("cA3", "cD3", "cD2", "cD1")
    assert SMALL.level_slices == (slice(0, 5), slice(5, 10), slice(10, 18), slice(18, 31))
    assert Config((9, 9), 1, 8, 1, 1, 4).level_names == ("cA1", "cD1")


def test_the_released_defaults() -> None:
    left = {field.name: getattr(SMALL, field.name) for field in fields(Config)[6:]}
    released: dict[str, Any] = {
        "qk_norm": False, "cross_level_attention": True, "scale_embedding": False, "prediction_target": "noise",
        "noise_schedule": "exponential", "dropout": 0.1, "wavelet": None, "boundary_mode": None, "seq_len": None,
        "norm_mean": None, "norm_std": None, "feature_names": None, "conditioning": None, "transform": None,
        "window_statistics": None,
    }  # fmt: skip
    assert {name: left[name] for name in released} == released
    with pytest.raises(FrozenInstanceError):
        SMALL.features = 4  # type: ignore[misc]


def test_what_is_possible_is_accepted() -> None:
    for changes in ({"level_lengths": (5,), "cross_level_attention": False}, {"noise_schedule": "custom"},
                    {"prediction_target": "coefficient"}, {"dropout": 0.0}, {"num_heads": 16}):  # fmt: skip
        assert replace(SMALL, **changes) != SMALL


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, qk_norm=True, wavelet="db2", seq_len=24, dropout=0.0),
                                    replace(SMALL, feature_names=("a", "b °C", "-c"))])  # fmt: skip
def test_the_json_form_reads_back(config: Config) -> None:
    text = json.dumps(config.to_dict())
    assert Config.from_dict(json.loads(text)) == config
    left_out = [name for name in marked(Config, OMITTED) if getattr(config, name) is None]
    assert sorted([*json.loads(text), *left_out]) == sorted(field.name for field in fields(Config))
    assert isinstance(Config.from_dict(json.loads(text)).level_lengths, tuple)


def test_unknown_and_missing_values_are_all_named() -> None:
    with pytest.raises(ValueError, match="unknown configuration values: depth, width"):
        Config.from_dict({**SMALL.to_dict(), "width": 1, "depth": 2})
    with pytest.raises(ValueError, match="missing configuration values: features, num_layers"):
        Config.from_dict({n: v for n, v in SMALL.to_dict().items() if n not in ("features", "num_layers")})
    required = ("level_lengths", "features", "embed_dim", "num_heads", "num_layers", "time_embed_dim")
    assert Config.from_dict({name: getattr(SMALL, name) for name in required}) == SMALL


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"level_lengths": []}, "at least 1"),
    ({"num_heads": 3}, "num_heads 3 does not divide embed_dim 16"),
    ({"num_heads": 32}, "num_heads 32 does not divide embed_dim 16"),
    ({"time_embed_dim": 7}, "time_embed_dim 7"),
    ({"time_embed_dim": 2}, "time_embed_dim 2"),
    ({"level_lengths": [5]}, "at least two"),
    ({"dropout": 1.0}, "dropout 1.0"),
    ({"dropout": -0.1}, "dropout -0.1"),
    ({"wavelet": "morl"}, "'morl' is not a discrete wavelet"),
    ({"num_layers": 10**5000}, "num_layers of 16610 bits: at most"),
    ({"level_lengths": [4] * 1_000_000}, "level_lengths has 1000000 values, at most"),
    ({"level_lengths": [[4, 4], 4]}, "level_lengths is not a list of whole numbers"),
    ({"level_lengths": "5588"}, "level_lengths is not a list of whole numbers"),
    ({"dropout": 10**400}, "is not in [0, 1)"),
    ({"norm_mean": [10**400] * 3, "norm_std": [1.0] * 3}, "norm_mean has a value that is not finite"),
    ({"norm_mean": [[1.0]] * 3, "norm_std": [1.0] * 3}, "norm_mean is not a list of numbers"),
    ({"feature_names": "abc"}, "names is not a list of texts"),
    ({"feature_names": ["a", "b"]}, "2 names for 3 features"),
    ({"feature_names": ["a", "b", "\x1b"]}, "feature 3, '\\x1b', has a character that cannot be printed"),
    ({"norm_mean": [1.0] * 3, "norm_std": [True] * 3}, "norm_std is not a list of numbers"),
    ({"wavelet": "w" * 1_000_000}, "is not a discrete wavelet of PyWavelets"),
    ({"norm_mean": [1.0] * 200_000, "norm_std": [1.0] * 200_000}, "norm_mean has 200000 values, at most"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_file_states_is_possible_typed_and_bounded(changes: dict[str, Any], reason: str) -> None:
    """As JSON gives it: lists for tuples, and any value in any place."""
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        FAMILY.load_config({**SMALL.to_dict(), **changes})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("values", [[], "text", None, {1: 2}, {"features": 3}])
def test_what_is_no_configuration_is_refused(values: Any) -> None:
    with pytest.raises(ValueError, match="configuration"):
        FAMILY.load_config(values)


def test_a_model_too_large_is_refused_before_it_is_counted_out() -> None:
    """Each size is within its cap; what they make together is not, and is known by arithmetic alone."""
    wide = replace(SMALL, embed_dim=1 << 14, num_layers=1000)
    deep = replace(SMALL, level_lengths=(4,) * 64, num_layers=1000)
    tables = replace(SMALL, level_lengths=(1 << 24,) * 64, embed_dim=1024)
    for config, reason in ((wide, "values"), (deep, "variables"), (tables, "values")):
        with pytest.raises(ValueError, match=f"{reason}, at most"):
            FAMILY.load_config(config.to_dict())


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
