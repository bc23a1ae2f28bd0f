"""Write a verdict as report files, in the formats of :mod:`wdport.files.report_formats`."""

from __future__ import annotations

from importlib import import_module
from json import dumps
from pathlib import Path

from wdport.base.errors import MachineError
from wdport.base.options import PathText
from wdport.files.atomic import write_text
from wdport.files.inputs import InputFiles
from wdport.files.outputs import require_apart, writable
from wdport.files.report_formats import FORMATS
from wdport.parity.reports.html import render_html
from wdport.parity.reports.junit import render_junit
from wdport.parity.reports.markdown import append_step_summary, render_markdown
from wdport.parity.verdict import Verdict

__all__ = ["append_step_summary", "render_html", "render_json", "render_junit", "render_markdown", "write_reports"]


def rendered(name: str, verdict: Verdict) -> str:
    """The report in the format of this name."""
    module, _, function = FORMATS[name].renderer.partition(":")
    text: str = getattr(import_module(module), function)(verdict)
    return text


def render_json(verdict: Verdict) -> str:
    return dumps(verdict.to_json(), indent=1, allow_nan=False) + "\n"


def write_reports(verdict: Verdict, *, force: bool = False, **files: PathText | None) -> None:
    """Write the reports that have a file name, by the name of their format in :data:`FORMATS`; an older file stays
    until the new one is complete.

    Replaces older reports, and with ``force`` any other file, but never one of the compared files. Raises
    :class:`~wdport.base.errors.UsageError` if a file must not be written, and then writes none;
    :class:`~wdport.base.errors.MachineError` if writing one fails: the others are written, and no temporary file is
    left.
    """
    paths = {name: Path(path) for name, path in files.items() if path is not None}
    inputs = InputFiles(checkpoint=verdict.checkpoint, converted=verdict.converted).with_manifests("converted")
    require_apart(list(paths.items()), inputs)
    outputs = {name: writable(path, inputs, force, None, name, True) for name, path in paths.items()}
    # All texts before the first file: a report that cannot be rendered leaves no others.
    texts = [(output, rendered(name, verdict)) for name, output in outputs.items()]
    refused: list[MachineError] = []
    for output, text in texts:
        try:
            write_text(output, text)
        except MachineError as error:
            refused.append(error)
    if refused:
        raise refused[0]
