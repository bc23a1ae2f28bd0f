"""The step summary: verdict first, nothing from a file can break it, never above its limit."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from tests.parity.test_reports import HOSTILE, NOTHING, failing, incomplete, passing
from wdport.base.errors import MachineError
from wdport.compare.findings import fact
from wdport.parity.reports import append_step_summary, render_markdown
from wdport.parity.reports.markdown import MARK, escape
from wdport.parity.verdict import TapResult, Verdict


def many(count: int) -> Verdict:
    """Faults and findings, of which 7,000 fill a step summary, in names of two and three bytes a letter."""
    taps = tuple(TapResult(f"блок.слой.層{i}", f"порт/{i}", None, 1.0, 0.0, 1.0) for i in range(count))
    gates = list(passing().gates)
    gates[2] = replace(gates[2], facts=tuple(fact(f"{tap.reference} is off") for tap in taps))
    return replace(failing(), taps=taps, gates=tuple(gates))


def rows(text: str) -> list[list[str]]:
    """The cells of every table row."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize(
    ("verdict", "head"),
    [
        (
            passing(),
            "## PASS\n\n<code>model.keras</code> computes what <code>model.ckpt</code> computes, assuming <code>",
        ),
        (failing(), "## FAIL\n\n<code>model.keras</code> does not compute what"),
        (incomplete(), "## INCOMPLETE\n\nnot everything in <code>model.keras</code> could be compared"),
    ],
)
def test_the_verdict_comes_first(verdict: Verdict, head: str) -> None:
    assert render_markdown(verdict).replace(f"{MARK}\n\n", "").startswith(head)


def test_sections_in_their_order() -> None:
    text = render_markdown(failing())
    parts = ["### Faulty layers", "### What to do", "### Gates", "### Wavelet levels", "findings</summary>",
             "</details>", "Inputs:"]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "<code>epsilon of 1e-6 or no bias</code>" in text
    assert "### Faulty layers" not in render_markdown(passing())
    assert "9 of 10 compared" in render_markdown(incomplete())


def test_every_row_of_a_table_has_its_heads_number_of_cells() -> None:
    table = 0
    for line in render_markdown(failing()).splitlines():
        cells = rows(line)
        table = (table or len(cells[0])) if cells else 0
        assert not cells or len(cells[0]) == table


def test_the_worst_taps_are_the_nearest_to_their_bounds() -> None:
    made = [TapResult(f"t{index:02}", "c", None, index * 1e-12) for index in range(30)]
    text = render_markdown(replace(passing(), taps=tuple(made), parts=()))
    details = text[text.index("<details>") : text.index("</details>")]
    shown = re.findall(r"\bt\d\d", details)
    assert shown == [f"t{index:02}" for index in range(29, 9, -1)]
    assert "20 of 30 layers" in details


@pytest.mark.parametrize(
    "name", [HOSTILE, "_a_", "__init__", "www.a.b", "http://a.b", "a\nb", "|", "\\|", "``", "*", ""]
)
def test_what_is_escaped_means_nothing_to_markdown_and_reads_the_same(name: str) -> None:
    code = escape(name)
    inner = code.removeprefix("<code>").removesuffix("</code>")
    assert not re.search(r"""[<>"'`*\[\]|~\\$^!#@\n]""", re.sub(r"&#\d+;", "", inner))
    assert "://" not in inner
    assert "www." not in inner
    printed = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    assert unescape(inner) == printed


def test_underscores_within_a_name_stay_readable() -> None:
    assert escape("level_0.mlp_2") == "<code>level_0.mlp_2</code>"


def test_hostile_names_stay_in_their_cell() -> None:
    text = render_markdown(replace(failing(), converted=HOSTILE, assumed={HOSTILE: HOSTILE}, inputs=(HOSTILE,)))
    assert "<script>" not in text
    assert {len(cells) for cells in rows(text)} == {4, 5, 6, 7}
    assert set(re.findall(r"</?\w+>", text)) == {
        "<code>", "</code>", "<details>", "</details>", "<summary>", "</summary>"
    }  # fmt: skip


@pytest.mark.parametrize("limit", [20_000, 5_000, 2_000, 1_000, 500, 100, 20, 3, 0, -1])
def test_never_longer_than_its_limit(limit: int) -> None:
    text = render_markdown(many(200), limit)
    assert len(text.encode()) <= max(limit, 0)
    assert text.startswith("## FAIL"[: max(limit, 0)])


def test_whole_rows_are_cut_and_counted() -> None:
    text = render_markdown(many(1_500), 200_000)
    assert 198_000 < len(text.encode()) <= 200_000
    faults = len(re.findall(r"^\| <code>блок", text[: text.index("1501 findings")], re.MULTILINE))
    findings = len(re.findall(r"^- <code>", text[text.index("1501 findings") :], re.MULTILINE))
    cut = dict(re.findall(r"^(\d+) more ([a-z ]+) cut", text, re.MULTILINE))
    by_name = {name: int(count) for count, name in cut.items()}
    assert faults + by_name.get("faulty layers", 0) == 1_500
    assert findings + by_name.get("findings", 0) == 1_501
    assert {len(cells) for cells in rows(text)} == {4, 5, 6, 7}
    assert "layers" not in by_name
    assert "20 of 1500 layers" in text
    assert text.count("<details>") == text.count("</details>") == 2


@pytest.mark.parametrize("verdict", [passing(), failing(), incomplete()])
def test_nothing_is_cut_that_fits_exactly(verdict: Verdict) -> None:
    whole = render_markdown(verdict)
    size = len(whole.encode())
    assert "cut, to stay" not in whole
    assert render_markdown(verdict, size + 200) == whole
    for limit in range(size - 1, size - 900, -7):
        assert len(render_markdown(verdict, limit).encode()) <= limit


def test_nothing_at_all_can_be_told_too() -> None:
    text = render_markdown(NOTHING)
    assert text.startswith("## INCOMPLETE")
    assert "Run: unknown; 0 s" in text


def test_the_summary_is_appended_where_the_ci_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert append_step_summary("lost") is False
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "")
    assert append_step_summary("lost") is False
    file = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    assert append_step_summary("## один") is True
    assert append_step_summary("## two\n") is True
    assert file.read_bytes() == "## один\n## two\n".encode()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    with pytest.raises(MachineError, match="GITHUB_STEP_SUMMARY"):
        append_step_summary("refused")
