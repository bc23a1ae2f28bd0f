"""Raise exceptions on signals, so that temporary files are always removed."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Protocol

SOON = 0.05
"""Seconds."""


class Unraisable(Protocol):
    """The argument of Python's unraisable hook, whose own class does not exist at run time."""

    exc_type: type[BaseException]
    exc_value: BaseException | None
    exc_traceback: TracebackType | None
    err_msg: str | None
    object: object


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does."""


def unwind_at_sigterm() -> None:
    """Let SIGTERM raise :class:`Terminated`."""
    signal.signal(signal.SIGTERM, _terminate)


def ignore_signals() -> None:
    """Ignore signals when everything is done, so that the exit code is final."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def resend_lost_signals() -> None:
    """Send a signal again if Python dropped its exception, as it does in a garbage collection with a callback of
    jax."""
    sys.unraisablehook = _dropped


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _dropped(dropped: Unraisable) -> None:
    if not isinstance(dropped.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    again = threading.Timer(SOON, signal.raise_signal, (signal_of(dropped.exc_value),))
    again.daemon = True
    again.start()


def signal_of(error: BaseException) -> int:
    """The signal that raised ``error``."""
    return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
