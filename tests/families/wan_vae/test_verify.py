"""Folders of the library, converted and verified from the command line without any flag."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import wdport
from tests.families.wan_vae.make import NEW, VARIANTS, random_fields, save, tensors_of
from wdport.cli.main import main


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
    folder = save(tmp_path / "m", fields, tensors_of(fields, seed))
    verdict = wdport.verify(folder, wdport.convert(folder, tmp_path / "m.keras").output)
    assert verdict, [str(finding) for gate in verdict.gates for finding in gate.findings]
