"""A row of the table in; its commands run, and everything that a refusal must not do looked for."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bad.case import Bad
from tests.bad.ground import NAMES, ground, recording
from wdport.base.limits import MAX_MESSAGE_CHARS
from wdport.cli.main import main

LONGEST = 0.3
"""Seconds of computing that a refusal may take; the table is run in one process, with everything imported."""

HANG = 30.0
"""Seconds after which a child that should have refused is given up, on a machine that may be busy."""

MEMORY = 8 << 30
"""Address space of a child: what fills the memory is stopped before it fills the machine's."""

CHILD = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from wdport.cli.main import run
run()
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float


def place(bad: Bad, folder: Path) -> None:
    """Put the files of a row, and the good ones that its commands name, into ``folder``."""
    words = {word for command in bad.commands for word in shlex.split(command)}
    needed = [name for name in NAMES if name in words]
    if "good.run.npz" in needed:
        recording()
    made = [path for path, content in bad.files.items() if not isinstance(content, bytes)]
    copied = ground().iterdir() if made else [ground() / name for name in needed]
    for path in copied:
        if path.name not in bad.files and (path.name != "good.run.npz" or "good.run.npz" in needed):
            shutil.copy(path, folder / path.name)
    for name, content in bad.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)


def snapshot(folder: Path) -> dict[str, str]:
    """Every name below ``folder`` and the hash of what it is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            told = f"link to {os.readlink(path)}"
        elif path.is_file():
            told = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            told = f"mode {path.stat().st_mode:o}"
        found[str(path.relative_to(folder))] = told
    return found


def run(words: list[str], folder: Path, child: bool) -> Outcome:
    """Run one command line in ``folder``; ``code`` is -1 for a child that had to be stopped."""
    return _in_child(words, folder) if child else _here(words)


def _here(words: list[str]) -> Outcome:
    out, err, began = io.StringIO(), io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return Outcome(code, out.getvalue(), err.getvalue(), time.process_time() - began)


def _in_child(words: list[str], folder: Path) -> Outcome:
    root = str(Path(__file__).parents[2])
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root, "KERAS_BACKEND": "jax"},
    )  # fmt: skip
    try:
        out, err = child.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        return Outcome(-1, out, f"{err}(stopped after {HANG} s)", time.monotonic() - began)
    return Outcome(child.returncode, out, err, time.monotonic() - began)


def check(bad: Bad, folder: Path) -> None:
    """Run every command of a row; raises ``AssertionError`` for the first that does not refuse as it must."""
    before = snapshot(folder)
    for command in bad.commands:
        ended = run(shlex.split(command), folder, bad.child)
        said = f"{command}: {ended.code}, {ended.err.strip()[-600:]!r}"
        assert ended.code in bad.codes, said
        assert bad.pattern.fullmatch(ended.err), f"{said}\n is not {bad.line!r}"
        assert ended.err[:-1].isprintable(), said
        path = ([*ended.err.split(": "), ""])[1]  # which is never shortened
        assert len(ended.err) - 1 <= MAX_MESSAGE_CHARS + len(path), said
        assert "Traceback" not in ended.out + ended.err, said
        assert snapshot(folder) == before, f"{said}: the folder changed"
        if not (bad.child or bad.builds):
            assert _quick(ended.seconds, shlex.split(command), folder), f"{said}: took {ended.seconds:.2f} s"


def _quick(seconds: float, words: list[str], folder: Path) -> bool:
    """Whether a command is fast enough, in the best of some attempts, on a machine that may be busy with others."""
    allowed = LONGEST * max(1.0, _loop() / LOOP)
    return seconds < allowed or any(run(words, folder, False).seconds < allowed for _ in range(4))


LOOP = 0.015
"""Seconds that :func:`_loop` takes on one core of a machine with nothing else to do."""


def _loop() -> float:
    began, total = time.process_time(), 0
    for number in range(500_000):
        total += number & 3
    return time.process_time() - began
