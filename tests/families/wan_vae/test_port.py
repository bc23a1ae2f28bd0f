"""The Keras port and the reference against the library's model, its files, its gate of chunks, and configurations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import diffusers
import jax
import keras
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import wdport
from parity_tests.faults import wan_vae
from parity_tests.faults.wan_vae import chunks
from parity_tests.faults.wan_vae.chunks import FAULTS, run_chunk_faults
from tests.families.quick import jitted
from tests.families.wan_vae.make import NEW, OLD, VARIANTS, Fields, random_fields, save, tensors_of
from tests.make import verified
from wdport.cli.main import main
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.measure import float32_share, relative_l2
from wdport.conversion.prepare import Settings, prepare
from wdport.errors import MisfitError
from wdport.families.wan_vae import reference
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.family import FAMILY, signature
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


@pytest.mark.parametrize("name", ["Wan 2.1", "Wan 2.2"])
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


def test_the_librarys_own_forward_gives_the_same() -> None:
    """Our forward, with what the library keeps of past frames hidden from the recorder, computes what it computes."""
    fields = VARIANTS["Wan 2.1, frames halved twice"]
    config, tensors = Config.from_dict(fields), tensors_of(fields)
    (video,) = signature(config).make(0, 2, 1.0)
    wrapped = reference.build_reference(config, tensors, "float32")
    plain = diffusers.AutoencoderKLWan(**fields)
    plain.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    with torch.no_grad():
        right = plain.eval()(torch.from_numpy(video).float()).sample.numpy()
    assert np.array_equal(run(wrapped, (video.astype(np.float32),))[2], right)


def test_a_truncating_cast_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a correct codec passes."""
    (gate,) = FAMILY.gates(Config.from_dict(OLD))
    assert gate.passed
    assert (gate.name, gate.compared) == ("G", 11)
    monkeypatch.setattr(chunks, "FAULTS", FAULTS[:1])
    (kill,) = run_chunk_faults({"Wan 2.1": Config.from_dict(OLD)})
    assert (kill.mutant, kill.gate, kill.sites, kill.right) == ("bytes: truncating cast", "G", ("bytes",), True)


@pytest.mark.full
@pytest.mark.parametrize("name", VARIANTS)
def test_every_kind_passes(name: str) -> None:
    (gate,) = FAMILY.gates(Config.from_dict(VARIANTS[name]))
    assert gate.passed, [str(finding) for finding in gate.findings]


@pytest.mark.full
def test_every_fault_is_found_at_its_place() -> None:
    (group,) = wan_vae.FAULTS.around({})
    kills = list(group.kills)
    assert len(kills) == 2 * len(FAULTS) == 24
    assert [f"{kill.example}: {kill.mutant}: {kill.sites}" for kill in kills if not kill.right] == []


def test_what_the_library_saves(tmp_path: Path) -> None:
    """Shards and an index."""
    diffusers = pytest.importorskip("diffusers", exc_type=ImportError)
    import torch

    tensors = tensors_of(NEW)
    model = diffusers.AutoencoderKLWan(**NEW)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    model.save_pretrained(tmp_path / "m", max_shard_size="20KB")
    assert len(list((tmp_path / "m").iterdir())) > 3
    one = wdport.convert(tmp_path / "m", tmp_path / "one.safetensors")
    two = wdport.convert(save(tmp_path / "plain", NEW, tensors), tmp_path / "two.safetensors")
    first, second = load_file(one.output), load_file(two.output)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_inspect_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(save(tmp_path / "m", NEW))]) == 0
    assert "wan_vae, diffusers layout" in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.parametrize("name", VARIANTS)
