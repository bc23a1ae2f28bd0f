"""Every fenced block of README.md and of the documentation does what the page says, or is marked with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.docs.blocks import ROOT, Block, blocks_of, commands_of, pages, parse
from tests.docs.compare import difference
from tests.docs.files import FULL, PAGES
from tests.docs.runner import Fault, Run, known_command, prepared, run
from wdport.base import jax_settings as compile_cache
from wdport.cli import completion
from wdport.compare.findings import GATES

NOT_RUN = {
    "docs/ci.md": 3,
    "docs/conformance.md": 1,
    "docs/evaluation.md": 1,
    "docs/export.md": 1,
    "docs/hugging-face.md": 2,
    "docs/install.md": 4,
    "docs/keras-hub.md": 6,
    "docs/own-family.md": 7,
    "docs/port.md": 2,
    "docs/sampling.md": 1,
    "docs/scores.md": 4,
    "docs/selftest.md": 4,
    "docs/torchvision-timm.md": 4,
    "docs/training.md": 8,
    "docs/tutorial.md": 1,
    "docs/waveletdiff.md": 1,
    "docs/weather.md": 2,
}
"""How many blocks of a page are not run; each says why, in a comment before it."""

ALL = [block for page in pages() for block in blocks_of(page)]
LIGHT = {"yaml", "toml", "json", "text"}
RUNNABLE = [page for page in pages() if any(block.language != "text" for block in blocks_of(page))]


def execute(page: str, folder: Path, blocks: Sequence[Block]) -> Run:
    with prepared(page, folder) as on:
        for block in blocks:
            if not block.reason:
                run(block, on)
        if page == "docs/own-model.md":
            the_model_computes_the_same(on)
    return on


def is_full(block: Block) -> bool:
    return block.full or (block.page in FULL and block.language not in LIGHT)


@pytest.mark.parametrize("page", [page for page in RUNNABLE if not all(map(is_full, blocks_of(page)))])
def test_a_page(page: str, tmp_path: Path) -> None:
    execute(page, tmp_path, [block for block in blocks_of(page) if not is_full(block)])


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", [page for page in RUNNABLE if any(map(is_full, blocks_of(page)))])
def test_a_whole_page(page: str, tmp_path: Path) -> None:
    execute(page, tmp_path, blocks_of(page))


def test_what_is_not_run_says_why() -> None:
    marked = [block for block in ALL if block.reason]
    assert {page: sum(block.page == page for block in marked) for page in {block.page for block in marked}} == NOT_RUN
    assert all(len(block.reason.split()) >= 2 for block in marked)


def test_every_block_is_of_a_language_that_is_checked() -> None:
    assert {block.language for block in ALL} <= {"console", "python", "yaml", "toml", "text", "json"}
    assert not [block.where for block in ALL if block.language == "text" and "\n$ " in f"\n{block.text}"]


def test_every_command_is_one_that_wdport_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those, too, that are not run here."""
    # No file is there, and nothing is fetched.
    monkeypatch.setattr("wdport.cli.completion.find_checkpoint", lambda text, fetch: text)
    commands = [(command, block) for block in ALL if block.language == "console" for command in commands_of(block)]
    assert len(commands) > 50
    for command, block in commands:
        known_command(command.text, block)


def test_every_gate_is_explained() -> None:
    text = (ROOT / "docs/reference/gates.md").read_text(encoding="utf-8")
    assert not [str(term) for term in GATES.values() if f"| {term}" not in text]


def test_every_environment_variable_is_described() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "wdport").rglob("*.py"))
    read = set(re.findall(r'environ(?:\.get)?[\[(]"(\w+)"', source)) | {compile_cache.VARIABLE, completion.VARIABLE}
    assert len(read) > 8
    text = (ROOT / "docs/reference/environment.md").read_text(encoding="utf-8")
    assert not [name for name in read if f"`{name}" not in text]


def test_times_of_steps_stand_on_one_page() -> None:
    """Two pages with results of one machine disagree as soon as one of them is measured again."""
    pages = [page for page in Path("docs").glob("*.md") if page.name not in ("benchmarks.md", "gpu.md")]
    found = {page.name for page in (*pages, Path("README.md")) if re.search(r"\b[0-9.]+ ms\b", page.read_text())}
    assert not found


def test_every_column_of_a_table_has_a_heading() -> None:
    """A screen reader says it; `make docs-check` finds the same in a browser."""
    for page in pages():
        for heading, rule in pairwise((ROOT / page).read_text(encoding="utf-8").splitlines()):
            if re.fullmatch(r"\|[-:| ]+\|", rule):
                assert all(map(str.strip, heading.strip()[1:-1].split("|"))), f"{page}: {heading}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert not [link for link in links if not link.startswith("https://") and not (ROOT / link).is_file()]


