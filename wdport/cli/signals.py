"""Signals unwind like exceptions, so that temporary files go, wherever they arrive."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

SOON = 0.05
"""Seconds."""


def unwind_at_sigterm() -> None:
    """End by SIGTERM as by Ctrl-C."""
    signal.signal(signal.SIGTERM, _terminate)


def resend_lost_signals() -> None:
    """What a signal raises within a collection of garbage, where jax has a part, Python drops: send it once more."""
    sys.unraisablehook = _dropped


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _dropped(dropped: Any) -> None:
    error = dropped.exc_value
    if isinstance(error, KeyboardInterrupt):
        number = signal.SIGINT
    elif isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
        number = signal.SIGTERM
    else:
        sys.__unraisablehook__(dropped)
        return
    again = threading.Timer(SOON, signal.raise_signal, (number,))
    again.daemon = True
    again.start()
