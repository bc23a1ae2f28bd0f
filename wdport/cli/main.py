"""`wdport`: the command group, and the one place where an error becomes a line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module

import click

from wdport.cli.failures import UnexpectedEnd, discard_output, end_output, failure_of, lost_output, open_streams
from wdport.cli.signals import ignore_signals, resend_lost_signals, signal_of, unwind_at_sigterm
from wdport.errors import WdportError, printable
from wdport.files.written import WRITTEN, what_was_written
from wdport.limits import MAX_MESSAGE_CHARS
from wdport.version import VERSION

VERBS = {
    "convert": "Convert a PyTorch checkpoint into a Keras model file.",
    "verify": "Run both models side by side and compare them layer by layer.",
    "record": "Record your own PyTorch model, for verify where torch is not installed.",
    "sample": "Draw samples from a converted model into a file.",
    "export": "Write a converted model as StableHLO, to run with jax alone.",
    "inspect": "Show what is in a checkpoint or a converted model.",
    "map": "Outline a PyTorch model; find, check, explain and compare mapping tables.",
    "selftest": "Measure what verify can find, with known faults in small models.",
}


class Verbs(click.Group):
    """Subcommands imported when they are called, so that `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"wdport.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except EOFError as error:  # click takes it for an interruption
            raise UnexpectedEnd from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="wdport")
def group() -> None:
    """Move trained models from PyTorch to Keras 3 on JAX, and prove that nothing changed."""


def run() -> None:
    """Entry point: run the command line and exit with its code."""
    open_streams()
    resend_lost_signals()
    code = main()
    end_output()
    ignore_signals()
    if not code:  # nothing is running any more
        gc.freeze()  # else the interpreter goes through all objects of jax before it ends, for a tenth of a second
    sys.exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code. See the README for what each code means."""
    unwind_at_sigterm()
    WRITTEN.clear()
    try:
        if not (sys.argv[1:] if arguments is None else arguments):
            click.echo(group.make_context("wdport", [], resilient_parsing=True).get_help())
            return 2
        result = group.main(args=arguments, prog_name="wdport", standalone_mode=False)
        if fault := lost_output():
            return _fail(fault)
        return result if isinstance(result, int) else 0
    except WdportError as error:
        return _fail(error)
    except click.ClickException as error:
        return _line(f"{printable(error.format_message(), 180)}; see wdport --help", 2)
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


def _fail(error: WdportError) -> int:
    """All collected faults on standard output, the line on standard error."""
    with suppress(OSError):
        if len(error.details) > 1:
            for detail in error.details:
                click.echo(f"  {detail}")
    return _say(f"error: {error}", error.exit_code)  # as it is: an error cuts itself, but for its path


def _line(text: str, code: int) -> int:
    line = f"error: {text}"
    return _say(line if len(line) <= MAX_MESSAGE_CHARS else printable(line, MAX_MESSAGE_CHARS), code)


def _say(line: str, code: int) -> int:
    with suppress(OSError):  # the code has to do where nothing can be said
        click.echo(line, err=True)
    return code
