"""Nothing that was not compared passes, and nothing that is loosened passes unseen: each with its exit code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wdport
from tests.make import SETTINGS, TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from wdport.cli.main import main
from wdport.compare.findings import Gate
from wdport.parity.verdict import Verdict


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = save(tmp_path_factory.mktemp("closed") / "small.ckpt", make_state())
    return str(path), str(wdport.convert(path, path.with_suffix(".weights.h5"), values=SETTINGS).output)


def test_the_reference_compared_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from wdport.parity import model_pair as sides

    class Twin:
        framework = "keras"

        def __init__(self, live: Any) -> None:
            self.live = live

        def __getattr__(self, name: str) -> Any:
            return getattr(self.live, name)

    family_reference = sides.family_reference
    monkeypatch.setattr(sides, "family_reference", lambda *arguments: Twin(family_reference(*arguments)))
    path = save(tmp_path / "two.ckpt", make_state(TWO_LEVELS))
    output = wdport.convert(path, values=TWO_LEVELS_SETTINGS).output
    assert main(["verify", str(path), str(output)]) == 1
    assert "two frameworks" in " ".join(capsys.readouterr().out.split())


def test_zero_comparisons() -> None:
    """A verdict over nothing, or with a gate over nothing, is incomplete."""
    nothing = Verdict("a", "b", (), (), (), None, {}, (), {})
    assert nothing.exit_code == 6
    assert replace(nothing, gates=(Gate("A", "logic", 0, 0),)).exit_code == 6
    assert replace(nothing, gates=(Gate("A", "logic", 3, 4),)).exit_code == 6


@pytest.mark.full
def test_a_bound_that_no_longer_finds_known_faults(pair: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    policy = tmp_path / "parity.toml"
    policy.write_text('[bounds]\nlogic = { value = 0.1, reason = "r", expires = 2999-01-01 }\n')
    assert main(["verify", *pair, "--policy", str(policy)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "FAIL known faults (S)" in shown
    assert "too loose" in shown
    assert "loosened to 0.1" in shown


@pytest.mark.full
def test_known_faults_come_first(pair: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    """A tightened bound is no reason to fail, and the known faults are found under it."""
    policy = tmp_path / "parity.toml"
    policy.write_text("[bounds]\nlogic = { value = 1e-11 }\n")
    assert main(["verify", *pair, "--policy", str(policy)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ok known faults (S)" in shown
    assert "tightened to 1e-11" in shown
