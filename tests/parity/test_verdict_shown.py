"""A verdict as Python and notebooks show it: a few lines, a card without script, and every format as a method."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import wdport
from tests.parity.test_reports import HOSTILE, NOTHING, failing, incomplete, passing
from wdport.parity import verdict as data
from wdport.parity.policy.judge import update_baseline
from wdport.parity.reports import render_html, render_markdown
from wdport.parity.reports.text import render_text
from wdport.parity.verdict_api import Verdict

EVERY = [passing(), failing(), incomplete(), NOTHING]


def test_repr_is_a_few_lines_and_names_the_first_fault() -> None:
    assert repr(passing()).splitlines() == [
        "<Verdict PASS: model.keras computes what model.ckpt computes, assuming heads 4",
        "  5 of 5 gates passed, 10 layers compared; worst relative error 2.0e-15 (at most 1.0e-10), "
        "1.3 times PyTorch's rounding error (at most 8)",
        "  see verdict.summary() for the full report>",
    ]
    lines = repr(failing()).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("<Verdict FAIL: model.keras does not compute")
    assert lines[2] == "  faulty: block.2.norm -> block_2/norm and 2 more"
    assert all(len(repr(verdict).splitlines()) <= 4 for verdict in EVERY)


@pytest.mark.parametrize("verdict", EVERY)
def test_the_card_is_well_formed_and_needs_nothing(verdict: Verdict) -> None:
    hostile = replace(verdict, converted=HOSTILE, causes={"block_2/norm": (HOSTILE,)})
    card = hostile._repr_html_()
    opened: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag in {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "ol", "li"}
            assert {name for name, _ in attrs} <= {"style", "scope", "colspan"}
            opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Tags().feed(card)
    assert opened == []
    assert not re.search(r"[\x00-\x1f\ud800]", card)
    assert len(card) < 10_000


def test_the_card_says_the_verdict_its_gates_and_what_is_wrong() -> None:
    card = failing()._repr_html_()
    for said in ("FAIL", "float64", "float32", "block.2.norm -&gt; block_2/norm: epsilon of 1e-6 or no bias"):
        assert said in card
    assert "38 of 40" in incomplete()._repr_html_()
    assert "nothing was compared" in incomplete()._repr_html_()


@pytest.mark.parametrize("verdict", EVERY)
def test_every_format_is_a_method(verdict: Verdict) -> None:
    assert verdict.summary() == render_text(verdict)
    assert verdict.to_html() == render_html(verdict)
    assert verdict.to_markdown() == render_markdown(verdict)


def test_a_policy_and_a_baseline_in_python(tmp_path: Path) -> None:
    policy, baseline = tmp_path / "parity.toml", tmp_path / "baseline.json"
    policy.write_text("[bounds]\nnumerics = { value = 0.1 }\n", encoding="utf-8")
    strict = passing().under(policy=policy)
    assert not strict
    assert "0.1" in strict.summary()
    assert [gate.name for gate in strict.gates if not gate.passed] == ["B"]
    with pytest.raises(wdport.WdportError, match=r"none\.json: no such file"):
        passing().under(baseline=tmp_path / "none.json")
    update_baseline(baseline, passing())
    assert passing().under(baseline=baseline)
    assert passing().under()


def test_what_is_public_is_documented() -> None:
    """By its source: other tests replace methods of the class."""
    trees = [
        ast.parse(Path(inspect.getfile(each)).read_text(encoding="utf-8")) for each in (wdport.Verdict, data.Verdict)
    ]
    bodies = [node.body for tree in trees for node in tree.body
              if isinstance(node, ast.ClassDef) and node.name == "Verdict"]  # fmt: skip
    public = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    assert {"summary", "to_html", "to_markdown", "to_json", "unmet"} <= {node.name for node in public}
    assert [node.name for node in public if not ast.get_docstring(node)] == []
