"""Settings of the pairs: none differs where the twin is right, nor where a harmless edit changed it."""

from __future__ import annotations

import pytest

from wdport.compare.setting_values import SettingsReport
from wdport.conversion.check import settings_report
from wdport.conversion.prepare import Settings
from wdport.errors import WdportError

from .corpus import PAIRS, Pair
from .edited import edited
from .seeded import HARMLESS

OWN = {"an activation as a layer of its own"}
"""Edits after which the truth, which says what is fused, is no truth."""

QUICK = ("resnet", "vit", "unet")


def told(pair: Pair, model: str) -> SettingsReport:
    try:
        return settings_report(pair.truth, Settings(model=model, reference=pair.reference("honest")))
    except (WdportError, ModuleNotFoundError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name, pair in PAIRS.items()
    if not pair.golden
])  # fmt: skip
def test_a_right_twin_differs_in_nothing(name: str) -> None:
    report = told(PAIRS[name], PAIRS[name].model)
    assert [(each.candidate, each.text) for each in report.of("differs")] == []
    assert report.unread == ()


@pytest.mark.full
@pytest.mark.parametrize("fault", [each for each in HARMLESS if each.name not in OWN], ids=lambda each: each.name)
def test_a_harmless_edit_differs_in_nothing(fault: object) -> None:
    pair = PAIRS[fault.pair]  # type: ignore[attr-defined]
    with edited(fault) as model:  # type: ignore[arg-type]
        assert told(pair, model).of("differs") == []
