"""Ports of the libraries' models: equal to the library's class in float64, written as Keras writes, as published."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import diffusers
import h5py
import jax
import keras
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

import wdport
from tests.families.quick import jitted
from tests.make import verified
from tests.uses.library_folders import Fields
from tests.uses.masked_lm import make as masked_lm
from tests.uses.unet2d import make as unet2d
from tests.uses.wan_vae import make as wan_vae
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.measure import float32_share, relative_l2
from wdport.recording.float64 import lifted
from wdport.recording.runs import run
from wdport.uses.library_config import LibraryFamily
from wdport.uses.masked_lm.family import FAMILY as MASKED_LM
from wdport.uses.unet2d.family import FAMILY as UNET2D
from wdport.uses.wan_vae.config import Config as WanVaeConfig
from wdport.uses.wan_vae.family import FAMILY as WAN_VAE


@dataclass(frozen=True)
class Ported:
    """A family, the maker of its small models, and the class that is the reference, or that it is derived from."""

    family: LibraryFamily[Any]
    make: ModuleType
    library_class: type[torch.nn.Module]
    small: Fields
    outputs: Callable[[Any, tuple[Any, ...]], Any] = lambda model, inputs: model(inputs)

    def fields_of(self, variant: str) -> Fields:
        """All fields of a variant."""
        return {**self.small, **self.make.VARIANTS[variant]}

    def config_of(self, fields: Fields) -> Any:
        """The configuration of a ``config.json`` with these fields."""
        return self.family.load_config(self.family.read_settings(fields, "config.json"))


def in_parts(model: Any, inputs: tuple[Any, ...]) -> Any:
    """The embedding first, and of it the prediction, as a sampler calls a U-Net."""
    state, *conditions = inputs
    return model.denoise(state, model.embed(*conditions))


PORTED = {
    "masked_lm": Ported(MASKED_LM, masked_lm, transformers.EuroBertForMaskedLM, masked_lm.SMALL),
    "unet2d": Ported(UNET2D, unet2d, diffusers.UNet2DModel, unet2d.SMALL, in_parts),
    "wan_vae": Ported(WAN_VAE, wan_vae, diffusers.AutoencoderKLWan, {}, lambda model, inputs: model(*inputs)),
}
EQUAL = [
    *(("masked_lm", variant) for variant in masked_lm.VARIANTS), *(("unet2d", variant) for variant in unet2d.VARIANTS),
    ("wan_vae", "Wan 2.1"), pytest.param("wan_vae", "Wan 2.2", marks=pytest.mark.full),
]  # fmt: skip


@pytest.mark.parametrize(("name", "variant"), EQUAL)
def test_equals_the_library_in_float64(name: str, variant: str, tmp_path: Path) -> None:
    ported = PORTED[name]
    fields = ported.fields_of(variant)
    config, tensors = ported.config_of(fields), ported.make.tensors_of(fields)
    file = wdport.convert(ported.make.save(tmp_path / "m", fields, tensors), tmp_path / "out.safetensors").output
    signature = ported.family.signature(config)
    inputs = signature.make(0, 2, 1.0)
    with jax.enable_x64(True):
        program = jitted(partial(ported.outputs, wdport.load_model(file, "float64")))
        ours = [np.asarray(output) for output in jax.tree.leaves(program(signature.in_port(inputs)))]
    module = ported.family.build_reference(config, tensors, "float64")
    assert type(module).__mro__[name == "wan_vae"] is ported.library_class
    with lifted():
        theirs = [np.moveaxis(output, 1, -1) if output.ndim > 3 else output for output in run(module, inputs)]
    assert len(ours) == (3 if name == "wan_vae" else 1)
    for one, other in zip(ours, theirs, strict=True):
        assert np.std(other) > 0
        assert relative_l2(one, other) <= LOGIC
        assert float32_share(one) < 0.01


@pytest.mark.parametrize(
    ("name", "variant", "ending"),
    [("masked_lm", "tied, all biases", ".keras"), ("masked_lm", "as published", ".keras"),
     ("unet2d", "as published", ".keras"), ("unet2d", "as published", ".weights.h5"), ("wan_vae", "Wan 2.2", ".keras")],
)  # fmt: skip
def test_files_are_as_keras_writes_them(name: str, variant: str, ending: str, tmp_path: Path) -> None:
    ported = PORTED[name]
    folder = ported.make.save(tmp_path / "m", ported.fields_of(variant))
    file = wdport.convert(folder, tmp_path / f"ours{ending}").output
    model = wdport.load_model(file)
    if ending == ".keras":
        model.save(tmp_path / "theirs.keras")
        others = keras.saving.load_model(file), wdport.load_model(tmp_path / "theirs.keras")
    else:
        others = (ported.family.build(model.config),)
        others[0].load_weights(file)
        model.save_weights(tmp_path / "theirs.weights.h5")
        with h5py.File(file) as ours, h5py.File(tmp_path / "theirs.weights.h5") as theirs:
            assert datasets(theirs) <= datasets(ours)
    for other in others:
        assert other.config == model.config
        assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), other.get_weights(), strict=True))


def datasets(file: h5py.File) -> set[str]:
    found: set[str] = set()
    file.visititems(lambda name, each: found.add(name) if isinstance(each, h5py.Dataset) else None)
    return found


@pytest.mark.parametrize(("name", "safe"), [("unet2d", True), ("unet2d", False), ("wan_vae", True)])
def test_what_the_library_saves(name: str, safe: bool, tmp_path: Path) -> None:
    """Shards and an index; with ``safe`` off it is a pickle, in one file."""
    ported = PORTED[name]
    fields = ported.fields_of("as published" if name == "unet2d" else "Wan 2.2")
    tensors = ported.make.tensors_of(fields)
    model: Any = ported.library_class(**fields)
    model.load_state_dict({key: torch.from_numpy(array) for key, array in tensors.items()})
    model.save_pretrained(tmp_path / "m", safe_serialization=safe, **({"max_shard_size": "20KB"} if safe else {}))
    files = len(list((tmp_path / "m").iterdir()))
    assert files > 3 if safe else files == 2
    one = wdport.convert(tmp_path / "m", tmp_path / "one.safetensors")
    two = wdport.convert(ported.make.save(tmp_path / "plain", fields, tensors), tmp_path / "two.safetensors")
    first, second = load_file(one.output), load_file(two.output)
    assert all(np.array_equal(first[key], second[key]) for key in first)


WAN_22 = WanVaeConfig(base_dim=160, decoder_base_dim=256, z_dim=48, is_residual=True, in_channels=12, out_channels=12,
                      patch_size=2, scale_factor_spatial=16)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "config", "count"),
    [("masked_lm", MASKED_LM.configuration(), 310_266_624), ("unet2d", UNET2D.configuration(), 274_056_163),
     ("wan_vae", WAN_VAE.configuration(), 126_892_531), ("wan_vae", WAN_22, 704_688_668)],
)  # fmt: skip
def test_published_models_have_as_many_parameters(name: str, config: Any, count: int) -> None:
    """Which take no memory."""
    assert sum(math.prod(shape) for shape in PORTED[name].family.variables(config).values()) == count


def test_latents_of_the_published_autoencoders() -> None:
    assert [(each.frames, each.pixels) for each in (WanVaeConfig(), WAN_22)] == [(4, 8), (4, 16)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in PORTED for seed in range(30 if name == "unet2d" else 20)]
)
def test_random_configurations_verify(name: str, seed: int, tmp_path: Path) -> None:
    make = PORTED[name].make
    fields = make.random_fields(seed)
    verified(make.save(tmp_path / "m", fields, make.tensors_of(fields, seed)))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "variant", "gates"),
    [("masked_lm", "tied, all biases", "0 A B B' C M I"), ("masked_lm", "as published", "0 A B B' C M I"),
     ("unet2d", "attention at every size", "0 A B B' C M E E' H")],
)  # fmt: skip
def test_the_full_battery(name: str, variant: str, gates: str, tmp_path: Path) -> None:
    ported = PORTED[name]
    folder = ported.make.save(tmp_path / "m", ported.fields_of(variant))
    verdict = wdport.verify(folder, wdport.convert(folder, tmp_path / "m.keras").output, full=True)
    assert [gate.name for gate in verdict.gates] == gates.split()
    assert verdict, [str(finding) for gate in verdict.gates for finding in gate.findings]
