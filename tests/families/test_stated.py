"""Where a library's class is the reference, the library reads `config.json` itself: a field that wdport reads wrongly
does not reach both sides."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import wdport
from tests.families import masked_lm, unet2d
from tests.families.masked_lm import make as masked_lm_make
from tests.families.unet2d import make as unet2d_make
from wdport.families.masked_lm import resolve as masked_lm_resolve
from wdport.families.unet2d import resolve as unet2d_resolve
from wdport.model import Document

pytest.importorskip("transformers")
pytest.importorskip("diffusers")

CASES = {
    masked_lm.__name__: (masked_lm_make, masked_lm_resolve, "one head", {"hidden_act": "gelu"}, "mlp.act"),
    f"{masked_lm.__name__}, rope": (masked_lm_make, masked_lm_resolve, "old spelling, bias of the head",
                                    {"rope_theta": 400.0}, "rotary"),
    unet2d.__name__: (unet2d_make, unet2d_resolve, "as published", {"act_fn": "mish"}, "nonlinearity"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_field_that_is_read_wrongly_is_found(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, resolve, variant, wrong, place = CASES[case]
    folder = make.save(tmp_path / "model", make.fields_of(variant))
    assert wdport.verify(folder, wdport.convert(folder, tmp_path / "right.keras").output)
    _misread(monkeypatch, resolve, wrong)
    verdict = wdport.verify(folder, wdport.convert(folder, tmp_path / "wrong.keras").output)
    assert not verdict
    assert place in verdict.faults[0].reference


def test_values_of_the_user_precede_the_configuration(tmp_path: Path) -> None:
    fields = {**masked_lm_make.fields_of("as published"), "max_position_embeddings": 64}
    folder = masked_lm_make.save(tmp_path / "model", fields)
    file = wdport.convert(folder, tmp_path / "other.keras", values={"rope_theta": "77", "hidden_act": "relu"}).output
    assert wdport.verify(folder, file, values={"rope_theta": "77", "hidden_act": "relu"})


def _misread(monkeypatch: pytest.MonkeyPatch, resolve: ModuleType, wrong: Document) -> None:
    read = resolve._fields
    monkeypatch.setattr(resolve, "_fields", lambda document, where: {**read(document, where), **wrong})
