"""The gates' names: one table that every gate of a run is named by."""

from __future__ import annotations

import re
from pathlib import Path

from wdport.compare.findings import GATES, label, letter_of
from wdport.wavelets.check import WAVELET

PACKAGE = Path(__file__).parents[2] / "wdport"


def test_letters_and_names_are_unique_and_lead_to_each_other() -> None:
    terms = [*GATES.values(), WAVELET]
    assert len({term.letter for term in terms}) == len({term.name for term in terms}) == len(terms)
    assert all(letter_of(term.name) == letter_of(term.letter) == term.letter for term in GATES.values())
    assert letter_of("logic") is None
    assert (label("B'"), label("F")) == ("bfloat16 (B')", "F")
    assert GATES["D"].gate(1, 2).label == "optimiser (D)"


def test_every_gate_of_the_package_is_made_by_the_table() -> None:
    made = [path.name for path in PACKAGE.rglob("*.py") if re.search(r"(?<!class )\bGate\(", path.read_text())]
    assert sorted(made) == ["findings.py", "port.py"]  # the second is a layer of a network
