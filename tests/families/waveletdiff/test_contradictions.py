"""Checkpoints and settings that disagree: refused, all at once, and one wrong tensor changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from wdport.errors import MisfitError
from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.family import FAMILY
from wdport.families.waveletdiff.resolve import resolve
from wdport.mapping.plan import Misfits, make_plan
from wdport.mapping.shipped import choose_table
from wdport.model import ConfigurationSource

from .sources import source, state

OFFICIAL = Config((5, 5, 8, 13), 3, 16, 2, 2, 8, wavelet="db2", boundary_mode="symmetric", seq_len=24)
QK_NORM = replace(OFFICIAL, qk_norm=True, num_layers=3)
HEADS = {"num_heads": 2}


def refused(given: ConfigurationSource, **settings: Any) -> MisfitError:
    with pytest.raises(MisfitError) as caught:
        resolve(given, {**HEADS, **settings}, {})
    assert str(caught.value).startswith("model.ckpt: ")
    return caught.value


TOLD = {
    "level_lengths": (5, 5, 8, 12), "features": 4, "embed_dim": 32, "num_layers": 3, "time_embed_dim": 16,
    "qk_norm": True, "cross_level_attention": False, "scale_embedding": True, "noise_schedule": "linear",
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_a_value_that_contradicts_the_file_is_refused(name: str) -> None:
    truth = getattr(OFFICIAL, name)
    for given, origin in (({}, {name: TOLD[name]}), ({name: TOLD[name]}, {})):
        with pytest.raises(MisfitError) as caught:
            resolve(source(state(OFFICIAL)), given, origin)
        place = "config" if given else "flag"
        assert f"{name} is {TOLD[name]} in the {place} but {truth} in the file" in str(caught.value)


def test_all_contradictions_are_listed() -> None:
    error = refused(source(state(OFFICIAL)), **TOLD)
    assert [detail.split()[0] for detail in error.details] == list(TOLD)


def test_a_head_count_in_conflict_with_the_query_norm_is_refused() -> None:
    assert "num_heads is 4 in the config but 2 in the file" in str(refused(source(state(QK_NORM)), num_heads=4))


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"num_heads": 3}, "num_heads 3 does not divide embed_dim 16"),
        ({"dropout": 1.0}, "dropout 1.0"),
        ({"seq_len": 25}, "gives groups [5, 5, 8, 14], the file has [5, 5, 8, 13]"),
        ({"seq_len": -24}, "the file has [5, 5, 8, 13]"),
        ({"seq_len": 24, "wavelet": "db4"}, "seq_len 24 with db4 and 3 levels gives"),
        ({"seq_len": 24, "boundary_mode": "periodization"}, "gives groups [3, 3, 6, 12]"),
        ({"wavelet": "morl"}, "'morl' is not a discrete wavelet"),
        # No length of series has 5, 5, 8, 13 coefficients in these.
        ({"wavelet": "db8"}, "db8"),
        ({"boundary_mode": "periodization", "wavelet": "db2"}, "db2"),
        # The file has three levels.
        ({"levels": 5}, "levels"),
        ({"boundary_mode": "symetric"}, "boundary_mode"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused(settings: dict[str, Any], fragment: str) -> None:
    assert fragment in str(refused(source(state(OFFICIAL)), **settings))


def test_a_schedule_of_another_formula_is_refused_unless_it_is_called_custom() -> None:
    tensors = {**state(OFFICIAL), "beta_all": state(OFFICIAL)["beta_all"] * 1.01}
    assert "noise schedule is not one of" in str(refused(source(tensors)))
    for settings in ({"noise_schedule": "custom"}, {**HEADS, "noise_schedule": "custom"}):
        resolved = resolve(source(tensors), {**HEADS, **settings}, {})
        assert resolved.config.noise_schedule == "custom"
        assert resolved.origins["noise_schedule"] == "config"
    assert "'quadratic' is not one of" in str(refused(source(tensors), noise_schedule="quadratic"))
    kept = resolve(source(state(OFFICIAL)), HEADS, {"noise_schedule": "custom"})
    assert (kept.config.noise_schedule, kept.origins["noise_schedule"]) == ("custom", "flag")


def test_a_ruined_float32_schedule_is_not_taken_for_a_half_precision_one() -> None:
    rounded = source(state(OFFICIAL), convert=lambda tensor: tensor.bfloat16().float())
    assert "noise schedule is not one of" in str(refused(rounded))
    wrong = source(state(OFFICIAL), convert=lambda tensor: (tensor * 1.05).bfloat16())
    assert "noise schedule is not one of" in str(refused(wrong))


def misfits(given: ConfigurationSource) -> tuple[str, ...]:
    """What the plan or, before it, the configuration finds wrong with a checkpoint."""
    table = choose_table(given.shapes, given.path)
    try:
        config = resolve(given, HEADS, {}).config
    except MisfitError as error:
        return error.details or (str(error),)
    constants = {name: constant.shape for name, constant in FAMILY.constants(config).items()}
    plan = make_plan(table, given.shapes, FAMILY.variables(config), constants, FAMILY.features(config))
    return plan.faults if isinstance(plan, Misfits) else ()


@pytest.mark.parametrize("qk_norm", [False, True])
def test_a_missing_tensor_is_named(qk_norm: bool) -> None:
    """Whichever it is; sizes that it told are told by others."""
    tensors = state(replace(OFFICIAL, level_lengths=(9, 9), num_layers=1, qk_norm=qk_norm))
    assert misfits(source(tensors)) == ()
    for name in tensors:
        faults = misfits(source({other: tensor for other, tensor in tensors.items() if other != name}))
        assert len(faults) == 1
        assert f"missing {name}" in faults[0]


@pytest.mark.parametrize("config", [OFFICIAL, QK_NORM], ids=["official", "qk_norm"])
def test_one_tensor_of_a_wrong_shape_does_not_change_the_configuration(config: Config) -> None:
    """The position tables apart: their lengths are the groups', told by nothing else."""
    tensors = state(config)
    wavelet = {"wavelet": "db2", "seq_len": 24}
    for name, tensor in tensors.items():
        if name.endswith(".pe") or name == "beta_all" or tensor.ndim == 0:
            continue
        shape = tuple(tensor.shape)
        for wrong in ((shape[0] + 4, *shape[1:]), (2, *shape[::-1])):
            resolved = resolve(source(tensors, {name: wrong}), {**HEADS, **wavelet}, {})
            assert resolved.config == config, name


