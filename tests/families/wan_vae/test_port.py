"""The Keras port in float64 against the reference, and its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import diffusers
import jax
import keras
import numpy as np
import pytest

import wdport
from tests.families.quick import jitted
from tests.families.wan_vae.make import NEW, VARIANTS, Fields, save, tensors_of
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.measure import float32_share, relative_l2
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.family import FAMILY
from wdport.recorder import lifted, run

Arrays = Sequence[np.ndarray]


def reference_outputs(fields: Fields, seed: int = 0) -> tuple[np.ndarray, Arrays]:
    """A video, and mean, log-variance and video of the reference in float64, all channels last."""
    config = Config.from_dict(fields)
    inputs = FAMILY.signature(config).make(seed, 2, 1.0)
    module = FAMILY.build_reference(config, tensors_of(fields, seed), "float64")
    assert type(module).__mro__[1] is diffusers.AutoencoderKLWan
    with lifted():
        made = run(module, inputs)
    (video,) = FAMILY.signature(config).in_port(inputs)
    return video, [each.transpose(0, 2, 3, 4, 1) for each in made]


@pytest.mark.parametrize("name", ["Wan 2.1, frames halved twice", "Wan 2.2"])
def test_equals_the_reference_in_float64(name: str, tmp_path: Path) -> None:
    fields = VARIANTS[name]
    file = wdport.convert(save(tmp_path / "m", fields), tmp_path / "out.safetensors").output
    video, right = reference_outputs(fields)
    with jax.enable_x64(True):
        model = wdport.load_model(file, "float64")
        made = jitted(lambda x: model(x))(video)
    assert len(made) == 3
    for ours, theirs in zip(map(np.asarray, made), right, strict=True):
        assert np.std(theirs) > 0
        assert relative_l2(ours, theirs) <= LOGIC
        assert float32_share(ours) < 0.01


def test_files_are_as_keras_writes_them(tmp_path: Path) -> None:
    file = wdport.convert(save(tmp_path / "m", NEW), tmp_path / "ours.keras").output
    again = keras.saving.load_model(file)
    again.save(tmp_path / "theirs.keras")
    other = wdport.load_model(tmp_path / "theirs.keras")
    assert again.config == other.config == Config.from_dict(NEW)
    pairs = zip(again.get_weights(), other.get_weights(), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
