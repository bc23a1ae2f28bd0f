"""Output for people: colour, wrapped lines, verbosity (-q, -v), facts in columns, and progress displays.

Only terminals get colour and line breaks. Output to a file or a pipe is plain and not wrapped, and so are errors. Verbs
give one line per fact: this is the only place that wraps.

A progress display is shown only if standard error is a terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from textwrap import wrap
from typing import Any, Final, TextIO

import click

from wdport.base.errors import printable
from wdport.base.marked_text import Mark, Severity, marked, marks_of

NARROWEST: Final = 20
"""Columns; lines are not wrapped for narrower terminals."""

_STYLES: Final[Mapping[Severity, dict[str, Any]]] = {
    "good": {"fg": "green", "bold": True},
    "bad": {"fg": "red", "bold": True},
    "doubtful": {"fg": "yellow", "bold": True},
    "note": {"fg": "cyan"},
}

_GAP: Final = re.compile(r"(?<=\S) {2,}(?=\S)")
_SOLID: Final = "\0"
"""A space at which a line is not broken; printable text has no such character."""


@dataclass
class Console:
    """Output settings of this run; with ``machine``, standard output is a JSON document."""

    quiet: bool = False
    verbose: bool = False
    machine: bool = False
    started: float = field(default_factory=time.monotonic)

    def reset(self) -> None:
        """Back to the defaults, and the clock to now."""
        vars(self).update(vars(Console()))

    def show(self, text: str) -> None:
        """Print a requested result."""
        _print(text, sys.stdout)

    def account(self, text: str) -> None:
        """Print what was done, unless under -q or replaced by a document."""
        if not (self.quiet or self.machine):
            self.show(text)

    def note(self, text: str) -> None:
        """Print a note on standard error, unless under -q."""
        if not self.quiet:
            _print(marked(f"note: {text}", "note:", "note"), sys.stderr)

    def warn(self, text: str) -> None:
        """Print a warning on standard error that a result is not trustworthy."""
        _print(marked(f"warning: {text}", "warning:", "doubtful"), sys.stderr)

    def detail(self, text: str) -> None:
        """Print a detail on standard error under -v."""
        if self.verbose:
            _print(text, sys.stderr)

    def error(self, line: str) -> None:
        """Print an error on standard error, in one line on any screen; only the exit code is left if that fails."""
        with suppress(OSError):
            _print(marked(f"error: {line}", "error:", "bad"), sys.stderr, wrap=False)

    def interrupted(self, line: str) -> None:
        """The same for an interruption; on a terminal below the line with ``^C``."""
        with suppress(OSError):
            if _terminal(sys.stderr):
                click.echo(err=True)
        self.error(line)


console: Final = Console()
"""The console of this process."""


def coloured(stream: TextIO) -> bool:
    """Whether to colour what goes to ``stream``: NO_COLOR, then FORCE_COLOR and CLICOLOR_FORCE, then CLICOLOR and TERM,
    then whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if os.environ.get("CLICOLOR") == "0" or os.environ.get("TERM") == "dumb":
        return False
    return _terminal(stream)


def width_of(stream: TextIO) -> int | None:
    """Columns of a terminal; None if the stream is not a terminal."""
    if not _terminal(stream):
        return None
    columns = shutil.get_terminal_size().columns
    return columns if columns >= NARROWEST else None


