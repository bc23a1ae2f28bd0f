"""Models of the corpus are written in Keras, and equal to PyTorch's; none is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from parity_tests.port import table
from parity_tests.port.corpus import CORPUS
from parity_tests.port.table import BOUND, error_of, run_entry, selected, summary_of
from wdport.parity.proving.port import WrittenPort, write_port

FAST = ("small_cnn", "small_mlp", "small_graph_sage", "small_dcgan_discriminator", "small_graph_convolution")
SLOW = tuple(name for name, entry in CORPUS.items() if name not in FAST and not entry.unseen)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_written_and_equal(name: str) -> None:
    result = run_entry(CORPUS[name])
    assert (result.outcome, result.reason) == ("written", "")
    assert result.replayed
    assert result.lowered
    assert result.lines > 20
    assert result.error <= BOUND


@pytest.mark.full
@pytest.mark.parametrize("name", SLOW)
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_written_and_equal_or_ends_at_a_hole(name: str) -> None:
    result = run_entry(CORPUS[name])
    assert result.outcome in ("written", "hole", "refused"), result.reason


@pytest.mark.filterwarnings("ignore")
def test_another_source_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source with one other activation."""

    def changed(target: str, inputs: Sequence[str], name: str) -> WrittenPort:
        port = write_port(target, inputs, name)
        assert "ops.relu" in port.source
        port.source = port.source.replace("ops.relu", "ops.gelu", 1)
        return port

    monkeypatch.setattr(table, "write_port", changed)
    result = run_entry(CORPUS["small_cnn"])
    assert (result.outcome, result.lowered) == ("wrong", True)
    assert result.reason.startswith("written: output 0 differs by ")


def test_unseen_entries_are_left_out_unless_asked_for() -> None:
    assert not [entry for entry in selected((), unseen=False, seen=False) if entry.unseen]
    assert all(entry.unseen for entry in selected((), unseen=True, seen=False))
    assert len(selected((), unseen=True, seen=True)) == len(CORPUS)


def test_what_differs() -> None:
    ones = np.ones((2, 3))
    missing = np.array([[1.0, np.nan], [np.inf, 2.0]])
    assert error_of(missing, missing) == 0.0
    assert error_of(ones, ones + 1e-6) > BOUND
    for candidate, reference in ((ones, ones.T), (ones, ones.astype(int)), (np.zeros((2, 2)), missing)):
        assert error_of(candidate, reference) == np.inf
    assert error_of(np.arange(3), np.arange(3) + 1) == np.inf


@pytest.mark.filterwarnings("ignore")
def test_a_page_keeps_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{table.MADE}\nold\n")
    assert table.main(["small_mlp", "--markdown", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{table.MADE}\n1 tried, 1 replayed, 1 lowered and equal, 1 written and equal, ")
    assert "| small_mlp | yes | yes | written and equal | " in text
    assert "old" not in text
    assert capsys.readouterr().out.splitlines()[-1] == summary_of([run_entry(CORPUS["small_mlp"])])
