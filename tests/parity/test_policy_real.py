"""Real verdicts under policies: judging again from the taps says what the gates said."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import h5py
import pytest

import wdport
from tests.families.quick import network_verdict
from tests.make import TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from wdport.compare.findings import Gate
from wdport.parity.policy import Policy, Waiver, apply_policy
from wdport.parity.policy.judge import NAME
from wdport.parity.policy.policy import BoundSetting
from wdport.parity.verdict import Verdict

TODAY = date(2026, 11, 21)
UNCHANGED = Policy((BoundSetting("gradient", 1e-12, 1e-10),))
"""A policy that no gate of these verdicts is judged by."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint, and its port with one output bias of one level off by a hundredth."""
    path = save(tmp_path_factory.mktemp("broken") / "small.ckpt", make_state(TWO_LEVELS))
    file = path.with_suffix(".weights.h5")
    shutil.copy(wdport.convert(path, file.with_name("right.weights.h5"), values=TWO_LEVELS_SETTINGS).output, file)
    with h5py.File(file, "a") as data:
        data["level_1/output_proj/vars/1"][0] += 0.01
    return path, file


def gate(verdict: Verdict, name: str) -> Gate:
    return next(each for each in verdict.gates if each.name == name)


@pytest.mark.full
def test_judging_again_says_the_same(files: tuple[Path, Path]) -> None:
    broken = wdport.verify(*files)
    again = apply_policy(broken, UNCHANGED, TODAY)
    assert again.gates[:-1] == broken.gates
    assert [each.name for each in again.gates] == [*(each.name for each in broken.gates), NAME]
    assert not gate(broken, "A").passed
    assert not gate(broken, "B").passed


def test_the_faulty_layer_can_be_waived_and_the_file_cannot(files: tuple[Path, Path]) -> None:
    """Two taps are off, the layer and the output behind it; gate 0 still knows that a variable is not its tensor."""
    names = ("level_transformers.1.output_proj", "output")
    waivers = tuple(Waiver(name, where, "test", date(2027, 1, 31)) for name in names for where in ("A", "B"))
    judged = apply_policy(network_verdict(*files), Policy((), waivers), TODAY)
    assert gate(judged, "A").passed
    assert gate(judged, "B").passed
    assert gate(judged, NAME).passed
    assert not gate(judged, "0").passed
    assert judged.exit_code == 1
    assert gate(judged, "A").worst is not None
    assert gate(judged, "A").worst < 1e-12  # type: ignore[operator]
