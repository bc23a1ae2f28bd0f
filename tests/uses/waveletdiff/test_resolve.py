"""A configuration from a checkpoint: the one it was made with, where values are from, and what contradicts it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from parity_tests.faults.waveletdiff import FAULTS
from parity_tests.faults.waveletdiff.network import scale_embedding_mutants, scale_mutants
from tests.make import TINY
from wdport.base.errors import MisfitError
from wdport.base.fields import fields_of, marked
from wdport.families.faults import Mutant
from wdport.mapping.plan import Misfits, make_plan
from wdport.mapping.table import choose_table
from wdport.models.interface import ConfigurationSource
from wdport.parity.selftest.inject import inject
from wdport.parity.selftest.specimen import Specimen
from wdport.uses.waveletdiff.config import OMITTED, Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.resolve import ASSUMED, resolve

from .sources import source, state

OFFICIAL = Config((5, 5, 8, 13), 3, 16, 2, 2, 8, wavelet="db2", boundary_mode="symmetric", seq_len=24)

CONFIGS = [
    OFFICIAL,
    replace(OFFICIAL, features=1, embed_dim=24, num_heads=3, num_layers=1, time_embed_dim=4),
    replace(OFFICIAL, noise_schedule="linear", cross_level_attention=False),
    replace(OFFICIAL, noise_schedule="cosine", num_layers=11),
    replace(OFFICIAL, qk_norm=True, num_heads=4, num_layers=1),
    replace(
        OFFICIAL, qk_norm=True, num_heads=1, scale_embedding=True, cross_level_attention=False, conditioning="none"
    ),
    Config((14, 14, 21, 35), 2, 8, 8, 1, 6, wavelet="db4", boundary_mode="symmetric", seq_len=64),
    Config((25, 25, 40, 69), 2, 8, 8, 1, 6, wavelet="db6", boundary_mode="symmetric", seq_len=128),
    Config((3, 3, 6, 12), 2, 8, 8, 1, 6, wavelet="db2", boundary_mode="periodization", seq_len=24),
]


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_the_configuration_comes_back(config: Config) -> None:
    """From the shapes, the head count of the official layout and the boundary mode."""
    given = {} if config.qk_norm else {"num_heads": config.num_heads}
    resolved = resolve(source(state(config)), given, {"boundary_mode": config.boundary_mode})
    assert resolved.config == config
    assert resolved.origins["num_heads"] == ("shapes" if config.qk_norm else "config")
    told = resolve(source(state(config)), asdict(config), {})  # itself, which contradicts nothing
    assert (told.config, told.assumed) == (config, {})


def test_every_value_says_where_it_is_from() -> None:
    given = {"prediction_target": "coefficient", "embed_dim": 16, "noise_schedule": "exponential"}
    resolved = resolve(source(state(OFFICIAL)), given, {"num_heads": 2, "dropout": 0.0})
    shapes = ("level_lengths", "features", "embed_dim", "num_layers", "time_embed_dim", "qk_norm",
              "cross_level_attention", "scale_embedding")  # fmt: skip
    assert {n: o for n, o in resolved.origins.items() if n not in ("noise_schedule", "embed_dim")} == {
        **{name: "shapes" for name in shapes if name != "embed_dim"},
        "prediction_target": "config",
        "num_heads": "flag",
        "dropout": "flag",
        "boundary_mode": "assumed",
        "wavelet": "assumed",
        "seq_len": "assumed",
    }
    unstated = {"norm_mean", "norm_std", *marked(Config, OMITTED)}
    assert resolved.origins.keys() == fields_of(Config).keys() - unstated
    assert resolved.assumed == {"boundary_mode": "symmetric", "wavelet": "db2", "seq_len": 24}


def test_what_nothing_tells_is_assumed_as_released() -> None:
    config = replace(OFFICIAL, num_heads=8)
    resolved = resolve(source(state(config)), {}, {})
    assert resolved.config == config
    assumed = {name: value for name, value in ASSUMED.items() if name != "noise_schedule"}
    assert resolved.assumed == {**assumed, "wavelet": "db2", "seq_len": 24}
    assert ASSUMED == {
        "num_heads": 8,
        "prediction_target": "noise",
        "noise_schedule": "exponential",
        "dropout": 0.1,
        "boundary_mode": "symmetric",
    }


def test_a_flag_goes_before_the_configuration() -> None:
    resolved = resolve(source(state(OFFICIAL)), {"num_heads": 4, "dropout": 0.5}, {"num_heads": 2})
    assert (resolved.config.num_heads, resolved.config.dropout) == (2, 0.5)
    assert (resolved.origins["num_heads"], resolved.origins["dropout"]) == ("flag", "config")


@pytest.mark.parametrize("name", ["exponential", "linear", "cosine"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_schedule_is_known_by_its_buffer_in_every_dtype(name: str, dtype: torch.dtype) -> None:
    tensors = state(replace(OFFICIAL, noise_schedule=name))
    resolved = resolve(source(tensors, convert=lambda tensor: tensor.to(dtype)), {"num_heads": 2}, {})
    assert resolved.config.noise_schedule == name
    assert resolved.origins["noise_schedule"] == "buffers"


@pytest.mark.parametrize(
    ("lengths", "given", "wavelet", "seq_len"),
    [
        ((5, 5, 8, 13), {}, "db2", 24),
        ((14, 14, 21, 35), {}, "db4", 64),
        ((25, 25, 40, 69), {}, "db6", 128),
        ((12, 12, 19), {"wavelet": "bior2.2"}, "bior2.2", 34),
        ((12, 12, 19), {"wavelet": "bior2.2", "seq_len": 33}, "bior2.2", 33),
        ((5, 5, 8, 13), {"seq_len": 23}, "db2", 23),
        ((3, 3, 6, 12), {"wavelet": "db8", "boundary_mode": "periodization"}, "db8", 24),
        ((1, 1, 7, 100), {}, None, None),
    ],
)
def test_the_series_is_found_by_its_group_lengths(
    lengths: tuple[int, ...], given: dict[str, object], wavelet: str | None, seq_len: int | None
) -> None:
    """The longest that fits, under the wavelet that is given or would be chosen for that length."""
    config = replace(OFFICIAL, level_lengths=lengths)
    resolved = resolve(source(state(config)), {"num_heads": 2}, given)
    assert (resolved.config.wavelet, resolved.config.seq_len) == (wavelet, seq_len)
    for name in ("wavelet", "seq_len"):
        assert resolved.origins[name] == ("flag" if name in given else "assumed")


SCALED = replace(TINY, scale_embedding=True)


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return Specimen("scaled", FAULTS, SCALED)


QUICK = ("scale not multiplied by 10", "condition ignored", "scale embedded as a time")
"""`make parity` makes them all, at every place."""


@pytest.mark.parametrize(
    "mutant",
    [mutant for mutant in (*scale_mutants(), *scale_embedding_mutants()) if mutant.name in QUICK],
    ids=lambda mutant: mutant.name,
)
def test_a_fault_of_the_scale_is_found_at_its_place(specimen: Specimen, mutant: Mutant) -> None:
    (place,) = mutant.places(specimen.layers())
    kill = inject(specimen, mutant, place)
    assert kill.right, kill


def test_the_correct_port_passes(specimen: Specimen) -> None:
    verdict = specimen.verify()
    assert verdict.exit_code == 0, [gate for gate in verdict.gates if not gate.passed]


@pytest.mark.parametrize(("bias", "conditioning"), [(0.0, "none"), (0.1, None)])
def test_biases_of_zero_were_never_trained(bias: float, conditioning: str | None) -> None:
    tensors = FAULTS.random_tensors(SCALED, 0)
    for at in (0, 2):
        tensors[f"scale_embedding.mlp.{at}.bias"] = np.full_like(tensors[f"scale_embedding.mlp.{at}.bias"], bias)
    found = resolve(source({name: torch.from_numpy(array) for name, array in tensors.items()}), {}, {"num_heads": 2})
    assert found.config.conditioning == conditioning
    assert sum("takes a condition: scale" in note for note in found.notes) == 1


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
        ({"seq_len": 25}, "gives groups [5, 5, 8, 14], the file has [5, 5, 8, 13]"),
        ({"seq_len": -24}, "the file has [5, 5, 8, 13]"),
        ({"seq_len": 24, "wavelet": "db4"}, "seq_len 24 with db4 and 3 levels gives"),
        ({"seq_len": 24, "boundary_mode": "periodization"}, "gives groups [3, 3, 6, 12]"),
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
