"""The settings of whole models: no false alarm on pairs that are right, and every wrong one at its layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from torch import nn

from tests.families.test_custom import HEAD, TABLES
from wdport.compare.alignment import compare_settings
from wdport.compare.calls import Call
from wdport.compare.layouts import Layout
from wdport.compare.setting_values import SettingsReport
from wdport.compare.taps import Tap
from wdport.conversion.check import settings_report
from wdport.conversion.prepare import Settings
from wdport.errors import UsageError

layers: Any = keras.layers


def told(folder: Path, name: str, twin: str = "") -> SettingsReport:
    (folder / "t.yaml").write_text(HEAD.format(torch=name, keras=twin or name) + TABLES[name])
    return settings_report(folder / "t.yaml", Settings())


@pytest.mark.parametrize("name", TABLES)
def test_a_model_that_is_right_differs_in_nothing(tmp_path: Path, name: str) -> None:
    report = told(tmp_path, name)
    assert [each.text for each in report.of("differs")] == []
    assert report.compared > report.layers > 0


def test_what_differs_is_told_at_its_layer(tmp_path: Path) -> None:
    (found,) = told(tmp_path, "image", "image_epsilon").of("differs")
    assert (found.reference, found.candidate, found.name) == ("bn", "bn", "epsilon")
    assert (found.torch, found.keras) == (1e-5, 1e-3)


def test_findings_are_in_the_order_of_the_taps_and_once_for_each_layer() -> None:
    modules = {"a": nn.Linear(3, 4), "b": nn.GRU(3, 4, 2)}
    port = {
        "a": layers.Dense(4, activation="relu"),
        "b_0": layers.GRU(4),
        "b_1": layers.GRU(4, recurrent_activation="relu"),
    }
    taps = [
        Tap("b", "b_1", None, layout=Layout(outputs_only=True), kind="gru", stack=("b_0", "b_1")),
        Tap("a", "a", None, kind="linear"),
        Tap("a#2", "a#2", None, kind="linear"),
    ]
    report = compare_settings(taps, modules, port)
    assert [(each.reference, each.candidate, each.name) for each in report.found] == [
        ("b", "b_1", "recurrent_activation"),
        ("a", "a", "activation"),
    ]
    assert [each.text for each in report.at("b")] == ["recurrent_activation relu where the reference has sigmoid"]
    assert not compare_settings(taps, {}, port).told


class Odd(nn.Module):
    """Has a convolution's settings, and values of its own."""

    kernel_size, stride, dilation, padding = (3, 3), (1, 1), (1, 1), ((1, 1), (0, 2))

    @property
    def groups(self) -> int:
        raise RuntimeError("not yet")


def test_values_that_nobody_expects_are_not_compared() -> None:
    taps = [Tap("a", "a", None, kind="conv2d"), Tap("b", "b", None, kind="linear")]
    port = {"a": layers.Conv2D(4, 3, padding="same"), "b": layers.Dense(4)}
    modules = {"a": Odd(), "b": nn.Linear(3, 4)}
    report = compare_settings(taps, modules, port)
    assert (report.layers, report.unread, report.found) == (2, (), ())
    given = {"a": Call((np.zeros((2, 5, 5, 3)),), ())}
    report = compare_settings(taps, modules, port, None, given)
    assert (report.layers, report.unread, report.found) == (1, ("a",), ())


def test_a_table_that_names_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("format: 2\nlayers: [{torch: a, keras: a, kind: linear}]\n")
    for settings in (Settings(), Settings(model="tests.families.toys.twins:lstm")):
        with pytest.raises(UsageError, match="no model is named"):
            settings_report(tmp_path / "t.yaml", settings)
    with pytest.raises(UsageError, match="comes with"):
        settings_report("mappings/waveletdiff.yaml", Settings())
