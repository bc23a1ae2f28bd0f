"""The Keras port of UNet2DModel: what it keeps wide, former names of tensors, and what of a folder is read."""

from __future__ import annotations

import json
from pathlib import Path

import diffusers
import numpy as np
import pytest
from safetensors.numpy import load_file

import wdport
from tests.command import Cli
from tests.families.quick import filled, jitted
from tests.uses.unet2d.make import SMALL, Fields, fields_of, save, tensors_of
from wdport.base.errors import MisfitError
from wdport.compare.measure import relative_l2
from wdport.compare.probe import Probe
from wdport.families.ported import described_variables
from wdport.recording.calls import cast
from wdport.uses.unet2d.config import Config
from wdport.uses.unet2d.family import FAMILY
from wdport.uses.unet2d.reference import LIBRARY, build_reference


def test_variables_are_described_once() -> None:
    assert FAMILY.variables(Config()) == FAMILY.variables(Config())
    assert described_variables.cache_info().hits > 0


def test_bfloat16_keeps_times_apart() -> None:
    config = Config.from_dict(fields_of("one block, odd sizes, no middle"))
    single, half = filled(FAMILY, config), filled(FAMILY, config, "mixed_bfloat16")
    signature = FAMILY.signature(config)
    values = cast(signature.in_port(signature.make(0, 3, 1.0)), np.float32)
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


def test_the_reference_trains_what_the_library_trains() -> None:
    """The frequencies of a Fourier embedding are a frozen parameter."""
    config = Config.from_dict({**SMALL, "time_embedding_type": "fourier"})
    library = LIBRARY.build(config.to_dict())
    tensors = {name: tensor.numpy() for name, tensor in library.state_dict().items()}
    reference = build_reference(config, tensors, "float64")
    trained = {name: parameter.requires_grad for name, parameter in library.named_parameters()}
    assert {name: parameter.requires_grad for name, parameter in reference.named_parameters()} == trained
    assert [name for name, trains in trained.items() if not trains] == ["time_proj.weight"]


TINY: Fields = {**SMALL, "sample_size": 4, "norm_num_groups": 2, "block_out_channels": (4,), "attention_head_dim": 2,
                "down_block_types": ("AttnDownBlock2D",), "up_block_types": ("AttnUpBlock2D",), "add_attention": False,
                "time_embedding_dim": 6}  # fmt: skip
OLD = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}


def old_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As files from before diffusers 0.16 have them."""
    for now, was in OLD.items():
        tensors = {name.replace(f".{now}.", f".{was}."): array for name, array in tensors.items()}
    return tensors


@pytest.mark.usefixtures("one_case")
def test_old_names_verify_without_a_flag(tmp_path: Path, cli: Cli) -> None:
    folder = save(tmp_path / "m", TINY, old_names(tensors_of(TINY)))
    assert "24 tensors have former names" in cli("convert", folder).out
    said = " ".join(cli("verify", folder, tmp_path / "m.keras").out.split())
    assert said.startswith("PASS")
    assert "gates that unet2d does not have: constants (A'), optimizer (D)" in said
    assert "unet2d, diffusers layout" in cli("inspect", folder).out


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


def test_defaults_are_the_librarys() -> None:
    theirs = dict(diffusers.UNet2DModel(**SMALL).config)
    absent = {name: value for name, value in theirs.items() if name not in SMALL and name[0] != "_"}
    ours = Config.from_dict(SMALL).to_dict()
    assert {name: ours[name] for name in absent} == absent


def test_a_series_option_is_refused(tmp_path: Path) -> None:
    statistics = tmp_path / "stats.json"
    statistics.write_text(json.dumps({"mean": [0.0], "std": [1.0]}))
    with pytest.raises(MisfitError, match="no series to normalise"):
        wdport.convert(save(tmp_path / "m", SMALL), norm_stats=statistics)


def test_notes_say_what_is_not_used(tmp_path: Path) -> None:
    fields = {**SMALL, "class_embed_type": "timestep", "num_class_embeds": 3, "dropout": 0.5}
    notes = wdport.convert(save(tmp_path / "m", fields)).manifest["notes"]
    assert [note.split(" ")[0] for note in notes] == ["num_class_embeds", "dropout"]


@pytest.mark.parametrize(
    ("size", "size_of_comparison", "word"),
    [(8, (8, 8), None), ((8, 12), (8, 12), None), (None, (16, 16), "null"), (256, (16, 16), "convolutional"),
     (64, (64, 64), None), (9, (16, 16), "not a multiple of 2"), ((128, 8), (16, 8), "128 x 8")],
)  # fmt: skip
def test_sizes_of_the_comparison(size: object, size_of_comparison: tuple[int, int], word: str | None) -> None:
    signature = FAMILY.signature(Config.from_dict({**SMALL, "sample_size": size}))
    assert signature.inputs[0].shape(2) == (2, 3, *size_of_comparison)
    assert [word in note for note in signature.notes] == ([] if word is None else [True])
