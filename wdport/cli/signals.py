"""Signals as exceptions, so that temporary files are always removed; and the standard streams, opened and flushed.

Click only makes an Abort of Ctrl-C. An exception while an extension module is loaded comes out as another, or ends the
process; so the signal is then sent again a little later.

Output that is lost at exit changes the exit code; neither Python nor click does this.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Final, TextIO

SOON: Final = 0.05
"""Seconds."""

MOST: Final = 100
"""Times that a signal is sent again while extension modules are loaded."""

_ARRIVED: Final[list[int]] = []


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does."""


def catch_signals() -> None:
    """Let SIGTERM raise :class:`Terminated`, and SIGINT ``KeyboardInterrupt`` unless it is ignored or handled."""
    _ARRIVED.clear()
    signal.signal(signal.SIGTERM, _raise)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)


def ignore_signals() -> None:
    """Ignore signals when everything is done, so that the exit code is final."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def resend_lost_signals() -> None:
    """Send a signal again if Python dropped its exception, as it does in a garbage collection with a callback of
    jax."""
    sys.unraisablehook = _dropped


def signal_of(error: BaseException) -> int | None:
    """The signal that raised ``error``, or that arrived before it; None without one."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    return _ARRIVED[-1] if _ARRIVED else None


def _raise(number: int, frame: FrameType | None) -> None:
    _ARRIVED.append(number)
    if len(_ARRIVED) <= MOST and _loads_extension(frame):
        _send_again(number)
        return
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _loads_extension(frame: FrameType | None) -> bool:
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
            return True
        frame = frame.f_back
    return False


def _dropped(dropped: sys.UnraisableHookArgs) -> None:
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        _send_again(signal_of(dropped.exc_value) or signal.SIGINT)
    else:
        sys.__unraisablehook__(dropped)


def _send_again(number: int) -> None:
    again = threading.Timer(SOON, signal.pthread_kill, (threading.main_thread().ident, number))
    again.daemon = True
    again.start()


def open_streams() -> None:
    """Open closed standard streams: the next opened file would get their descriptor, and be written to by accident.

    Standard output is opened so that writing fails, because the loss of the output must be reported.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free descriptor, which is this one
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # characters that the encoding of the terminal lacks


def end_output() -> None:
    """Flush buffered output, or discard it: Python would exit with another code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            discard_output(stream)


def discard_output(stream: TextIO) -> None:
    """Discard the buffered output of a stream: Python would try again at exit, and fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
