"""The Keras port in float64 against the reference, for every variant; what it offers a sampler; its files."""

from __future__ import annotations

from pathlib import Path

import diffusers
import h5py
import jax
import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

import wdport
from tests.families.quick import few_cases, filled, jitted
from tests.families.unet2d.make import SMALL, VARIANTS, Fields, fields_of, random_fields, randomise, save, tensors_of
from tests.make import verified
from wdport.cli.main import main
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.measure import float32_share, relative_l2
from wdport.compare.probe import Probe
from wdport.families.ported import described_variables
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.family import FAMILY
from wdport.families.unet2d.port import UNet2D
from wdport.recorder import cast, lifted, run

Arrays = tuple[np.ndarray, ...]


def drawn(config: Config, seed: int = 0) -> tuple[Arrays, Arrays]:
    """Inputs as PyTorch takes them, and as the port does."""
    signature = FAMILY.signature(config)
    inputs = signature.make(seed, 3, 1.0)
    return inputs, signature.in_port(inputs)


def in_parts(model: UNet2D, values: Arrays) -> np.ndarray:
    """The embedding first, and of it the prediction."""
    return np.asarray(jitted(lambda x, *rest: model.denoise(x, model.embed(*rest)))(*values))


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_reference_in_float64(name: str, tmp_path: Path) -> None:
    fields = fields_of(name)
    config, tensors = Config.from_dict(fields), tensors_of(fields)
    file = wdport.convert(save(tmp_path / "model", fields, tensors), tmp_path / "out.safetensors").output
    inputs, ours = drawn(config)
    with jax.enable_x64(True):
        made = in_parts(wdport.load_model(file, "float64"), ours)
    module = FAMILY.build_reference(config, tensors, "float64")
    assert type(module) is diffusers.UNet2DModel
    with lifted():
        right = run(module, inputs)[0].transpose(0, 2, 3, 1)
    assert np.std(right) > 0
    assert relative_l2(made, right) <= LOGIC
    assert float32_share(made) < 0.01


def test_variables_of_a_large_model_take_no_memory_of_their_own() -> None:
    shapes = FAMILY.variables(Config())
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 274_056_163
    assert FAMILY.variables(Config()) == shapes
    assert described_variables.cache_info().hits > 0


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_files_are_as_keras_writes_them(ending: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "model", SMALL)
    file = wdport.convert(folder, tmp_path / f"ours{ending}").output
    model = wdport.load_model(file)
    if ending == ".keras":
        again = keras.saving.load_model(file)
        assert again.config == model.config
        model.save(tmp_path / "theirs.keras")
        assert wdport.load_model(tmp_path / "theirs.keras").config == model.config
    else:
        again = FAMILY.build(model.config)
        again.load_weights(file)
        model.save_weights(tmp_path / "theirs.weights.h5")
        with h5py.File(file) as ours, h5py.File(tmp_path / "theirs.weights.h5") as theirs:
            assert datasets(theirs) <= datasets(ours)
    pairs = zip(model.get_weights(), again.get_weights(), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def datasets(file: h5py.File) -> set[str]:
    found: set[str] = set()
    file.visititems(lambda name, each: found.add(name) if isinstance(each, h5py.Dataset) else None)
    return found


def test_bfloat16_keeps_times_apart() -> None:
    config = Config.from_dict(fields_of("one block, odd sizes, no middle"))
    single, half = filled(FAMILY, config), filled(FAMILY, config, "mixed_bfloat16")
    values = cast(drawn(config)[1], np.float32)
    one, other = (Probe(model, []).whole(values)[0] for model in (single, half))
    assert other.dtype == "bfloat16"
    assert 1e-4 < relative_l2(other.astype(np.float32), one) < 0.05
    near = np.asarray(half.time_proj(np.array([998, 999])), np.float32)
    assert relative_l2(near[0], near[1]) > 1e-2


def test_a_fourier_embedding_carries_its_time() -> None:
    """The prediction is divided by the time, so the embedding has it as its last column, in float32 at least."""
    config = Config.from_dict({**SMALL, "time_embedding_type": "fourier"})
    model = FAMILY.build(config, "mixed_bfloat16")
    embedding = jitted(model.embed)(np.array([1.2345, 999.5], np.float32))
    assert (embedding.shape, embedding.dtype) == ((2, config.time_width + 1), "float32")
    assert np.array_equal(np.asarray(embedding)[:, -1], np.array([1.2345, 999.5], np.float32))


TINY: Fields = {**SMALL, "sample_size": 4, "norm_num_groups": 2, "block_out_channels": (4,), "attention_head_dim": 2,
                "down_block_types": ("AttnDownBlock2D",), "up_block_types": ("AttnUpBlock2D",), "add_attention": False,
                "time_embedding_dim": 6}  # fmt: skip
OLD = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}


