"""Fields of a library's configuration: read by the library itself, described, and refused in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wdport
from tests.families.quick import network_verdict
from tests.uses import masked_lm, unet2d
from tests.uses.diffusion.scheduler_file import read_steps
from tests.uses.masked_lm import make as masked_lm_make
from tests.uses.unet2d import make as unet2d_make
from tests.uses.wan_vae import make as wan_vae_make
from wdport.base.errors import UsageError
from wdport.base.fields import Effect, Field, fields_of
from wdport.families.ported import PortedFamily
from wdport.families.registry import find_family
from wdport.models.interface import ConfigurationSource, Document, Resolved, Stated
from wdport.parity.file_pair import both_files
from wdport.parity.verify_options import Pair
from wdport.uses.library_config import LibraryFamily
from wdport.uses.unet2d.config import Config as UNet2DConfig
from wdport.uses.unet2d.family import misread_scheduler

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
    scheduler = replace(read_steps(SCHEDULER), **MISREAD.get(name, {}))
    config = replace(UNet2DConfig.from_dict(unet2d_make.fields_of("as published")), scheduler=scheduler)
    wrong = f"the {name} of the samplers is not that of DDIMScheduler as diffusers reads scheduler_config.json"
    assert misread_scheduler(config, Stated({}, {}, lambda _: SCHEDULER)) == ([wrong] if name else [])
    assert misread_scheduler(config, Stated({}, {"scheduler": scheduler}, lambda _: SCHEDULER)) == []
    other = Stated({}, {}, lambda _: {"_class_name": "EDMEulerScheduler"})
    assert misread_scheduler(config, other) == [
        "the class of the samplers' scheduler is not that of scheduler_config.json"
    ]


def test_a_field_that_the_network_does_not_use_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = wan_vae_make.save(tmp_path / "model", {**wan_vae_make.OLD, "temperal_downsample": [False]})
    _misread(monkeypatch, {"latents_mean": [0.1, -0.3]})
    with both_files(Pair(wdport.convert(folder, tmp_path / "wrong.keras").output, folder), None) as files:
        prepared = files.prepared
        tensors = {name: prepared.checkpoint.read(name) for name in prepared.checkpoint.tensors}
        family: Any = prepared.family
        module = family.stated_reference(prepared.config, tensors, "float32", prepared.stated)
        wrong = "latents_mean is [0.1, -0.2] as diffusers reads config.json, and [0.1, -0.3] here"
        assert wrong in family.misread(prepared.config, prepared.stated, module)


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


WHOLE: dict[str, dict[str, Any]] = {
    "waveletdiff": {"level_lengths": [4, 4], "features": 1, "embed_dim": 8, "num_heads": 1, "num_layers": 1,
                    "time_embed_dim": 8},
    "ts2vec": {"input_dims": 1, "hidden_dims": 1, "output_dims": 1, "depth": 1, "kernel_size": 3},
    "unet2d": {"block_out_channels": [32], "down_block_types": ["DownBlock2D"], "up_block_types": ["UpBlock2D"],
               "num_train_timesteps": 1000},
    "masked_lm": {"vocab_size": 200_000, "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 1,
                  "pad_token_id": None},
    "wan_vae": {"dim_mult": [1, 2], "temperal_downsample": [True]},
}  # fmt: skip
"""A sound configuration of each family."""


def family(name: str) -> PortedFamily[Any]:
    found = find_family(name, name)
    assert isinstance(found, PortedFamily)
    return found


def declared(name: str) -> dict[str, Field]:
    return dict(fields_of(family(name).configuration))


FIELDS = [(name, field) for name in WHOLE for field in declared(name)]


def wrong(field: Field) -> Iterator[object]:
    """Values of another type, beyond each bound, and among no choices."""
    yield from ({"a": 1}, ["x", [1]], object())
    member = field.type.members[0]
    item = member.item or member
    values: list[object] = []
    if item.base is int:
        values = [True, 3.0, float("nan"), 10**99, -(10**99), 10**5000, "3", *([0.5] if member is item else [])]
    elif item.base is float:
        values = [True, "0.5", float("nan"), float("inf"), 10**400]
    elif item.base is bool:
        values = [1, 0.0, "true"]
    else:
        most = item._lengths[1]
        texts = ["no such choice", "9"] if item.choices else ["x" * (most + 1)] if most else []
        values = [3, True, 0.5, *texts]
    yield from ([value] for value in values) if member.item else values
    if not field.type.optional and None not in (item.choices.synonyms if item.choices else ()):
        yield from [] if item.choices and None in item.choices.values else [None]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_wrong_value_is_refused_in_one_line_that_names_the_field(name: str, field: str) -> None:
    for value in wrong(declared(name)[field]):
        with pytest.raises(ValueError, match=r".") as caught:
            family(name).load_config({**WHOLE[name], field: value})
        message = str(caught.value)
        assert field in message, (value, message)
        assert len(message) < 300
        assert "\n" not in message
        assert "Expected" not in message  # msgspec's words


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_has_a_sentence_an_effect_and_a_sound_default(name: str, field: str) -> None:
    found = declared(name)[field]
    assert found.description.endswith(".")
    effects = [each for each in found.type.markers if isinstance(each, Effect)]
    assert len(effects) == 1, "state by one Effect what the field changes: NETWORK, SAMPLES, UNUSED"
    wording = family(name).configuration.wording
    assert found.required or found.checked(found.default, wording) == found.default


@pytest.mark.parametrize("name", WHOLE)
def test_unknown_names(name: str) -> None:
    assert family(name).load_config(WHOLE[name]).to_dict()
    with pytest.raises(ValueError, match="colour"):
        family(name).load_config({**WHOLE[name], "colour": 1})
    near = "num_heads" if name == "waveletdiff" else next(field for field in declared(name) if "_" in field)
    with pytest.raises(UsageError, match=f"did you mean {near}"):
        family(name).parse_setting(near[:-1], "1")  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="colour") as caught:
        family(name).parse_setting("colour", "1")  # type: ignore[attr-defined]  # every family has it
    assert "\n" not in str(caught.value)
