"""Hostile pickles: nothing runs, whatever the callable and however it is reached, and the file is refused whole."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.bad.gadgets import CODE, GADGETS, SHELL, forms
from tests.bad.run import run
from tests.checkpoint.forge import REDUCE, name, pickled, text, tuple_of

QUICK = 8
"""Of so many one is tried by `make test`, the rest by `make parity`; the names of all by `tests/checkpoint`."""

COMMANDS = (["inspect", "bad.pt"], ["convert", "bad.pt"])


def test_there_are_enough() -> None:
    assert len(set(GADGETS)) == len(GADGETS) >= 157


@pytest.mark.parametrize(
    ("module", "attribute"),
    [pytest.param(*each, marks=[pytest.mark.full] if at % QUICK else []) for at, each in enumerate(GADGETS)],
    ids=lambda part: part,
)
def test_a_gadget(module: str, attribute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fourteen forms, by two verbs."""
    monkeypatch.chdir(tmp_path)
    asked = f"the pickle asks for {module}.{attribute}, "
    for form, content in forms(module, attribute).items():
        Path("bad.pt").write_bytes(content)
        for words in COMMANDS:
            ended = run(words, tmp_path, child=False)
            said = f"{form}: {words[0]}: {ended}"
            assert ended.code == 3, said
            assert ended.err.startswith(f"error: bad.pt: {asked}"), said
            assert ended.err.count("\n") == 1, said
        assert [path.name for path in tmp_path.iterdir()] == ["bad.pt"], form


def test_the_files_are_dangerous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another reader: otherwise nothing above is shown."""
    monkeypatch.chdir(tmp_path)
    for module, attribute, given in (("os", "system", SHELL), ("builtins", "eval", CODE), ("posix", "system", SHELL)):
        pickle.loads(pickled(name(module, attribute) + tuple_of(text(given)) + REDUCE))
        canary = Path("canary")
        canary.rmdir() if canary.is_dir() else canary.unlink()
