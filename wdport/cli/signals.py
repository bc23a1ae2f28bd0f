"""Raise exceptions on signals, so that temporary files are always removed; and remember that one has arrived.

Click only makes an Abort of Ctrl-C. An exception while an extension module is loaded comes out as another, or ends the
process; so the signal is then sent again a little later.
"""

from __future__ import annotations

import signal
import sys
import threading
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Final

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
