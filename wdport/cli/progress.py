"""Progress displays; none if standard error is not a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from wdport.cli.console import console

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
