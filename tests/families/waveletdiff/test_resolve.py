"""A configuration from a checkpoint's shapes: the one it was made with, and where every value is from."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from parity_tests.faults.waveletdiff import FAULTS
from parity_tests.faults.waveletdiff.network import scale_embedding_mutants, scale_mutants
from tests.make import TINY
from wdport.families.faults import Mutant
from wdport.families.waveletdiff.config import OMITTED, Config
from wdport.families.waveletdiff.resolve import ASSUMED, resolve
from wdport.fields import fields_of, marked
from wdport.parity.selftest.inject import inject
from wdport.parity.selftest.specimen import Specimen

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


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
def test_qk_norm_tells_the_head_count(heads: int) -> None:
    config = replace(OFFICIAL, qk_norm=True, num_heads=heads)
    resolved = resolve(source(state(config)), {}, {})
    assert resolved.config.num_heads == heads
    assert resolved.origins["num_heads"] == "shapes"


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
