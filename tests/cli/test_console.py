"""Colour and line breaks are for terminals; -q and -v say less and more."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.bad.ground import ground
from tests.command import Cli
from tests.make import TWO_LEVELS, TWO_LEVELS_SET, make_state, save
from tests.parity.test_reports import failing, incomplete, passing
from wdport.base.marked_text import joined, marked, outcome_line
from wdport.cli.console import Console, coloured, wrapped
from wdport.parity.reports.phrases import outcome
from wdport.parity.reports.text import render_text

VARIABLES = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# What is set; whether a terminal is coloured, and a pipe.
COLOURS: list[tuple[dict[str, str], bool, bool]] = [
    ({}, True, False),
    ({"NO_COLOR": "1"}, False, False),
    ({"NO_COLOR": ""}, True, False),
    ({"FORCE_COLOR": "1"}, True, True),
    ({"FORCE_COLOR": "0"}, True, False),
    ({"CLICOLOR_FORCE": "1"}, True, True),
    ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ({"CLICOLOR": "0"}, False, False),
    ({"CLICOLOR": "0", "FORCE_COLOR": "1"}, True, True),
    ({"TERM": "dumb"}, False, False),
]


@pytest.mark.parametrize(("variables", "terminal", "pipe"), COLOURS, ids=str)
def test_who_is_coloured(
    variables: dict[str, str], terminal: bool, pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (coloured(Terminal()), coloured(io.StringIO())) == (terminal, pipe)


COLOURED = re.compile("\x1b\\[([0-9;]+)m(?:\x1b\\[1m)?(.*?)\x1b\\[0m")
GREEN, RED, YELLOW, CYAN = "32", "31", "33", "36"


def on_screen(stream: str, monkeypatch: pytest.MonkeyPatch, say: Callable[[Console], None]) -> list[tuple[str, str]]:
    """What is coloured on a terminal: the colour and the words."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    screen = Terminal()
    monkeypatch.setattr(f"sys.{stream}", screen)
    say(Console())
    return COLOURED.findall(screen.getvalue())


