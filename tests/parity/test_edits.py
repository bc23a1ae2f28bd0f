"""The edits of `python -m parity_tests.edits` are edits of the code as it is."""

from __future__ import annotations

import pytest

from parity_tests.edits import __main__ as edits


def test_every_edit_is_of_the_code_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = edits.listed()
    assert len({row["name"] for row in rows}) == len(rows) > 200
    monkeypatch.setattr(edits, "load_yaml", lambda *_: Plain([{**rows[0], "old": "not there"}]))
    with pytest.raises(ValueError, match="0 times"):
        edits.listed()


class Plain(list[dict[str, str]]):
    def plain(self) -> list[dict[str, str]]:
        return self
