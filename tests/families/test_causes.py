"""Faults that hide: each is named at its layer, with a cause that a trial or a setting proves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from tests.families.quick import few_cases
from tests.families.toys import tricky
from tests.families.toys.nets import randomised

TABLE = """format: 2
torch: tests.families.toys.tricky:build
keras: tests.families.toys.tricky:{}
inputs: ["x: b 5"]
layers:
  - {{torch: inputs, keras: inputs, kind: linear}}
  - {{torch: plain, keras: plain, kind: layer_norm}}
  - {{torch: hidden, keras: hidden, kind: linear, then: relu}}
  - {{torch: norm, keras: norm, kind: batch_norm}}
  - {{torch: head, keras: head, kind: linear}}
tensors:
  - {{torch: loss_scale, drop: only the training loss uses it}}
"""


def verified(folder: Path, twin: str, change: tuple[str, str] = ("", "")) -> wdport.Verdict:
    """The toy's variances are tiny; its checkpoint has a tensor more than its network."""
    state = randomised(tricky.build()).state_dict()
    state["norm.running_var"] *= 1e-3
    torch.save({**state, "loss_scale": torch.ones(1)}, folder / "ck.pt")
    assert change[0] in TABLE
    (folder / "my.yaml").write_text(TABLE.format(twin).replace(*change))
    output = wdport.convert(folder / "ck.pt", folder / "out.keras", mapping=folder / "my.yaml").output
    return wdport.verify(folder / "ck.pt", output, mapping=folder / "my.yaml")


def test_it_passes(tmp_path: Path) -> None:
    verdict = verified(tmp_path, "twin")
    assert verdict.exit_code == 0
    assert "plain" in {tap.reference for tap in verdict.taps}


FAULTS = {
    "a norm without weights": ("wrong_plain", "plain", "epsilon (eps) 0.001 where the reference has 1e-05"),
    "an epsilon that is 5e-8 off": (
        "wrong_norm",
        "norm",
        "epsilon (eps) 0.001 where the reference has 0.0010000000474974513",
    ),
    "an activation that is missing": (
        "no_activation",
        "hidden",
        "lacks the relu that the table states after the module",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_cause(tmp_path: Path, fault: str) -> None:
    twin, site, cause = FAULTS[fault]
    with few_cases():
        verdict = verified(tmp_path, twin)
    assert verdict.exit_code == 1
    assert [each.feeds or each.reference for each in verdict.faults] == [site]
    assert [told for texts in verdict.causes.values() for told in texts] == [cause]


def test_an_activation_that_the_table_does_not_state(tmp_path: Path) -> None:
    """The layer behind is off too: what the reference's module makes is handed on without the activation."""
    with few_cases():
        verdict = verified(tmp_path, "twin", (", then: relu", ""))
    assert [each.feeds or each.reference for each in verdict.faults] == ["hidden", "norm"]
    told = "has a relu that the reference's module does not have; if it follows the module, state `then: relu`"
    assert verdict.causes["hidden"] == (told,)
