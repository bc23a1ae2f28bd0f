"""The reference is the library's class in true float64."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest

from tests.families.unet2d.make import VARIANTS, fields_of, tensors_of
from wdport.compare.measure import float32_share
from wdport.families.unet2d import reference
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.family import signature
from wdport.recorder import lifted, run


@pytest.mark.parametrize("name", VARIANTS)
def test_it_is_the_librarys_class_in_float64(name: str) -> None:
    config = Config.from_dict(fields_of(name))
    module = reference.build_reference(config, tensors_of(fields_of(name)), "float64")
    assert type(module) is diffusers.UNet2DModel
    with lifted():
        output = run(module, signature(config).make(0, 3, 1.0))[0]
    assert float32_share(output) < 0.01
    assert np.std(output) > 0
