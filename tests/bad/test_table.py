"""Every bad file of the table ends every command as its row says, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bad.run import check, place
from tests.bad.table import TABLE


def test_the_table_is_broad() -> None:
    """At least 250 files, every verb that reads one, every code that a bad file can end with."""
    assert len(TABLE) >= 250
    verbs = {command.split()[0] for bad in TABLE.values() for command in bad.commands}
    assert verbs == {"convert", "verify", "record", "inspect", "sample", "export"}
    assert {code for bad in TABLE.values() for code in bad.codes} >= {2, 3, 4}


def rows() -> list[Any]:
    """All of them; `make test` runs every other one, and of those that take a process or a model every eighth."""
    slow = [name for name, bad in TABLE.items() if bad.child or bad.builds]
    quick = [name for name in TABLE if name not in set(slow)]
    rare = set(TABLE) - set(slow[::8]) - set(quick[::2])
    return [pytest.param(name, marks=[pytest.mark.full] if name in rare else []) for name in TABLE]


@pytest.mark.parametrize("name", rows())
def test_a_bad_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bad = TABLE[name]
    place(bad, tmp_path)
    check(bad, tmp_path)
