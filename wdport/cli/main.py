"""`wdport`: the entry point. It catches signals before anything else is imported."""

from __future__ import annotations

import gc
import os
import signal
import sys

from wdport.cli.signals import catch_signals, end_output, ignore_signals, open_streams, resend_lost_signals, signal_of
from wdport.families.backend import import_less, use_jax


def run() -> None:
    """Entry point: run the command line and exit with its code."""
    catch_signals()
    os.umask(os.umask(0o022) | 0o022)  # other users may write to no file, whichever library writes it
    try:
        open_streams()
        use_jax()
        import_less()
        resend_lost_signals()
        code = main()
        end_output()
    except KeyboardInterrupt as error:  # a second one, while the first is reported
        code = 128 + (signal_of(error) or signal.SIGINT)
    ignore_signals()
    if not code:  # nothing is running any more
        gc.freeze()  # otherwise the interpreter traverses all objects of jax before it exits, for a tenth of a second
    sys.exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code. See docs/reference/exit-codes.md for what each code means."""
    catch_signals()
    try:
        from wdport.cli.execute import execute

        return execute(sys.argv[1:] if arguments is None else arguments)
    except BaseException as error:
        number = signal_of(error)
        if number is None:
            raise
        _tell(error, number)
        return 128 + number


def _tell(error: BaseException, number: int) -> None:
    """Print one line about an interruption: its own message, or what was written."""
    from wdport.base.errors import printable
    from wdport.cli.console import console
    from wdport.files.atomic import describe_written

    cause = "terminated" if number == signal.SIGTERM else "interrupted"
    left = str(error) if isinstance(error, KeyboardInterrupt) else ""
    console.interrupted(f"{cause}; {printable(left or describe_written(), None)}")
