"""The tool itself: which guards it finds, and what is left without one."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from tests.guards.find import all_guards, guards_in, without
from tests.guards.swap import delete
from wdport.base.errors import InputError

SOURCE = """
from wdport.base.errors import InputError


def misfit(what):
    return InputError("x", what, "y")


class Reader:
    def read(self, n):
        if n < 0:
            raise InputError("x", "negative", "y")
        if n == 3:
            n += 1
            raise misfit("three")
        try:
            return 10 // n
        except ZeroDivisionError:
            raise InputError("x", "zero", "y") from None


def other():
    raise ValueError("not ours")
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "reader.py"
    path.write_text(SOURCE)
    return path


def test_what_is_a_guard(module: Path) -> None:
    found = guards_in(module)
    assert [guard.text for guard in found] == [
        "raise InputError('x', 'negative', 'y')", "raise misfit('three')",
        "raise InputError('x', 'zero', 'y') from None",
    ]  # fmt: skip
    assert {guard.function for guard in found} == {"Reader.read"}


def test_what_is_left(module: Path) -> None:
    negative, three, zero = (ast.unparse(without(guard)) for guard in guards_in(module))
    assert "n < 0" not in negative
    assert "n += 1\n            pass" in three
    assert "except ZeroDivisionError:\n            raise\n" in zero


def test_a_loaded_module_changes(module: Path) -> None:
    spec = importlib.util.spec_from_file_location("reader", module)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    reader = loaded.Reader()
    with pytest.raises(InputError, match="negative"):
        reader.read(-1)
    assert delete(guards_in(module)[0]) == 1
    assert reader.read(-1) == -10
    with pytest.raises(InputError, match="zero"):
        reader.read(0)


def test_the_rooms_have_guards() -> None:
    guards = all_guards(Path(__file__).parents[2] / "wdport")
    assert len(guards) >= 300
    assert len({(guard.path, guard.number) for guard in guards}) == len(guards)
