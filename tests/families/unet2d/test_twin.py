"""Our PyTorch code against the library's own class, in true float64: equal names, equal outputs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.families.unet2d.make import VARIANTS, Fields, fields_of, random_fields, tensors_of
from wdport.compare.measure import float32_share, relative_l2
from wdport.families.diffusers_class import DiffusersClass
from wdport.families.unet2d import reference
from wdport.families.unet2d.battery import signature
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.family import FAMILY
from wdport.recorder import lifted, module_names, run

pytest.importorskip("diffusers", exc_type=ImportError)


def both(fields: Fields, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> None:
    config, tensors = Config.from_dict(fields), tensors_of(fields, seed)
    theirs = reference.build_reference(config, tensors, "float64")
    assert type(theirs).__name__ == "UNet2DModel"
    monkeypatch.setattr(DiffusersClass, "installed", lambda *_: None)
    ours = reference.build_reference(config, tensors, "float64")
    assert [name for name in module_names(ours) if name not in module_names(theirs)] == []
    inputs = signature(config).make(seed, 3, 1.0)
    with lifted():
        made, right = run(ours, inputs)[0], run(theirs, inputs)[0]
    assert made.shape == right.shape
    assert relative_l2(made, right) < 1e-12
    assert float32_share(right) < 0.01
    assert np.std(right) > 0


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both(fields_of(name), monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(30))
def test_random_configurations_equal_the_library(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    both(random_fields(seed), monkeypatch, seed)


def test_who_the_reference_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FAMILY.reference_of(Config()).startswith("UNet2DModel of diffusers ")
    monkeypatch.setitem(__import__("sys").modules, "diffusers", None)
    assert "wdport's own" in FAMILY.reference_of(Config())
