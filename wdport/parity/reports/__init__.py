"""A verdict in, report files out: JSON, JUnit XML, Markdown and HTML."""

from __future__ import annotations

from json import dumps
from os import PathLike
from pathlib import Path

from wdport.output.files import write_text
from wdport.parity.reports.html import render_html
from wdport.parity.reports.junit import render_junit
from wdport.parity.reports.markdown import append_step_summary, render_markdown
from wdport.parity.verdict import Verdict

__all__ = ["append_step_summary", "render_html", "render_json", "render_junit", "render_markdown", "write_reports"]

PathText = str | PathLike[str]


def render_json(verdict: Verdict) -> str:
    """Everything that was compared, as JSON."""
    return dumps(verdict.to_json(), indent=1, allow_nan=False) + "\n"


def write_reports(
    verdict: Verdict,
    *,
    json: PathText | None = None,
    junit: PathText | None = None,
    markdown: PathText | None = None,
    html: PathText | None = None,
) -> None:
    """Write the reports that were given a file name; an older file stays until the new one is whole.

    Raises :class:`~wdport.errors.MachineError` if the machine refuses; no temporary file is left then.
    """
    wanted = ((json, render_json), (junit, render_junit), (markdown, render_markdown), (html, render_html))
    texts = [(Path(path), render(verdict)) for path, render in wanted if path is not None]
    for path, text in texts:
        write_text(path, text)
