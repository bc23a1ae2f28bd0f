"""Write a verdict as report files: JSON, JUnit XML, Markdown and HTML."""

from __future__ import annotations

from json import dumps
from pathlib import Path

from wdport.base.errors import MachineError
from wdport.base.options import PathText
from wdport.files.atomic import write_text
from wdport.files.inputs import InputFiles
from wdport.files.outputs import require_apart, writable
from wdport.parity.reports.html import render_html
from wdport.parity.reports.junit import render_junit
from wdport.parity.reports.markdown import append_step_summary, render_markdown
from wdport.parity.verdict import Verdict

__all__ = ["append_step_summary", "render_html", "render_json", "render_junit", "render_markdown", "write_reports"]


def render_json(verdict: Verdict) -> str:
    return dumps(verdict.to_json(), indent=1, allow_nan=False) + "\n"


def write_reports(
    verdict: Verdict,
    *,
    json: PathText | None = None,
    junit: PathText | None = None,
    markdown: PathText | None = None,
    html: PathText | None = None,
    force: bool = False,
) -> None:
    """Write the reports that have a file name; an older file stays until the new one is complete.

    Replaces older reports, and with ``force`` any other file, but never one of the compared files. Raises
    :class:`~wdport.base.errors.UsageError` if a file must not be written, and then writes none;
    :class:`~wdport.base.errors.MachineError` if writing one fails: the others are written, and no temporary file is
    left.
    """
    reports = {"json": (json, render_json), "junit": (junit, render_junit), "markdown": (markdown, render_markdown),
               "html": (html, render_html)}  # fmt: skip
    requested = {kind: (Path(path), render) for kind, (path, render) in reports.items() if path is not None}
    inputs = InputFiles(checkpoint=verdict.checkpoint, converted=verdict.converted).with_manifests("converted")
    require_apart([(kind, path) for kind, (path, _) in requested.items()], inputs)
    outputs = {kind: writable(path, inputs, force, None, kind, True) for kind, (path, _) in requested.items()}
    # All texts before the first file: a report that cannot be rendered leaves no others.
    texts = [(outputs[kind], render(verdict)) for kind, (_, render) in requested.items()]
    refused: list[MachineError] = []
    for output, text in texts:
        try:
            write_text(output, text)
        except MachineError as error:
            refused.append(error)
    if refused:
        raise refused[0]