def wrapped(line: str, width: int) -> list[str]:
    """Wrap a line between words, but not within brackets that fit on one line.

    Continuation lines are indented to its last column, or by two if it has none. A word wider than the screen is whole.
    """
    if len(line) <= width or not line.strip():
        return [line]
    start = len(line) - len(line.lstrip())
    gaps = [gap.end() for gap in _GAP.finditer(line) if gap.end() <= width // 2]
    hang = " " * (gaps[-1] if gaps else min(start + 2, width // 2))
    parts = wrap(
        _unbroken(line[start:], width - len(hang)), width, initial_indent=line[:start], subsequent_indent=hang,
        expand_tabs=False, replace_whitespace=False, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [part.replace(_SOLID, " ") for part in parts]


def _unbroken(text: str, room: int) -> str:
    """The text with solid spaces in brackets that fit into ``room``."""
    words, joined = text.split(" "), list[str]()
    while words:
        for end in range(1, len(words) + 1):
            part = _SOLID.join(words[:end])
            depth = sum(map(part.count, "([{")) - sum(map(part.count, ")]}"))
            if depth <= 0 or len(part) > room:
                break
        fits = depth == 0 and len(part) <= room
        joined.append(part if fits else words[0])
        del words[: end if fits else 1]
    return " ".join(joined)


def painted(line: str, mark: Mark) -> str:
    """The line with its mark coloured."""
    start = len(line) - len(line.lstrip())
    end = start + mark.length
    return f"{line[:start]}{click.style(line[start:end], **_STYLES[mark.severity])}{line[end:]}"


def _inert(line: str) -> str:
    """The line without characters that a terminal obeys, and without a command for the runner of a CI."""
    escaped = printable(line, None).replace("##[", r"#\x23[")
    start = len(escaped) - len(escaped.lstrip())
    return f"{escaped[:start]}\\x3a{escaped[start + 1 :]}" if escaped.startswith("::", start) else escaped


def _print(text: str, stream: TextIO, wrap: bool = True) -> None:
    width = width_of(stream) if wrap else None
    marks = marks_of(text) if coloured(stream) else {}
    lines = []
    for number, line in enumerate(text.split("\n")):
        first, *rest = [_inert(line)] if width is None else wrapped(_inert(line), width)
        lines += [painted(first, marks[number]) if number in marks else first, *rest]
    click.echo("\n".join(lines), err=stream is sys.stderr, color=coloured(stream))


def _terminal(stream: TextIO) -> bool:
    with suppress(AttributeError, ValueError, OSError):
        return stream.isatty()
    return False


LONGEST_FACT = 2000
"""Characters; the middle of longer texts is left out."""


def size(count: int) -> str:
    """A readable number of bytes: ``5.8 MB``."""
    number = float(count)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.2f} GB"


def counted(number: int, word: str) -> str:
    """``1 tensor``, ``2 tensors``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def first_of(lines: Sequence[str], limit: int) -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - limit
    return [*lines[:limit], f"and {more} more, all with --json"] if more > 0 else list(lines)


def facts(pairs: Sequence[tuple[str, object]]) -> str:
    """Label and value per line, labels in a column; empty values are left out."""
    rows = [(printable(label, LONGEST_FACT), printable(value, LONGEST_FACT)) for label, value in pairs
            if value not in ("", None)]  # fmt: skip
    width = max((len(label) for label, _ in rows), default=0)
    return "\n".join(f"  {label:<{width}}  {value}" for label, value in rows)


Step = Callable[[str], None]


@contextmanager
def _bar(
    name: str, column: Callable[[Any], Any], width: int = 30, **texts: Any
) -> Iterator[Callable[..., None] | None]:  # fmt: skip
    """A bar on standard error and the function that updates it; ``None`` if that is not a terminal.

    ``column``, of the module ``rich.progress``, comes after the bar, which is ``width`` characters wide; ``texts`` are
    for the column.
    """
    if not _shown():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(width), column(progress),
               progress.TimeRemainingColumn())  # fmt: skip
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield partial(bar.update, bar.add_task(name, total=None, **texts))


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar of bytes on standard error; ``None`` if that is not a terminal."""
    with _bar(title, lambda progress: progress.DownloadColumn(), 40) as update:
        yield update and (lambda done, total: update(completed=done, total=total))


@contextmanager
def steps() -> Iterator[Step | None]:
    """A spinner with the current step on standard error; under -v a line with the time of each finished step.

    ``None`` with neither a terminal nor -v.
    """
    if console.verbose:
        yield from _timed()
        return
    if not _shown():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


def _timed() -> Iterator[Step]:
    name, since = "starting", time.monotonic()

    def begin(step: str) -> None:
        nonlocal name, since
        now = time.monotonic()
        console.detail(f"{now - since:8.2f} s  {name}")
        name, since = step, now

    try:
        yield begin
    finally:
        begin("")


def _shown() -> bool:
    """Whether progress is shown: on a terminal, without -q."""
    return sys.stderr.isatty() and not console.quiet


@contextmanager
def samples_bar(count: int, already: int) -> Iterator[Callable[[float], None] | None]:
    """A progress bar of samples on standard error; ``None`` if that is not a terminal.

    It shows "compiling" until the first call; its samples per second exclude that time.
    """
    began: tuple[float, float] | None = None  # seconds, and samples done at that time
    counts = f"{already}/{count}"
    with _bar("compiling", lambda progress: progress.TextColumn("{task.fields[counts]}"), counts=counts) as update:

        def show(done: float) -> None:
            nonlocal began
            assert update is not None
            if began is None:
                began = time.monotonic(), done
            rate = (done - began[1]) / max(time.monotonic() - began[0], 1e-9)
            text = f"{int(done)}/{count}" + (f", {rate:.3g} samples/s" if done > began[1] else "")
            update(description="sampling", total=count, completed=done, counts=text)

        yield update and show


@contextmanager
def scores_bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """A progress bar of named steps on standard error; ``None`` if that is not a terminal."""
    with _bar("starting", lambda progress: progress.MofNCompleteColumn()) as update:
        yield update and (lambda done, total, what: update(description=what or "done", completed=done, total=total))
