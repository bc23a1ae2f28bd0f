"""Source edits: each fits the source as it stands, and what `verify` says becomes the right fate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from wdport.errors import InternalError
from wdport.families.waveletdiff.family import FAMILY
from wdport.parity.selftest.edits import Edit, fate, read_edits

EDITS = read_edits(FAMILY.edits())


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_fits_the_source(edit: Edit, tmp_path: Path) -> None:
    """Its text stands there once, and what it makes of the file is Python."""
    target = tmp_path / edit.file
    target.parent.mkdir(parents=True)
    target.write_text((ROOT / edit.file).read_text())
    edit.apply(tmp_path)
    assert target.read_text() != (ROOT / edit.file).read_text()
    compile(target.read_text(), edit.file, "exec")


def test_there_are_edits_of_everything() -> None:
    assert len(EDITS) > 150
    assert {edit.variant for edit in EDITS} == set(FAMILY.edited())
    assert {"", "sampling", "series", "file"} <= {site for edit in EDITS for site in edit.sites}


def test_an_edit_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(InternalError, match="occurs 2 times"):
        Edit("twice", "a.py", "x = 1", "x = 2", ("",), "official").apply(tmp_path)


def outcome(gates: dict[str, list[str]], *candidates: str, **more: Any) -> dict[str, Any]:
    faults = [[name.replace("/", "."), name, ""] for name in candidates]
    return {"error": "", "gates": list(gates.items()), "faults": faults, "causes": {}, **more}


NORM = Edit("a", "a.py", "x", "y", ("level_*/norm[12]",), "official", cause="epsilon")
FATES: dict[str, tuple[Edit, dict[str, Any], str, bool]] = {
    "found": (NORM, outcome({"A": []}, "level_0/norm1", "level_1/norm2"), "A", True),
    "survived": (NORM, outcome({}), "", False),
    "another place as well": (NORM, outcome({"A": []}, "level_0/norm1", "level_0"), "A", False),
    "a layer inside not run": (NORM, outcome({"0": []}, missing=["level_0/norm1/ada_lin"]), "0", True),
    "a layer elsewhere not run": (NORM, outcome({"0": []}, missing=["level_0/position"]), "0", False),
    "refused": (NORM, {"error": "MisfitError: no", "exit_code": 4}, "refused", True),
    "sampling": (Edit("b", "a.py", "x", "y", ("sampling",), "official"), outcome({"E'": []}), "E'", True),
    "elsewhere": (Edit("b", "a.py", "x", "y", ("sampling",), "official"), outcome({"F": []}), "F", False),
}


@pytest.mark.parametrize("case", FATES)
def test_the_fate_of_an_edit(case: str) -> None:
    edit, told, gate, exact = FATES[case]
    kill = fate(edit, told)
    assert (kill.gate, kill.exact, kill.killed) == (gate, exact, bool(gate))


def test_a_cause_is_right_by_its_words() -> None:
    right, wrong = (
        outcome({"A": []}, "level_0/norm1", causes={"level_0/norm1": [text]}) for text in ("epsilon 1", "x")
    )
    assert fate(NORM, right).diagnosed
    assert fate(NORM, wrong).misdiagnosed
    assert not fate(NORM, outcome({"A": []}, "level_0/norm1")).misdiagnosed