def old_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As files from before diffusers 0.16 have them."""
    for now, was in OLD.items():
        tensors = {name.replace(f".{now}.", f".{was}."): array for name, array in tensors.items()}
    return tensors


def test_old_names_verify_without_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "m", TINY, old_names(tensors_of(TINY)))
    assert main(["convert", str(folder)]) == 0
    assert "24 tensors have former names" in capsys.readouterr().out
    with few_cases():
        assert main(["verify", str(folder), str(tmp_path / "m.keras")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("PASS")
    assert "gates that unet2d does not have: constants (A'), optimiser (D)" in said
    assert main(["inspect", str(folder)]) == 0
    assert "unet2d, diffusers layout" in capsys.readouterr().out


def test_old_and_new_names_give_one_model(tmp_path: Path) -> None:
    tensors = tensors_of(SMALL)
    files = [wdport.convert(save(tmp_path / name, SMALL, each), tmp_path / f"{name}.safetensors").output
             for name, each in (("new", tensors), ("old", old_names(tensors)))]  # fmt: skip
    new, old = map(load_file, files)
    assert all(np.array_equal(new[name], old[name]) for name in new)


def test_both_names_at_once_are_refused(tmp_path: Path) -> None:
    tensors = tensors_of(SMALL)
    tensors["mid_block.attentions.0.query.bias"] = tensors["mid_block.attentions.0.to_q.bias"]
    with pytest.raises(wdport.WdportError, match=r"unexpected mid_block\.attentions\.0\.query\.bias"):
        wdport.convert(save(tmp_path / "m", SMALL, tensors))


@pytest.mark.parametrize("safe", [True, False])
def test_what_the_library_saves(safe: bool, tmp_path: Path) -> None:
    """Shards and an index; with ``safe`` off it is a pickle, in one file."""
    diffusers = pytest.importorskip("diffusers", exc_type=ImportError)
    model = randomise(diffusers.UNet2DModel(**SMALL), 1)
    size = {"max_shard_size": "20KB"} if safe else {}
    model.save_pretrained(tmp_path / "m", safe_serialization=safe, **size)
    assert len(list((tmp_path / "m").iterdir())) == (14 if safe else 2)
    one = wdport.convert(tmp_path / "m", tmp_path / "one.safetensors")
    own = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    two = wdport.convert(save(tmp_path / "plain", SMALL, own), tmp_path / "two.safetensors")
    first, second = load_file(one.output), load_file(two.output)
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(30))
def test_random_configurations_verify(seed: int, tmp_path: Path) -> None:
    fields = random_fields(seed)
    verified(save(tmp_path / "m", fields, tensors_of(fields, seed)))


@pytest.mark.full
def test_the_full_battery(tmp_path: Path) -> None:
    fields = fields_of("attention at every size")
    folder = save(tmp_path / "m", fields)
    verdict = wdport.verify(folder, wdport.convert(folder, tmp_path / "m.keras").output, full=True)
    assert [gate.name for gate in verdict.gates] == ["0", "A", "B", "B'", "C", "E", "E'", "H"]
    assert verdict, [str(finding) for gate in verdict.gates for finding in gate.findings]
