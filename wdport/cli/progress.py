"""What a terminal shows while something takes time; nothing where standard error is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Step = Callable[[str], None]
Count = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str) -> Iterator[Count | None]:
    """A bar of bytes on standard error; ``None`` where that is no terminal."""
    if not sys.stderr.isatty():
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
    """A spinner with the current step on standard error; ``None`` where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


@contextmanager
def samples_bar(count: int, already: int) -> Iterator[Callable[[float], None] | None]:
    """A bar of samples on standard error, with samples per second; ``None`` where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("sampling"), BarColumn(), TextColumn("{task.fields[told]}"), TimeRemainingColumn())
    started = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sampling", total=count, completed=already, told=f"{already}/{count}")

        def update(done: float) -> None:
            rate = (done - already) / max(time.monotonic() - started, 1e-9)
            bar.update(task, completed=done, told=f"{int(done)}/{count}, {rate:.3g} samples/s")

        yield update