@pytest.mark.parametrize(
    ("say", "colour", "word"),
    [
        (lambda screen: screen.note("PASS  x"), CYAN, "note:"),
        (lambda screen: screen.warn("x"), YELLOW, "warning:"),
        (lambda screen: screen.error("x: is wrong"), RED, "error:"),
    ],
)
def test_messages_are_coloured_by_their_kind(
    say: Callable[[Console], None], colour: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert on_screen("stderr", monkeypatch, say) == [(colour, word)]


def test_a_verdict_is_coloured_by_its_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where lines are wrapped, and whatever the findings say."""
    named = replace(failing(), converted="PASS  ok", checkpoint="FAIL")
    verdicts = [(passing(), [GREEN] * 6), (named, [RED, GREEN, GREEN, RED, RED, RED]),
                (incomplete(), [YELLOW, YELLOW, GREEN, YELLOW, GREEN, YELLOW])]  # fmt: skip
    for verdict, colours in verdicts:
        found = on_screen("stdout", monkeypatch, partial(Console.show, text=render_text(verdict)))
        assert [colour for colour, _ in found] == colours
        assert [word for _, word in found] == [outcome(verdict), *(gate.outcome for gate in verdict.gates)]


def test_words_of_a_plain_text_are_not_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_screen("stdout", monkeypatch, lambda screen: screen.show("PASS  x\nerror: y\nok z")) == []


def test_marks_stay_at_their_lines() -> None:
    text = joined(["plain\ntext", outcome_line(6, "a"), joined(["", marked("  NO  b", "NO", "bad")])])
    assert text == "plain\ntext\nINCOMPLETE  a\n\n  NO  b"
    assert text.marks == {2: (10, "doubtful"), 4: (2, "bad")}


def test_lines_are_broken_between_words() -> None:
    line = "  assumed     prediction_target=noise, dropout=0.1, boundary_mode=symmetric, wavelet=db2"
    assert wrapped(line, 48) == ["  assumed     prediction_target=noise,", "              dropout=0.1,",
                                 "              boundary_mode=symmetric,", "              wavelet=db2"]  # fmt: skip
    assert wrapped("wrote /a/very/long/path/that/must/not/be/broken.keras now", 30) == [
        "wrote", "  /a/very/long/path/that/must/not/be/broken.keras", "  now",
    ]  # fmt: skip
    assert wrapped(line, 200) == [line]
    for width in range(20, 100):
        parts = wrapped(line, width)
        assert " ".join(" ".join(parts).split()) == " ".join(line.split())
        assert all(len(part) <= width or " " not in part.strip() for part in parts)


UNBROKEN = [
    ("  encoder.layers.0.attn.qkv_projection  float32 (128, 32)",
     ["  encoder.layers.0.attn.qkv_projection", "    float32 (128, 32)"]),
    ("  a.very.long.name.of.a.tensor.in.a.model.of.models  float32 (1, 2)",
     ["  a.very.long.name.of.a.tensor.in.a.model.of.models", "    float32 (1, 2)"]),
    ("   Keras    Dense(units=3), sizes: {w: 3, h: 3}",
     ["   Keras    Dense(units=3), sizes:", "            {w: 3, h: 3}"]),
    ("  note  see f(a, (b, [c, d])) of it, and (one that is much longer than the whole screen is)",
     ["  note  see f(a, (b, [c, d])) of it, and", "        (one that is much longer than",
      "        the whole screen is)"]),
    ("  note  never closed ( as in a title of a b c", ["  note  never closed ( as in a title of", "        a b c"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "parts"), UNBROKEN, ids=range(len(UNBROKEN)))
def test_brackets_are_not_broken(line: str, parts: list[str]) -> None:
    assert wrapped(line, 40) == parts


def test_an_error_is_one_line_on_any_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    Console().error("a.ckpt: no such file; check the path, and that the disk is mounted")
    assert screen.getvalue() == "error: a.ckpt: no such file; check the path, and that the disk is mounted\n"


def test_a_terminal_gets_both(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    Console().show(outcome_line(0, "a.keras computes what a.ckpt computes, assuming dropout 0.1"))
    assert (
        out.getvalue()
        == "\x1b[32m\x1b[1mPASS\x1b[0m  a.keras computes what a.ckpt\n      computes, assuming dropout 0.1\n"
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(save(tmp_path / "a.ckpt", make_state(TWO_LEVELS)))


def test_quiet(checkpoint: str, cli: Cli) -> None:
    assert cli("convert", checkpoint, "-q", *TWO_LEVELS_SET) == ("", "")
    assert cli("inspect", "--quiet", checkpoint).out.startswith("a.ckpt\n"), "what was asked for"
    assert "exists already" in cli("convert", checkpoint, "-q", *TWO_LEVELS_SET, code=2).err


def test_quiet_with_a_document(checkpoint: str, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """On every verb: only the verdict, for the text is in the file."""
    monkeypatch.chdir(Path(checkpoint).parent)
    own = ground() / "own.yaml"
    said = {
        f"convert a.ckpt {' '.join(TWO_LEVELS_SET)}": "",
        "inspect a.ckpt": "",
        "map diff a.ckpt b.ckpt": "",
        "map explain time_embedding.mlp.0.weight a.keras": "",
        f"map check {own}": f"PASS  {own} is sound, as far as the table alone shows\n",
        "export a.keras --to torch": "",
        "record tests.user_model:two_levels a.ckpt": "",
    }
    Path("b.ckpt").write_bytes(Path("a.ckpt").read_bytes())
    for words, line in said.items():
        assert cli(*words.split(), "-q", "--json=out.json") == (line, ""), words
        assert Path("out.json").stat().st_size, words
        Path("out.json").unlink()


def test_verbose(checkpoint: str, cli: Cli) -> None:
    before = cli("inspect", checkpoint).out
    shown = cli("inspect", checkpoint, "-v")
    assert shown.out == before
    assert re.search(r"^  wdport    \d", shown.err, re.MULTILINE)
    assert f"  folder    {os.getcwd()}\n" in shown.err
    assert re.search(r"^  total     \d+\.\d\d s", shown.err, re.MULTILINE)
    assert cli("inspect", checkpoint).err == "", "nothing is left of -v for the next run in this process"