def test_every_page_with_files_is_there() -> None:
    assert set(PAGES) <= set(pages())


def test_every_page_that_a_search_shall_find_is_there() -> None:
    """`make docs-check` makes the searches, in a browser."""
    searches = json.loads((ROOT / "tests/docs/searches.json").read_text(encoding="utf-8"))
    assert len({search["query"] for search in searches}) == len(searches) >= 42
    assert all(search["pages"] for search in searches)
    assert {f"docs/{page}.md" for search in searches for page in search["pages"]} <= set(pages())


def the_model_computes_the_same(on: Run) -> None:
    """What the guide's Python made, beside PyTorch's model."""
    import net  # type: ignore[import-not-found]
    import torch

    made = on.names
    assert made["verdict"]
    assert made["verdict"].gates
    assert not made["verdict"].faults
    assert made["conversion"].output == Path("copy.keras")
    image = np.random.default_rng(0).standard_normal((2, 3, 48, 48)).astype(np.float32)
    module = net.build()
    module.load_state_dict(torch.load("onet.pt"))
    wanted = module.eval()(torch.from_numpy(image))
    for ours, theirs in zip(made["model"](np.moveaxis(image, 1, -1), training=False), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-3, atol=1e-4)


def page_of(text: str) -> list[Block]:
    return parse("PAGE", text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```console\n$ wdport inspect nothing.pt\n```", "exit code 3, the page says 0"),
        ("```console\n$ wdport --version\nwdprot 0.1.0\n```", "the page has   wdprot 0"),
        ("```console\n$ wdport --version\nwdport, version 0.1.0\nmore\n```", "the command    ended"),
        ("```console\n$ rm -r x\n```", "mark this block"),
        ("```text\n$ wdport convert\n```", "a command in a block of text"),
        ("```fortran\nEND\n```", "nothing is known to do"),
        ("```yaml\njobs: {a: {steps: [{uses: wdport/wdport@v1, with: {chekpoint: a}}]}}\n```", "no input"),
        ("```yaml\nrepos: [{repo: local, hooks: [{id: a, entry: wdport verfy a b}]}]\n```", "no command 'verfy'"),
    ],
)
def test_a_wrong_block_is_a_fault(text: str, told: str, tmp_path: Path) -> None:
    with prepared("PAGE", tmp_path) as on, pytest.raises(Fault, match=told):
        run(page_of(text)[0], on)


def test_python_that_fails_fails(tmp_path: Path) -> None:
    with prepared("PAGE", tmp_path) as on, pytest.raises(NameError):
        run(page_of("```python\nprint(nothing)\n```")[0], on)


@pytest.mark.parametrize(
    ("shown", "same"),
    [("a\nb\nc\n", True), ("a\nc\n", False), ("...\nc\n", True), ("a\n...\nc\n", True), ("a\n...\n", True),
     ("...\nb\n", False), ("...\nc\n...\na\n", False)],
)  # fmt: skip
def test_a_written_file_is_shown_as_it_is(shown: str, same: bool, tmp_path: Path) -> None:
    with prepared("PAGE", tmp_path) as on:
        Path("x.py").write_text("a\nb\nc\n")
        with nullcontext() if same else pytest.raises(Fault, match=r"x\.py is"):
            run(page_of(f"<!-- written: x.py -->\n```python\n{shown}```")[0], on)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["PASS  in 3.2 s"], ["PASS in 41 s"], True),
        (["PASS", "..."], ["PASS", "more", "and more"], True),
        (["PASS", "...", "end"], ["PASS", "more"], False),
        (["ok  worst 1 times (at most 8)", "         at a.b"], ["ok worst 2 times (at most 8) at c"], True),
        (["PASS"], ["FAIL"], False),
        (["worst 1 times (at most 8) at a.b"], ["worst 2.5e-16 times (at most 8) at c.d (x)"], True),
        (["PASS"], ["PASS", "more"], False),
        (["wrote a (2.3 MB)"], ["wrote a (612 KB)"], True),
        (["proved", "note: a"], ["proved", "note: the proof took 71 s; with smaller inputs less", "note: a"], True),
    ],
)
def test_numbers_may_differ_and_words_may_not(shown: list[str], printed: list[str], same: bool) -> None:
    assert (difference(shown, printed) == "") is same
