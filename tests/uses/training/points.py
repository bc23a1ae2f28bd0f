"""The user's own flow of the examples: a small model, which compiles in a second."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import wdport

MADE: dict[str, bytes] = {}
"""The checkpoint and its conversion, which are made once."""


@contextmanager
def points_in(folder: Path) -> Iterator[Callable[[], Any]]:
    """Makes the model with the same random weights every time; ``folder``, the working directory, has its files."""
    shutil.copytree(Path(__file__).parents[3] / "examples" / "points", folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        if not MADE:
            torch.manual_seed(0)
            from net import MLP  # type: ignore[import-not-found, unused-ignore]

            torch.save(MLP().state_dict(), "a.pt")
            wdport.convert("a.pt", "a.keras", mapping="flow.yaml")
            MADE.update({name: Path(name).read_bytes() for name in ("a.pt", "a.keras")})
        for name, data in MADE.items():
            Path(name).write_bytes(data)
        yield lambda: wdport.load_model("a.keras", mapping="flow.yaml")
    for name in ("net", "twin"):
        sys.modules.pop(name, None)


@pytest.fixture
def points(tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """:func:`points_in` a folder of the test."""
    with points_in(tmp_path) as load:
        yield load
