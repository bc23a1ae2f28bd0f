"""Where a library's class is the reference, the library reads `config.json` itself: a field that wdport reads wrongly
does not reach both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wdport
from tests.families import masked_lm, unet2d
from tests.families.masked_lm import make as masked_lm_make
from tests.families.quick import network_verdict
from tests.families.unet2d import make as unet2d_make
from tests.families.wan_vae import make as wan_vae_make
from wdport.diffusion.scheduler import Scheduler
from wdport.families.library_config import LibraryFamily
from wdport.families.unet2d.config import Config as UNet2DConfig
from wdport.families.unet2d.family import misread_scheduler
from wdport.model import ConfigurationSource, Document, Resolved, Stated

pytest.importorskip("transformers")
pytest.importorskip("diffusers")

CASES = {
    masked_lm.__name__: (masked_lm_make, "one head", {"hidden_act": "gelu"}, "mlp.act"),
    f"{masked_lm.__name__}, rope": (masked_lm_make, "old spelling, bias of the head",
                                    {"rope_theta": 400.0}, "rotary"),
    unet2d.__name__: (unet2d_make, "as published", {"act_fn": "mish"}, "nonlinearity"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_field_that_is_read_wrongly_is_found(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, variant, wrong, place = CASES[case]
    folder = make.save(tmp_path / "model", make.fields_of(variant))
    _misread(monkeypatch, wrong)
    verdict = network_verdict(folder, wdport.convert(folder, tmp_path / "wrong.keras").output)
    assert not verdict
    assert place in verdict.faults[0].reference


SCHEDULER = {"_class_name": "DDIMScheduler", "num_train_timesteps": 100, "clip_sample_range": 2.0,
             "prediction_type": "v_prediction", "timestep_spacing": "trailing"}  # fmt: skip
MISREAD: dict[str, dict[str, Any]] = {"clipping": {"clip": 1.0}, "prediction_type": {"prediction_type": "epsilon"},
           "noise schedule": {"beta_end": 0.03}, "spacing of steps": {"timestep_spacing": "leading"}}  # fmt: skip


@pytest.mark.parametrize("name", ["", *MISREAD])
def test_a_scheduler_that_is_read_wrongly_is_found(name: str) -> None:
    scheduler = replace(Scheduler.from_document(SCHEDULER), **MISREAD.get(name, {}))
    config = replace(UNet2DConfig.from_dict(unet2d_make.fields_of("as published")), scheduler=scheduler)
    wrong = f"the {name} of the samplers is not that of DDIMScheduler as diffusers reads scheduler_config.json"
    assert misread_scheduler(config, Stated({}, {}, lambda _: SCHEDULER)) == ([wrong] if name else [])
    assert misread_scheduler(config, Stated({}, {"scheduler": scheduler}, lambda _: SCHEDULER)) == []


def test_a_field_that_the_network_does_not_use_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = wan_vae_make.save(tmp_path / "model", {**wan_vae_make.OLD, "temperal_downsample": [False]})
    _misread(monkeypatch, {"latents_mean": [0.1, -0.3]})
    verdict = network_verdict(folder, wdport.convert(folder, tmp_path / "wrong.keras").output)
    wrong = "latents_mean is [0.1, -0.2] as diffusers reads config.json, and [0.1, -0.3] here"
    assert wrong in [str(each) for each in verdict.gates[0].findings]
    assert not verdict


def test_values_of_the_user_precede_the_configuration(tmp_path: Path) -> None:
    fields = {**masked_lm_make.fields_of("as published"), "max_position_embeddings": 64}
    folder = masked_lm_make.save(tmp_path / "model", fields)
    values = {"rope_theta": "77", "hidden_act": "relu"}
    file = wdport.convert(folder, tmp_path / "other.keras", values=values).output
    assert network_verdict(folder, file, values=tuple(values.items()))


def _misread(monkeypatch: pytest.MonkeyPatch, wrong: Document) -> None:
    resolve = LibraryFamily.resolve_values

    def resolved(family: LibraryFamily[Any], source: ConfigurationSource, values: Mapping[str, Document]) -> Resolved:
        return resolve(family, source, {**values, "config.json": {**values["config.json"], **wrong}})

    monkeypatch.setattr(LibraryFamily, "resolve_values", resolved)
