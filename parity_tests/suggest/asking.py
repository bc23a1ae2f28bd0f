"""One run of ``wdport map suggest``: its command line, and everything that it answers."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wdport.cli.main import main

from .corpus import Pair
from .names import How


@dataclass(frozen=True)
class Answer:
    """What the command said.

    Attributes:
        code: its exit code.
        table: the file that it wrote, if any.
        doubts: comment lines of the table that begin with ``doubt:``, and the list of the JSON answer.
        first_unlike: the first layer that does not agree, as the JSON has it; ``None`` where all do.
        causes: sentences about the hyper-parameter.
        seconds: wall time of the whole command, its proof included.
        document: the whole JSON answer.
    """

    code: int
    table: Path | None
    doubts: tuple[str, ...] = ()
    first_unlike: Mapping[str, Any] | None = None
    causes: tuple[str, ...] = ()
    seconds: float = 0.0
    document: Mapping[str, Any] = field(default_factory=dict)


Suggest = Callable[[Pair, How, Path], Answer]
"""Asks about a pair, with this naming, for a table of this name."""


def ask(pair: Pair, names: How, output: Path) -> Answer:
    """The command line, in this process."""
    return run_command(pair.reference(names), pair.model, pair.inputs, output)


def run_command(reference: str, model: str, inputs: Sequence[str], output: Path) -> Answer:
    """``wdport map suggest`` with these functions."""
    words = ["map", "suggest", "--reference", reference, "--keras-model", model, "--json", "-o", str(output)]
    words += [word for text in inputs for word in ("--input", text)]
    printed, told = io.StringIO(), io.StringIO()
    shown = sys.stderr
    start = time.perf_counter()
    try:
        with redirect_stdout(printed), redirect_stderr(told):
            code = main(words)
    finally:
        sys.stderr = shown
    return _read_answer(code, output, printed.getvalue(), time.perf_counter() - start)


def _read_answer(code: int, output: Path, printed: str, seconds: float) -> Answer:
    """The exit code, the table with its comments, and the JSON on standard output."""
    at = printed.find("{")
    try:
        document = json.loads(printed[at:]) if at >= 0 else {}
    except json.JSONDecodeError:
        document = {}
    table = output if output.is_file() else None
    comments = re.findall(r"#\s*doubt:\s*(.*)", table.read_text(encoding="utf-8")) if table else []
    doubts = [*map(_text, document.get("doubts") or ()), *comments]
    unlike = document.get("first_unlike")
    causes = tuple(map(_text, document.get("causes") or ()))
    return Answer(code, table, tuple(doubts), unlike, causes, seconds, document)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
