"""Our PyTorch code against the library's own class, in true float64: equal names, equal outputs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.families.wan_vae.make import VARIANTS, Fields, random_fields, tensors_of
from wdport.compare.measure import float32_share, relative_l2
from wdport.families.diffusers_class import DiffusersClass
from wdport.families.wan_vae import reference
from wdport.families.wan_vae.battery import signature
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.family import FAMILY
from wdport.recorder import lifted, module_names, run

pytest.importorskip("diffusers", exc_type=ImportError)


def both(fields: Fields, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> float:
    config, tensors = Config.from_dict(fields), tensors_of(fields, seed)
    theirs = reference.build_reference(config, tensors, "float64")
    assert type(theirs).__name__ == "AutoencoderKLWan"
    assert type(theirs).__mro__[1].__module__.startswith("diffusers.")
    monkeypatch.setattr(DiffusersClass, "installed", lambda *_: None)
    ours = reference.build_reference(config, tensors, "float64")
    assert set(module_names(ours)) <= set(module_names(theirs))
    inputs = signature(config).make(seed, 2, 1.0)
    with lifted():
        pairs = list(zip(run(ours, inputs), run(theirs, inputs), strict=True))
    for made, right in pairs:
        assert made.shape == right.shape
        assert float32_share(right) < 0.01
        assert np.std(right) > 0
    return max(relative_l2(made, right) for made, right in pairs)


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert both(VARIANTS[name], monkeypatch) < 1e-13


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_random_configurations_equal_the_library(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert both(random_fields(seed), monkeypatch, seed) < 1e-13


def test_who_the_reference_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FAMILY.reference_of(Config()).startswith("AutoencoderKLWan of diffusers ")
    monkeypatch.setitem(__import__("sys").modules, "diffusers", None)
    assert "wdport's own" in FAMILY.reference_of(Config())


def test_the_librarys_own_forward_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our forward, with what the library keeps of past frames hidden from the recorder, computes what it computes."""
    import diffusers
    import torch

    fields = VARIANTS["Wan 2.1, frames halved twice"]
    config, tensors = Config.from_dict(fields), tensors_of(fields)
    (video,) = signature(config).make(0, 2, 1.0)
    wrapped = reference.build_reference(config, tensors, "float32")
    plain = diffusers.AutoencoderKLWan(**fields)
    plain.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    with torch.no_grad():
        right = plain.eval()(torch.from_numpy(video).float()).sample.numpy()
    assert np.array_equal(run(wrapped, (video.astype(np.float32),))[2], right)
