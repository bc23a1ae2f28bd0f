"""`wdport`: the command group, and the only place where an error becomes a line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import ClassVar

import click

from wdport.backend import use_jax
from wdport.cli import completion
from wdport.cli.account import tell_run
from wdport.cli.console import console
from wdport.cli.failures import UnexpectedEnd, discard_output, end_output, failure_of, lost_output, open_streams
from wdport.cli.signals import ignore_signals, resend_lost_signals, signal_of, unwind_at_sigterm
from wdport.cli.usage import usage_error
from wdport.cli.verb import HELP, Verbs
from wdport.errors import WdportError, printable
from wdport.files.written import WRITTEN, what_was_written
from wdport.limits import MAX_MESSAGE_CHARS
from wdport.version import VERSION

VERBS = {
    "convert": "Convert a PyTorch checkpoint into a Keras model file.",
    "verify": "Run both models side by side and compare them layer by layer.",
    "record": "Record your own PyTorch model, for verify where torch is not installed.",
    "sample": "Draw samples from a converted model into a file.",
    "encode": "Encode a video with a converted autoencoder.",
    "decode": "Decode latents with a converted autoencoder.",
    "export": "Export a converted model as StableHLO, to run with only jax.",
    "inspect": "Show what is in a checkpoint or a converted model.",
    "map": "Outline a PyTorch model; find, check, explain and compare mapping tables.",
    "selftest": "Measure which known faults verify detects in small models.",
}

COMPLETION = 'Tab completion: eval "$(_WDPORT_COMPLETE=bash_source wdport)"; also zsh_source and fish_source.'


class _Verbs(Verbs):
    """All verbs."""

    modules: ClassVar = {name: f"wdport.cli.{name}" for name in VERBS}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in VERBS:
            from wdport.checkpoint.regular import require_supported

            require_supported()
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except EOFError as error:  # click takes it for an interruption
            raise UnexpectedEnd from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings=HELP, epilog=COMPLETION)
@click.version_option(VERSION, prog_name="wdport")
def group() -> None:
    """Move trained models from PyTorch to Keras 3 on JAX, and prove that nothing changed."""


def run() -> None:
    """Entry point: run the command line and exit with its code."""
    open_streams()
    use_jax()
    resend_lost_signals()
    code = main()
    end_output()
    ignore_signals()
    if not code:  # nothing is running any more
        gc.freeze()  # otherwise the interpreter traverses all objects of jax before it exits, for a tenth of a second
    sys.exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code. See the README for what each code means."""
    unwind_at_sigterm()
    WRITTEN.clear()
    console.reset()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if not words and completion.VARIABLE not in os.environ:
            click.echo(group.make_context("wdport", [], resilient_parsing=True).get_help())
            return 2
        completion.prepare()
        result = group.main(args=arguments, prog_name="wdport", standalone_mode=False)
        if fault := lost_output():
            return _fail(fault)
        return result if isinstance(result, int) else 0
    except WdportError as error:
        return _fail(error)
    except click.ClickException as error:
        return _fail(usage_error(error))
    except (KeyboardInterrupt, click.exceptions.Abort) as error:
        interruption = error.__cause__ or error
        return _line(str(interruption) or f"interrupted; {what_was_written()}", 128 + signal_of(interruption))
    except BrokenPipeError:
        discard_output()
        return 141
    except Exception as error:
        if os.environ.get("WDPORT_DEBUG"):
            raise
        return _fail(failure_of(error))
    finally:
        tell_run()


def _fail(error: WdportError) -> int:
    """Print all collected faults on standard output, unless that is a document; the error line on standard error."""
    with suppress(OSError):
        if len(error.details) > 1:
            for detail in error.details:
                click.echo(f"  {detail}", err=console.machine)
    console.error(error.command_line)  # unchanged: an error shortens itself, except for its path
    return error.exit_code


def _line(text: str, code: int) -> int:
    console.error(text if len(text) <= MAX_MESSAGE_CHARS else printable(text, MAX_MESSAGE_CHARS))
    return code
