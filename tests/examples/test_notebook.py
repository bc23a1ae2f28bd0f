"""The notebook: its outputs are those of a whole run, name no machine, and come out again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.examples.notebook import NOTEBOOK, executed


def code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> str:
    """The text of a cell's outputs, with every number the same: errors, digests and dates differ from run to run."""
    texts = [each.get("text") or each["data"].get("text/plain", "") for each in cell["outputs"]]
    return re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f.e+-]+\b", "0", " ".join("".join("".join(text) for text in texts).split()))


def test_outputs_are_of_one_whole_run_and_name_no_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    cells = code(json.loads(text))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not re.search(r"/(root|home|tmp|work|usr|opt|Users)/|site-packages|Traceback|Warning", text)
    cards = ["".join(each["data"]["text/html"]) for cell in cells for each in cell["outputs"]
             if "text/html" in each.get("data", {})]  # fmt: skip
    assert ["PASS" in card for card in cards] == [True, False]
    assert "<script" not in text
    assert any("image/png" in each.get("data", {}) for each in cells[-1]["outputs"])


@pytest.mark.full
def test_it_runs_and_says_what_it_says(tmp_path: Path) -> None:
    committed, now = code(json.loads(NOTEBOOK.read_text(encoding="utf-8"))), code(executed(tmp_path))
    for before, after in zip(committed, now, strict=True):
        assert [each["output_type"] for each in after["outputs"]] == [each["output_type"] for each in before["outputs"]]
        assert shown(after)[:60] == shown(before)[:60]
    assert (tmp_path / "points" / "wrong.html").read_text().startswith("<!DOCTYPE html>")
