"""The documents of --json that no other test prints fit their schemas; `held` looks at the others where they arise."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.make import SET, make_state, save
from tests.parity.test_selftest_result import KILLED, SURVIVOR, result
from tests.schemas.held import hold
from wdport.cli.main import main

NET = """
import torch


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
"""
TWIN = """
import keras
from keras import layers


def build():
    x = keras.Input((4,))
    return keras.Model(x, layers.Dense(2, name="second")(layers.Dense({width}, "relu", name="first")(x)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], kind: str, *words: str, code: int = 0) -> None:
    """Run a command, and hold what it prints to its schema."""
    assert main([*words, "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == kind
    hold(kind, found)


def test_a_selftest() -> None:
    hold("selftest", result(KILLED, SURVIVOR).to_json())


@pytest.mark.full
def test_samples_a_recording_and_a_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(save(folder / "a.ckpt", make_state()))
    printed(capsys, "conversion", "convert", checkpoint, *SET)
    printed(capsys, "recording", "record", "tests.user_model:small", checkpoint)
    with np.load("a.run.npz") as recording:
        hold("recording-index", json.loads(recording["index"].tobytes()))
    printed(capsys, "samples", "sample", "a.keras", "--sampler", "ddim", "--steps", "2", "-n", "2", "-o", "a.npz")
    printed(capsys, "export", "export", "a.keras", "--what", "sampler", "--sampler", "ddim", "--steps", "2")
    printed(capsys, "export", "export", "a.keras", "--to", "torch", "-o", "b.safetensors")
    printed(capsys, "inspection", "inspect", "a.keras")


@pytest.mark.full
@pytest.mark.parametrize("width", [3, 5])
def test_suggestions(width: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is found and proved, and one that stops at a layer."""
    names = f"held_net_{width}", f"held_twin_{width}"
    (folder / f"{names[0]}.py").write_text(NET)
    (folder / f"{names[1]}.py").write_text(TWIN.format(width=width))
    words = ["--reference", f"{names[0]}:build", "--keras-model", f"{names[1]}:build", "--input", "x: b 4",
             "-o", "t.yaml"]  # fmt: skip
    printed(capsys, "suggestion", "map", "suggest", *words, code=0 if width == 3 else 4)
    for name in names:
        sys.modules.pop(name, None)
