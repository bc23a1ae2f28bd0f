"""The formats of the report of a verdict. To add one, write a module in :mod:`wdport.parity.reports` that renders it,
add a line here, and an option of its name to :class:`wdport.parity.verify_options.RunOptions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class ReportFormat:
    """One format: the suffixes of its files, the first bytes of a file that wdport wrote, and the function
    (``MODULE:FUNCTION``) that renders a verdict to text."""

    suffixes: tuple[str, ...]
    first_bytes: re.Pattern[bytes]
    renderer: str


FORMATS: Final[Mapping[str, ReportFormat]] = {
    "json": ReportFormat(
        (".json",), re.compile(rb'\{\s*"schema": \d+,\s*("kind": "[a-z]+"|"passed": (true|false)),'),
        "wdport.parity.reports:render_json"),
    "html": ReportFormat(
        (".html", ".htm"),
        re.compile(rb'<!DOCTYPE html>.*<meta name="generator" content="wdport">', re.DOTALL),
        "wdport.parity.reports.html:render_html"),
    "junit": ReportFormat(
        (".xml",), re.compile(rb'<\?xml [^>]*>\s*<testsuites name="wdport verify"'),
        "wdport.parity.reports.junit:render_junit"),
    "markdown": ReportFormat(
        (".md",), re.compile(rb"#{1,2} [A-Za-z-]+\n\n<!-- wdport (verify|selftest) -->"),
        "wdport.parity.reports.markdown:render_markdown"),
}  # fmt: skip
"""By name, which is that of the option too."""