def test_verifies_without_a_flag(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "m", VARIANTS[name])
    assert main(["convert", str(folder)]) == 0
    assert main(["verify", str(folder), str(tmp_path / "m.keras")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "PASS" in said
    assert "AutoencoderKLWan of diffusers" in said


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_random_configurations_verify(seed: int, tmp_path: Path) -> None:
    fields = random_fields(seed)
    verified(save(tmp_path / "m", fields, tensors_of(fields, seed)))


REFUSED: dict[str, tuple[Fields, str]] = {
    "attention": ({"attn_scales": [0.5]}, "attn_scales is not empty: the library cannot run attention"),
    "eight frames": ({"dim_mult": [1, 1, 1, 1], "temperal_downsample": [True, True, True]},
                     "halves the frames 3 times; the library's encoder, which takes 4 at a time, cannot run more"),
    "too many steps": ({"temperal_downsample": [True, False]}, "has 2 values for 1 steps between levels of dim_mult"),
    "one level": ({"dim_mult": [1], "temperal_downsample": []}, "dim_mult has 1 values, from 2 to 16 are supported"),
    "patches": ({"patch_size": 2}, "in_channels 3 is not a multiple of the 4 pixels of a patch"),
    "deviation": ({"latents_std": [1.0, 0.0]}, "latents_std has a value that is not above zero"),
    "dropout": ({"dropout": 1.0}, "dropout 1.0 is not in [0, 1)"),
    "halved channels": ({"decoder_base_dim": 1, "dim_mult": [1, 1]}, "decoder_base_dim is 1, which the steps"),
    "averages": ({"is_residual": True, "dim_mult": [5, 5]}, "down block 0 cannot average 4 channels by 8 into 20"),
    "copies": ({"is_residual": True, "base_dim": 1, "dim_mult": [1, 3]},
               "cannot average 1 channels by 1 into 3"),
    "huge": ({"base_dim": 65536, "dim_mult": [65536, 65536]}, "of about"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name: str) -> None:
    fields, words = REFUSED[name]
    with pytest.raises(ValueError, match=r".") as error:
        FAMILY.load_config({**OLD, **fields})
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_command_line_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(save(tmp_path / "m", OLD, attn_scales=[1.0]))]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "attn_scales" in said
    assert main(["convert", str(save(tmp_path / "n", OLD, _class_name="AutoencoderKL"))]) == 4
    assert "_class_name is 'AutoencoderKL'" in capsys.readouterr().err


WRONG: dict[str, tuple[Fields, str]] = {
    "base_dim": ({"base_dim": 6}, "base_dim is 6, but 4 in the tensors"),
    "z_dim": ({"z_dim": 3}, "z_dim is 3, but 2 in the tensors"),
    "dim_mult": ({"dim_mult": [2, 2]}, "is [8, 8], but [4, 8] in the tensors"),
    "steps": ({"temperal_downsample": [False]}, "temperal_downsample is [false], but [true] in the tensors"),
    "blocks": ({"num_res_blocks": 2}, "num_res_blocks is 2, but 1 in the tensors"),
    "kind": ({"is_residual": True, "dim_mult": [2, 2]}, "is_residual is true, but false in the tensors"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_configuration_that_contradicts_the_tensors(name: str, tmp_path: Path) -> None:
    fields, words = WRONG[name]
    folder = save(tmp_path / "m", OLD, tensors_of(OLD), **fields)
    with pytest.raises(MisfitError, match="in the tensors") as error, prepare(folder, Settings()):
        pass
    assert words in str(error.value)


def test_what_is_read_and_noted(tmp_path: Path) -> None:
    folder = save(tmp_path / "m", {**NEW, "z_dim": 3}, dropout=0.1)
    with prepare(folder, Settings()) as prepared:
        assert prepared.config == Config.from_dict({**NEW, "z_dim": 3, "dropout": 0.1})
        assert "latents cannot be normalised" in " ".join(prepared.resolved.notes)
        assert prepared.resolved.origins["dropout"] == "config.json"
        assert prepared.resolved.origins["attn_scales"] == "default"


def test_published_models() -> None:
    """The configurations of Wan 2.1 and Wan 2.2, with as many parameters as the library's models have."""
    old = Config()
    new = Config(base_dim=160, decoder_base_dim=256, z_dim=48, is_residual=True, in_channels=12, out_channels=12,
                 patch_size=2, scale_factor_spatial=16)  # fmt: skip
    sizes = [sum(math.prod(shape) for shape in FAMILY.variables(each).values()) for each in (old, new)]
    assert sizes == [126_892_531, 704_688_668]
    assert [(each.frames, each.pixels) for each in (old, new)] == [(4, 8), (4, 16)]
