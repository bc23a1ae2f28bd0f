"""The configuration object: derived sizes, its JSON form, and combinations that cannot be."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from wdport.families.waveletdiff.config import Config

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
    assert left == {
        "qk_norm": False, "cross_level_attention": True, "scale_embedding": False, "prediction_target": "noise",
        "noise_schedule": "exponential", "dropout": 0.1, "wavelet": None, "boundary_mode": None, "seq_len": None,
        "norm_mean": None, "norm_std": None,
    }  # fmt: skip
    with pytest.raises(FrozenInstanceError):
        SMALL.features = 4  # type: ignore[misc]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"level_lengths": ()}, "at least 1"),
    ({"level_lengths": (5, 0)}, "at least 1"),
    ({"features": 0}, "at least 1"),
    ({"embed_dim": -16}, "at least 1"),
    ({"num_heads": 0}, "at least 1"),
    ({"num_layers": 0}, "at least 1"),
    ({"num_heads": 3}, "num_heads 3 does not divide embed_dim 16"),
    ({"num_heads": 32}, "num_heads 32 does not divide embed_dim 16"),
    ({"time_embed_dim": 7}, "time_embed_dim 7"),
    ({"time_embed_dim": 2}, "time_embed_dim 2"),
    ({"time_embed_dim": 0}, "time_embed_dim 0"),
    ({"level_lengths": (5,)}, "at least two"),
    ({"prediction_target": "velocity"}, "'velocity'"),
    ({"noise_schedule": "sigmoid"}, "'sigmoid'"),
    ({"dropout": 1.0}, "dropout 1.0"),
    ({"dropout": -0.1}, "dropout -0.1"),
    ({"dropout": float("nan")}, "dropout nan"),
]


@pytest.mark.parametrize(("changes", "reason"), BAD, ids=lambda value: str(value))
def test_an_impossible_combination_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(SMALL, **changes)
    with pytest.raises(ValueError, match=reason):
        Config.from_dict({**SMALL.to_dict(), **changes})


def test_what_is_possible_is_accepted() -> None:
    for changes in ({"level_lengths": (5,), "cross_level_attention": False}, {"noise_schedule": "custom"},
                    {"prediction_target": "coefficient"}, {"dropout": 0.0}, {"num_heads": 16}):  # fmt: skip
        assert replace(SMALL, **changes) != SMALL


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, qk_norm=True, wavelet="db2", seq_len=24, dropout=0.0)])
def test_the_json_form_reads_back(config: Config) -> None:
    text = json.dumps(config.to_dict())
    assert Config.from_dict(json.loads(text)) == config
    assert list(json.loads(text)) == [field.name for field in fields(Config)]
    assert isinstance(Config.from_dict(json.loads(text)).level_lengths, tuple)


def test_unknown_and_missing_values_are_all_named() -> None:
    with pytest.raises(ValueError, match="unknown configuration values: depth, width"):
        Config.from_dict({**SMALL.to_dict(), "width": 1, "depth": 2})
    with pytest.raises(ValueError, match="missing configuration values: features, num_layers"):
        Config.from_dict({n: v for n, v in SMALL.to_dict().items() if n not in ("features", "num_layers")})
    required = ("level_lengths", "features", "embed_dim", "num_heads", "num_layers", "time_embed_dim")
    assert Config.from_dict({name: getattr(SMALL, name) for name in required}) == SMALL
