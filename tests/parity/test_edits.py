"""The edits of `python -m parity_tests.edits` fit the code as it is, and outcomes are judged as they should be."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import pytest

from parity_tests.edits import __main__ as edits
from parity_tests.edits.binding import edited
from parity_tests.edits.judge import cause, placed

ROWS = edits.listed()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"old": "not there"}, "its code is in Standardize.__init__ 0 times"),
        ({"in": "Standardize.elsewhere"}, "Standardize.elsewhere is defined 0 times"),
        ({"file": "wdport/no.py"}, "Standardize.__init__ is defined 0 times"),
    ],
)
def test_every_edit_is_of_the_code_as_it_is(
    change: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len({row["name"] for row in ROWS}) == len(ROWS) > 370
    (first,) = (row for row in ROWS if row["name"] == "epsilon of the layer norm")
    monkeypatch.setattr(edits, "load_yaml", lambda *_: Plain([{**first, **change}]))
    with pytest.raises(ValueError, match=message):
        edits.listed()


class Plain(list[dict[str, str]]):
    def plain(self) -> list[dict[str, str]]:
        return self


@pytest.mark.parametrize("file", sorted({row["file"] for row in ROWS if row["file"].endswith(".py")}))
def test_what_an_edit_makes_of_a_file_is_python(file: str) -> None:
    """The same, whether the file is formatted as it is or in any other way."""
    text = (edits.ROOT / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    plain, before = ast.unparse(tree), ast.dump(tree)
    for row in ROWS:
        if row["file"] == file:
            made, other = (
                ast.dump(ast.parse(edited(each, row["in"], row["old"], row["new"]))) for each in (text, plain)
            )
            assert made == other != before


MODULE = """
A, B = 1, 2

class Thing:
    size: int = 3

    @property
    def area(self):
        'The sides.'  # are equal
        return (self.size *
                self.size)

    def area_of(self): return 0
""".lstrip()


def test_an_edit_is_bound_to_a_definition() -> None:
    squared = edited(MODULE, "Thing.area", "self.size * self.size", "self.size ** 2")
    assert "    @property\n    def area(self):\n        return self.size ** 2\n\n    def area_of" in squared
    assert "size: int = 4\n" in edited(MODULE, "Thing.size", "3", "4")
    assert "A, B = (1, 5)\n" in edited(MODULE, "B", "2", "5")
    assert "return 1\n" in edited(MODULE, "Thing.area_of", "return 0", "return 1")
    for name, old, message in (
        ("Thing.area", "self.size", "is in Thing.area 2 times"),
        ("C", "1", "C is defined 0 times"),
    ):
        with pytest.raises(ValueError, match=message):
            edited(MODULE, name, old, "")


def test_every_edit_has_a_place() -> None:
    assert {row["area"] for row in ROWS} >= {"network", "sampling", "series", "file", "coding", "generation", "export"}
    assert all(row.get("layers") for row in ROWS if row["area"] == "network" and "outside" not in row)
    assert not any("*" in row["layers"] for row in ROWS if "layers" in row)


def outcome(gates: dict[str, list[str]], *candidates: str, **more: Any) -> dict[str, Any]:
    faults = [[name.replace("/", "."), name, ""] for name in candidates]
    return {"error": "", "gates": list(gates.items()), "faults": faults, "causes": {}, **more}


NORM = {"name": "a", "area": "network", "layers": ["level_*/norm[12]"], "says": "epsilon"}
SAMPLING = {"name": "b", "area": "sampling"}
PLACED: dict[str, tuple[Mapping[str, Any], dict[str, Any], bool | None]] = {
    "found": (NORM, outcome({"A": []}, "level_0/norm1", "level_1/norm2"), True),
    "another place as well": (NORM, outcome({"A": []}, "level_0/norm1", "level_0"), False),
    "no place": (NORM, outcome({"H": []}), False),
    "a layer inside not run": (NORM, outcome({"0": []}, missing=["level_0/norm1/ada_lin"]), True),
    "a layer elsewhere not run": (NORM, outcome({"0": []}, missing=["level_0/position"]), False),
    "refused": (NORM, {"error": "MisfitError: no", "exit_code": 4}, None),
    "sampling": (SAMPLING, outcome({"E'": []}), True),
    "elsewhere": (SAMPLING, outcome({"F": []}), False),
    "an area without a gate": ({"name": "c", "area": "edges"}, outcome({"A": []}, "level_0"), None),
}


@pytest.mark.parametrize("case", PLACED)
def test_the_place_of_an_edit(case: str) -> None:
    edit, told, right = PLACED[case]
    assert placed(edit, told) is right


def test_a_cause_is_right_by_its_words() -> None:
    right, wrong = (
        outcome({"A": []}, "level_0/norm1", causes={"level_0/norm1": [text]}) for text in ("epsilon 1", "x")
    )
    assert cause(NORM, right) == "right"
    assert cause(NORM, wrong) == "wrong"
    assert cause({**NORM, "says": "y"}, right) == "wrong"
    assert cause(SAMPLING, right) == "wrong"
    assert cause(NORM, outcome({"A": []}, "level_0/norm1")) == ""
