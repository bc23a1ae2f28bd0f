"""Progress displays; none if standard error is not a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wdport.cli.console import console

Step = Callable[[str], None]
Count = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str) -> Iterator[Count | None]:
    """A progress bar of bytes on standard error; ``None`` if that is not a terminal."""
    if not _shown():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update


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
        console.stage(name, now - since)
        name, since = step, now

    try:
        yield begin
    finally:
        console.stage(name, time.monotonic() - since)


def _shown() -> bool:
    """Whether progress is shown: on a terminal, without -q."""
    return sys.stderr.isatty() and not console.quiet


@contextmanager
def samples_bar(count: int, already: int) -> Iterator[Callable[[float], None] | None]:
    """A progress bar of samples on standard error; ``None`` if that is not a terminal.

    It shows "compiling" until the first call; its samples per second exclude that time.
    """
    if not _shown():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(30),
        TextColumn("{task.fields[counts]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=None, counts=f"{already}/{count}")
        began: tuple[float, float] | None = None  # seconds, and samples done at that time

        def update(done: float) -> None:
            nonlocal began
            if began is None:
                began = time.monotonic(), done
            rate = (done - began[1]) / max(time.monotonic() - began[0], 1e-9)
            count_text = f"{int(done)}/{count}" + (f", {rate:.3g} samples/s" if done > began[1] else "")
            bar.update(task, description="sampling", total=count, completed=done, counts=count_text)

        yield update


@contextmanager
def scores_bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """A progress bar of named steps on standard error; ``None`` if that is not a terminal."""
    if not _shown():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def update(done: int, total: int, what: str) -> None:
            bar.update(task, description=what or "done", completed=done, total=total)

        yield update