@pytest.mark.parametrize(
    "extra",
    [
        "surprise",
        "level_transformers.1.blocks.99.mlp.0.bias",
        "level_transformers.9.output_proj.bias",
        "level_transformers.100000.x",
        f"level_transformers.{'9' * 5000}.x",
        f"level_transformers.1.blocks.{'9' * 5000}.x",
        "level_transformers.1\u0661.x",
        "level_transformers.1.blocks.1\u0661.x",
    ],
    ids=lambda name: ascii(name)[:48],
)
def test_one_tensor_too_many_is_named_and_changes_nothing(extra: str) -> None:
    assert misfits(source(state(OFFICIAL), {extra: (3,)})) == (f"unexpected {extra} (3,)",)


@pytest.mark.parametrize(
    ("gone", "fragment"),
    [
        ("level_transformers.", "the level transformers are missing"),
        ("level_transformers.1.pos_encoding.pe", "missing level_transformers.1.pos_encoding.pe"),
        ("time_embedding.", "time_embed_dim cannot be determined"),
    ],
)
def test_a_checkpoint_too_incomplete_to_be_understood_is_refused(gone: str, fragment: str) -> None:
    tensors: dict[str, torch.Tensor] = {n: t for n, t in state(OFFICIAL).items() if not n.startswith(gone)}
    assert fragment in str(refused(source(tensors)))
