"""`wdport record` as a user sees it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import wdport
from tests.command import Cli
from tests.make import TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from tests.parity.test_reports import passing
from wdport.parity.verify_options import Pair
from wdport.recording.user_model import build


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tmp_path / "small.ckpt", make_state(TWO_LEVELS))


def test_it_says_what_it_recorded(tmp_path: Path, cli: Cli) -> None:
    """A table that the code computes otherwise is noted."""
    state = make_state(TWO_LEVELS)
    checkpoint = save(tmp_path / "a.ckpt", {**state, "beta_all": state["beta_all"] * 1.01})
    words = ["record", "tests.user_model:two_levels", checkpoint, "--input", "x: b 10 3, parts 5 5"]
    shown = cli(*words, "--input", "t: b, steps 1000", "--leave-out", "*.attn.*")
    assert shown.err == ""
    assert shown.out.startswith("a.ckpt: recorded\n")
    assert "tests.user_model:two_levels, " in shown.out
    assert "note   beta_all is the checkpoint's: the code computes other values\n" in shown.out
    assert f"wrote  {tmp_path / 'a.run.npz'} (" in shown.out
    assert "exists already" in cli(*words, code=2).err


def test_what_a_model_prints_is_not_the_report(checkpoint: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is imported, built and run; neither in `record` nor in `verify --reference`."""
    monkeypatch.delitem(sys.modules, "tests.talkative_model", raising=False)
    shown = cli("record", "tests.talkative_model:two_levels", checkpoint)
    assert shown.out.startswith("small.ckpt: recorded\n  model")
    assert shown.err.startswith("imported\nbuilt\n")
    assert "ran\n" in shown.err

    def compare(pair: Pair, *_: Any) -> Any:
        monkeypatch.delitem(sys.modules, "tests.talkative_model")
        build(str(pair.reference), str(pair.checkpoint)).modules["float32"](torch.zeros(1, 10, 3), torch.zeros(1))
        environment = {**passing().environment, "torch_matmul": "highest", "jax_matmul": "highest"}
        return replace(passing(), environment=environment)

    monkeypatch.setattr("wdport.parity.verify.compare_files", compare)
    port = wdport.convert(checkpoint, values=TWO_LEVELS_SETTINGS).output
    shown = cli("verify", checkpoint, port, "--reference", "tests.talkative_model:two_levels")
    assert shown.out.startswith("PASS  model.keras computes what model.ckpt computes")
    assert "imported" not in shown.out
    assert shown.err == "imported\nbuilt\nbuilt\nran\n"
