"""The user's own flow of the examples: a small model, which compiles in a second."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import wdport


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Makes the model, with the same random weights every time; the working directory has its files."""
    shutil.copytree(Path(__file__).parents[2] / "examples" / "points", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    from net import MLP  # type: ignore[import-not-found, unused-ignore]

    torch.save(MLP().state_dict(), "a.pt")
    wdport.convert("a.pt", "a.keras", mapping="flow.yaml")
    yield lambda: wdport.load_model("a.keras", mapping="flow.yaml")
    for name in ("net", "twin"):
        sys.modules.pop(name, None)
