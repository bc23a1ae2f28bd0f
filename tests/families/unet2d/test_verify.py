"""Folders of the library, converted and verified from the command line without any flag."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import wdport
from tests.families.quick import few_cases
from tests.families.unet2d.make import SMALL, Fields, fields_of, random_fields, randomise, save, tensors_of
from wdport.cli.main import main

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
    folder = save(tmp_path / "m", fields, tensors_of(fields, seed))
    verdict = wdport.verify(folder, wdport.convert(folder, tmp_path / "m.keras").output)
    assert verdict, [str(finding) for gate in verdict.gates for finding in gate.findings]


@pytest.mark.full
def test_the_full_battery(tmp_path: Path) -> None:
    fields = fields_of("attention at every size")
    folder = save(tmp_path / "m", fields)
    verdict = wdport.verify(folder, wdport.convert(folder, tmp_path / "m.keras").output, full=True)
    assert [gate.name for gate in verdict.gates] == ["0", "A", "B", "B'", "C", "E", "E'", "H"]
    assert verdict, [str(finding) for gate in verdict.gates for finding in gate.findings]
