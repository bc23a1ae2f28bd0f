"""Families whose reference is a library's class: without the library, `verify` is refused in one line that names the
extra, and what needs no reference works."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers

import wdport
from tests.families.masked_lm import make as masked_lm
from tests.families.test_recorded import run_each_without, run_without
from tests.families.unet2d import make as unet2d
from tests.families.wan_vae import make as wan_vae
from wdport.cli.main import main
from wdport.errors import InputError, MachineError
from wdport.families.masked_lm import reference as masked_lm_reference
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.family import FAMILY
from wdport.libraries import released_class

WORDS = {**masked_lm.SMALL, "vocab_size": 12, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1}

CASES: dict[str, tuple[ModuleType, dict[str, Any], str, str]] = {
    "masked_lm": (masked_lm, WORDS, "transformers", "EuroBertForMaskedLM"),
    "unet2d": (unet2d, unet2d.SMALL, "diffusers", "UNet2DModel"),
    "wan_vae": (wan_vae, wan_vae.OLD, "diffusers", "AutoencoderKLWan"),
}


def test_without_the_library_verify_names_the_extra(tmp_path: Path) -> None:
    commands = []
    for name, (make, fields, _, _) in CASES.items():
        folder, file = str(make.save(tmp_path / name, fields)), str(tmp_path / f"{name}.keras")
        commands += [["convert", folder, "-o", file], ["verify", folder, file], ["selftest", "--family", name]]
    done = iter(run_each_without("transformers diffusers", *commands))
    for _, _, library, kind in CASES.values():
        refusal = (
            f"error: {library}: is not installed, and its {kind} is the reference; pip install 'wdport[{library}]'"
        )
        (code, _, said), verified, tried = next(done), next(done), next(done)
        assert (code, said) == (0, "")
        assert (verified[0], verified[2]) == (5, f"{refusal}\n")
        assert (tried[0], tried[2].splitlines()[-1]) == (5, refusal)


def build(checkpoint: str) -> torch.nn.Module:
    """The library's model of the folder with these weights, as its user loads it."""
    module = transformers.EuroBertForMaskedLM.from_pretrained(Path(checkpoint).parent, attn_implementation="eager")
    assert isinstance(module, torch.nn.Module)
    return module


def test_a_recording_replays_without_torch_and_the_library(tmp_path: Path) -> None:
    folder, file, recording = masked_lm.save(tmp_path / "m", WORDS), tmp_path / "m.keras", tmp_path / "m.npz"
    assert main(["convert", str(folder), "-o", str(file)]) == 0
    inputs = ["--input", "input_ids: b n=24, below 12", "--input", "attention_mask: b n=24, mask"]
    inputs += ["--leave-out", "model"]  # a module that the table does not name
    assert main(["record", f"{__name__}:build", str(folder), "-o", str(recording), *inputs]) == 0
    told = run_without("torch transformers diffusers", "verify", str(file), "--against", str(recording))
    assert told.returncode == 0, told.stderr
    assert "PASS" in told.stdout


def test_a_library_that_lacks_what_a_model_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import diffusers

    with pytest.raises(MachineError, match=r"^diffusers: 0.* has no UNet9DModel, and .*'wdport\[diffusers\]'"):
        released_class("diffusers", "UNet9DModel")

    class Older(torch.nn.Module):
        def __init__(self, sample_size: int) -> None: ...

    monkeypatch.setattr(diffusers, "UNet2DModel", Older)
    with pytest.raises(MachineError, match=r"UNet2DModel of 0.* has no field act_fn, and .*'wdport\[diffusers\]'"):
        FAMILY.library_of(Config(act_fn="mish"))


def test_what_the_reference_is_called() -> None:
    assert FAMILY.library_of(Config()).startswith("UNet2DModel of diffusers ")
    assert masked_lm_reference.library_of().startswith("EuroBertForMaskedLM of transformers ")


@pytest.mark.parametrize(("name", "field"), [("masked_lm", "num_hidden_layers"), ("unet2d", "layers_per_block")])
def test_a_converted_file_of_an_impossible_network(name: str, field: str, tmp_path: Path) -> None:
    """What Keras saved has no manifest; its configuration is bounded all the same, before anything is built."""
    make, fields, _, _ = CASES[name]
    file = wdport.convert(make.save(tmp_path / "m", fields), tmp_path / "out.keras").output
    hostile = tmp_path / "hostile.keras"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(hostile, "w") as new:
        document = json.loads(old.read("config.json"))
        document["config"]["config"][field] = 10**9
        new.writestr("config.json", json.dumps(document))
        for member in ("metadata.json", "model.weights.h5"):
            new.writestr(member, old.read(member))
    with pytest.raises(InputError, match=rf"hostile\.keras.*{field} 1000000000"):
        wdport.load_model(hostile)
