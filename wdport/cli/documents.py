"""The JSON documents of --json: "schema", "kind", then the result; to standard output or a file; and other reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click
from click.shell_completion import CompletionItem

from wdport.base.errors import UsageError, WdportError, printable
from wdport.cli.completion import FilePath, matching
from wdport.cli.console import console
from wdport.files.outputs import OutputPath, is_replaceable, is_stream, require_apart, writable
from wdport.files.report_formats import FORMATS

STDOUT: Final[Literal["-"]] = "-"
_STANDARD_OUTPUT: Final = (STDOUT, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def mark_machine(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The value of --json, "-" for every name of standard output, which then gets only the document."""
    if value in _STANDARD_OUTPUT:
        console.machine = True
        return STDOUT
    return value


class Document(FilePath):
    """A file, or ``-`` for standard output; completed to JSON, and to any name while the word may be an argument."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        needed = (argument for argument in ctx.command.params if isinstance(argument, click.Argument))
        required = (argument.name or "" for argument in needed if argument.required or argument.nargs == -1)
        complete = all(map(ctx.params.get, required))
        names = matching(incomplete, (".json",) if complete else ())
        return [CompletionItem(name, type="path") for name in names]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)


Destination = OutputPath | Literal["-"] | None
"""Where --json writes: to a file, to standard output in place of text, or nowhere."""


_OTHERS: Final = {".pdf", *(suffix for report in FORMATS.values() for suffix in report.suffixes)}


def _require_suffix(option: str, path: Path, kind: str) -> None:
    """Refuse the name of a file of another kind."""
    suffixes = FORMATS[kind].suffixes if kind in FORMATS else ()
    if suffixes and path.suffix.lower() in _OTHERS - set(suffixes):
        name = printable(path.with_suffix(suffixes[0]).name)
        raise UsageError(path, f"`{option}` writes another kind of file", f"name it {name}")


def require_document(
    json_file: str | None, inputs: Mapping[str, Path], outputs: Mapping[str, Path | None] | None = None,
    force: bool = False,
) -> Destination:  # fmt: skip
    """Return where the document goes; refuse, before any work is done, a file that cannot be written, is an input or
    another output, or is not JSON of wdport, and outputs (None where there is none) that are the same file."""
    named = [(option, output) for option, output in (outputs or {}).items() if output]
    require_apart(named, {})
    if json_file is None or json_file == STDOUT:
        return STDOUT if json_file else None
    path = Path(json_file)
    require_apart([*named, ("--json", path)], inputs)
    _require_suffix("--json", path, "json")
    output = writable(path, inputs, True, "--json", streams=True)
    if not (force or is_stream(path) or is_replaceable(path, "json")):
        raise UsageError(path, "exists already and is not JSON of wdport", "give another name with --json")
    return output


def give(
    kind: str, content: Callable[[], object], document: Destination, text: Callable[[], str], asked: bool = False,
    verdict: Callable[[], str] | None = None,
) -> None:  # fmt: skip
    """Print the text, or the document if --json has no file; otherwise write the document to the file.

    Under -q only ``verdict``, one line, is printed; without it, text that is ``asked`` for and is written to no file.
    """
    if document == STDOUT:
        click.echo(rendered(kind, content()))
        return
    printed = verdict or (text if asked and document is None else None) if console.quiet else text
    try:
        if printed is not None:
            console.show(printed())
    finally:  # also if the reader of the text has closed the pipe
        if isinstance(document, OutputPath):
            from wdport.files.atomic import write_text

            write_text(document, rendered(kind, content()) + "\n")


def give_faults(error: WdportError) -> None:
    """Print the faults of an error that has several, as text or, where that is asked for, as a document."""
    if len(error.details) < 2:
        return
    if console.machine:
        from wdport.files.json_document import FaultsDocument

        click.echo(rendered("faults", FaultsDocument(error.command_line, error.exit_code, error.details)))
    elif not console.quiet:
        for detail in error.details:
            console.show(f"  {detail}")


def rendered(kind: str, content: object) -> str:
    """A document as text."""
    from wdport.files.json_document import document

    return json.dumps(document(kind, content), indent=1, allow_nan=False)


@dataclass(frozen=True)
class Report:
    """A file to be written at the end: the option that names it, and its kind in ``outputs.OURS``."""

    option: str
    kind: str
    path: Path


def reports(**files: str | None) -> list[Report]:
    """Reports by their kinds, which are the names of their options; without those that go to no file."""
    return [Report(f"--{kind}", kind, Path(file)) for kind, file in files.items() if file not in (None, STDOUT)]


def require_reports(requested: Sequence[Report], inputs: Mapping[str, Path], force: bool) -> dict[str, OutputPath]:
    """Return the outputs by option; refuse a file that could not be written at the end, or would replace an input,
    another report or a foreign file.

    Special files, such as ``/dev/stdout``, are written to.
    """
    require_apart([(report.option, report.path) for report in requested], inputs)
    for report in requested:
        _require_suffix(report.option, report.path, report.kind)
    return {
        report.option: writable(report.path, inputs, force, report.option, report.kind, True) for report in requested
    }
