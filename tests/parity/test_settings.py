"""Settings that differ are told even where a comparison is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wdport.base.errors import IncompleteError
from wdport.compare.alignment import Alignment
from wdport.compare.setting_values import Setting, SettingsReport

WIDE = Setting("strides", [2], [1], "differs", "strides 1 where the reference has 2", "conv", "conv")
SLOW = Setting("momentum", 0.9, 0.99, "training", "momentum 0.99 where the reference has 0.9", "bn", "bn")


@pytest.mark.parametrize(("found", "details"), [
    ((), ()),
    ((SLOW,), ()),
    ((WIDE, SLOW), ("head: cannot be compared", "conv -> conv: strides 1 where the reference has 2")),
])  # fmt: skip
def test_a_refusal_tells_what_differs(found: tuple[Setting, ...], details: tuple[str, ...]) -> None:
    alignment: Any = SimpleNamespace(settings=SettingsReport(1, 2, found))
    with pytest.raises(IncompleteError) as caught, Alignment.settings_in_errors(alignment):
        raise IncompleteError("head", "cannot be compared", "mend the port")
    assert caught.value.details == details
