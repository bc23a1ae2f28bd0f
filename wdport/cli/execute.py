"""The group of all verbs, where an error becomes a line and an exit code, and the summary of -v."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from contextlib import suppress
from typing import Final

import click
from click.shell_completion import shell_complete

from wdport.base.errors import WdportError
from wdport.base.version import VERSION
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import require_supported
from wdport.cli import completion
from wdport.cli.console import console, facts
from wdport.cli.documents import give_faults
from wdport.cli.foreign_errors import failure_of, lost_output
from wdport.cli.signals import discard_output, signal_of
from wdport.cli.verb import HELP, Verbs, usage_error
from wdport.families.shipped import HOME
from wdport.files.atomic import WRITTEN
from wdport.recording.errors import Refusal

LIBRARIES = ("numpy", "jax", "keras", "torch", "h5py", "safetensors", "click")
"""Packages whose versions are shown if they were imported."""

READER_GONE: Final = 141
"""The exit code if the reader of the output has exited: that of a process ended by SIGPIPE."""

VERBS = {
    "convert": "Convert a PyTorch checkpoint into a Keras model file.",
    "verify": "Run both models side by side and compare them layer by layer.",
    "record": "Record outputs of your own PyTorch model, so that verify can run without torch.",
    "train": "Train a new model, or continue training a converted one.",
    "sample": "Draw samples from a converted model into a file.",
    "evaluate": "Score generated series, or settings of a sampler, against real series.",
    "generate": "Fill gaps in texts, or continue texts, with a converted language model.",
    "encode": "Encode a video with a converted autoencoder.",
    "decode": "Decode latents with a converted autoencoder.",
    "export": "Export a converted model as StableHLO, to run with only JAX, or as PyTorch tensors.",
    "inspect": "Show what is in a checkpoint or a converted model.",
    "port": "Write the Keras model of a PyTorch model, with its table, and prove it.",
    "map": "Outline a PyTorch model; find, check, explain and compare mapping tables.",
    "selftest": "Measure which known faults verify detects in small models.",
}

CODES = (
    "Exit codes: 0 done, or equal; 1 different; 2 invalid command line; 3 bad input; 4 table, "
    "configuration and file do not match; 5 the system refused an operation, or a package is missing; 6 "
    "something was not compared; 70 a bug in wdport."
)
COMPLETION = 'Tab completion: eval "$(_WDPORT_COMPLETE=bash_source wdport)"; also zsh_source and fish_source.'


class _Verbs(Verbs):
    """All verbs."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in VERBS:
            require_supported()
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings=HELP, epilog=f"{CODES}\n\n{COMPLETION}", modules={
    **{name: f"wdport.cli.{name}:command" for name in VERBS},
    **{name: f"{HOME}.cli.{name}:command" for name in ("train", "sample", "evaluate", "generate", "export")},
    **{name: f"{HOME}.cli.codec:{name}" for name in ("encode", "decode")},
})  # fmt: skip
@click.version_option(VERSION, prog_name="wdport")
def group() -> None:
    """Move trained models from PyTorch to Keras 3 on JAX, and prove that nothing changed."""


def execute(words: list[str]) -> int:
    """Run a command line, and print its error if it fails; the exit code.

    Raises interruptions, in the form in which a library passes them on.
    """
    WRITTEN.clear()
    console.reset()
    try:
        code = _complete() if completion.VARIABLE in os.environ else _run(words)
        fault = lost_output()
        return _fail(fault) if fault else code
    except click.ClickException as error:
        return _fail(usage_error(error))
    except BrokenPipeError:
        discard_output(sys.stdout)
        return READER_GONE
    except Exception as error:
        if signal_of(error) is not None:  # an interruption may have caused it
            raise
        debug = os.environ.get("WDPORT_DEBUG", "0") not in ("", "0")
        if isinstance(error, WdportError):
            if debug and (origin := _origin(error)) is not None:
                traceback.print_exception(origin)
            return _fail(error)
        if debug:
            raise
        return _fail(failure_of(error))
    finally:
        _tell_run()


def _run(words: list[str]) -> int:
    """Run a verb as click's ``main`` does, which would convert an interruption to an Abort, and end the process if the
    reader of the output has exited."""
    try:
        with group.make_context("wdport", list(words)) as context:
            result = group.invoke(context)
    except click.exceptions.Exit as error:
        return error.exit_code
    return result if isinstance(result, int) else 0


def _complete() -> int:
    return shell_complete(group, {}, "wdport", completion.VARIABLE, os.environ[completion.VARIABLE])


def _origin(error: BaseException) -> BaseException | None:
    """The error, often of a user's own code, that an error in one line is raised for; None if there is none."""
    cause = error.__cause__ or error.__context__  # the latter also if it is suppressed
    if isinstance(cause, (WdportError, Refusal, Fault)):
        return _origin(cause)
    return cause


def _fail(error: WdportError) -> int:
    """Print all collected faults on standard output, and the error line on standard error."""
    with suppress(OSError):
        give_faults(error)
    console.error(error.command_line)  # unchanged: an error shortens itself, except for its path
    return error.exit_code


def _tell_run() -> None:
    """Print the summary on standard error under -v."""
    if not console.verbose:
        return
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    rows = [
        ("wdport", f"{VERSION}, {os.path.dirname(os.path.dirname(__file__))}"),
        ("python", f"Python {platform.python_version()} on {system}"),
        ("versions", ", ".join(_versions())),
        ("folder", _folder()),
        ("programs", _cache()),
        ("total", f"{time.monotonic() - console.started:.2f} s{_memory()}"),
    ]
    with suppress(OSError):
        console.detail(facts(rows))


def _versions() -> list[str]:
    from importlib.metadata import PackageNotFoundError, version

    releases = []
    for name in LIBRARIES:
        if name in sys.modules:
            with suppress(PackageNotFoundError):
                releases.append(f"{name} {version(name)}")
    return releases


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "removed"


def _cache() -> str:
    if "jax" not in sys.modules:
        return ""
    folder = sys.modules["jax"].config.jax_compilation_cache_dir
    return f"compiled programs are kept in {folder}" if folder else "compiled programs are not kept"


def _memory() -> str:
    """The peak memory use; "" if the system does not report it."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return ""
    peak = getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f", peak memory {peak / 1e9:.2f} GB"
