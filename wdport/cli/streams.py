"""The standard streams at the start and the end of a run: closed ones opened, buffered output flushed or discarded.

Neither Python nor click does this: output that is lost at exit changes the exit code, or nobody is told.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


def open_streams() -> None:
    """Open closed standard streams: the next opened file would get their descriptor, and be written to by accident.

    Standard output is opened so that writing fails, because the loss of the output must be reported.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free descriptor, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # characters that the encoding of the terminal lacks


def discard_output() -> None:
    """Discard buffered output: Python would try again at exit, and fail."""
    _discard(sys.stdout)


def end_output() -> None:
    """Flush buffered output, or discard it: Python would exit with another code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _discard(stream)


def _discard(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
