"""References that call their modules as the public network does: groups by methods, or including their projection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wdport
from tests.make import NO_CROSS, QK_NORM, SETTINGS, SMALL, make_state, record_small, save
from wdport.parity.verdict import Verdict
from wdport.parity.verify import verify_recording

UNCALLED = "compared by parts alone: level_transformers.0 and 3 more (the reference does not call it)"
LONGER = "compared by parts alone: level_transformers.0 and 3 more (the reference runs output_proj inside it)"
CASES: dict[str, tuple[Any, str, str]] = {
    "cross-level": (SMALL, "public", UNCALLED),
    "no cross-level": (NO_CROSS, "public_no_cross", LONGER),
    "qk norm": (QK_NORM, "public_qk_norm", UNCALLED),
}


def verdicts(folder: Path, config: Any, factory: str) -> tuple[Verdict, Verdict]:
    """Live, and against a recording."""
    path = save(folder / "a.ckpt", make_state(config))
    converted, target = wdport.convert(path, values=SETTINGS).output, f"tests.user_model:{factory}"
    record_small(target, path, folder / "run.npz", config)
    return wdport.verify(path, converted, reference=target), verify_recording(converted, folder / "run.npz")


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_they_pass(tmp_path: Path, case: str) -> None:
    config, factory, note = CASES[case]
    for verdict in verdicts(tmp_path, config, factory):
        assert verdict.exit_code == 0
        assert note in map(str, verdict.gates[0].findings)
        names = {tap.reference for tap in verdict.taps}
        assert "level_transformers.0" not in names
        assert {"level_transformers.0.pos_encoding", "level_transformers.0.output_proj"} <= names


@pytest.mark.full
def test_another_number_of_heads_is_named(tmp_path: Path) -> None:
    """The same tensors with four heads in place of two: no file tells, the user's own code does."""
    for verdict in verdicts(tmp_path, SMALL, "public_more_heads"):
        assert verdict.exit_code == 1
        assert {fault.candidate.rpartition("/")[2].rstrip("_0123") for fault in verdict.faults} == {"attention"}
        assert set(verdict.causes.values()) == {("num_heads 2 where the reference has 4",)}
        page = verdict.to_html()  # each layer computes what it should, and one in each attention is fed something else
        assert page.count('class="fed out') == len(verdict.faults)
        assert 'class="own out' not in page
