"""The reference against the library's model, the gate of chunks, and what of a folder is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from parity_tests.faults import wan_vae
from parity_tests.faults.wan_vae.chunks import FAULTS
from tests.command import Cli
from tests.edits import edit
from tests.uses.wan_vae.make import NEW, OLD, VARIANTS, save, tensors_of
from wdport.conversion.prepare import Settings, prepare
from wdport.recording.runs import run
from wdport.uses.wan_vae import gates, reference
from wdport.uses.wan_vae.codec import Codec
from wdport.uses.wan_vae.config import Config
from wdport.uses.wan_vae.family import FAMILY, signature


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


def test_a_correct_codec_passes() -> None:
    (gate,) = FAMILY.gates(Config.from_dict(OLD))
    assert gate.passed
    assert (gate.name, gate.compared) == ("G", 14)


@pytest.mark.parametrize(
    ("way", "place", "old"),
    [("encode", Codec.encode, "-latents % chunk"), ("decode", Codec.decode, "-latents.shape[1] % chunk")],
)
def test_chunks_of_three_are_compared(
    way: str, place: Callable[..., Any], old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the frames that an incomplete first chunk lacks, 1 and 2 have the same number as those that are left over."""
    edit(monkeypatch, place, old, old[1:])
    for part in ("_by_methods", "_exported"):
        monkeypatch.setattr(gates, part, lambda _: {})
    (gate,) = FAMILY.gates(Config.from_dict(OLD))
    assert [each.subject for each in gate.findings] == [f"{way}, 3 at a time"]


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


def test_inspect_names_it(tmp_path: Path, cli: Cli) -> None:
    assert "wan_vae, diffusers layout" in cli("inspect", save(tmp_path / "m", NEW)).out


@pytest.mark.full
@pytest.mark.parametrize("name", VARIANTS)
def test_verifies_without_a_flag(name: str, tmp_path: Path, cli: Cli) -> None:
    folder = save(tmp_path / "m", VARIANTS[name])
    cli("convert", folder)
    said = " ".join(cli("verify", folder, tmp_path / "m.keras").out.split())
    assert "PASS" in said
    assert "AutoencoderKLWan of diffusers" in said


def test_what_is_read_and_noted(tmp_path: Path) -> None:
    folder = save(tmp_path / "m", {**NEW, "z_dim": 3}, dropout=0.1)
    with prepare(folder, Settings()) as prepared:
        assert prepared.config == Config.from_dict({**NEW, "z_dim": 3, "dropout": 0.1})
        assert "latents cannot be normalised" in " ".join(prepared.resolved.notes)
        assert prepared.resolved.origins["dropout"] == "config.json"
        assert prepared.resolved.origins["attn_scales"] == "default"
