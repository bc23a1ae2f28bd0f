"""Render a verdict as one self-contained HTML file: no network, no fonts, and readable without the script.

The one script sorts and filters a table; the page's content security policy admits only that script, by its hash.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from pathlib import Path
from typing import Final

from wdport.base.errors import printable
from wdport.files.templates import template
from wdport.parity.reports import charts, tables
from wdport.parity.reports import phrases as words
from wdport.parity.verdict import Verdict

TEMPLATES: Final = Path(__file__).parent / "templates"

_BREAKS, _UNDERSCORES = re.compile(r"(?<=[./])(?=[^./])"), re.compile(r"(?<=_)(?=[^_])")
_LONG: Final = 24


def render_html(verdict: Verdict) -> str:
    """The verdict as one page: headline, gates, faulty layers, errors by part and depth, charts, and the run."""
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    page = template(TEMPLATES / "page.html", words.TEXT_CHARS)
    return page.render(
        verdict=verdict,
        charts=charts,
        tables=tables,
        words=words,
        pieces=pieces,
        style=style,
        script=script,
        # The hash that the content security policy compares; text from a file can therefore not become a script.
        seal=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        counts=_counts(verdict),
        compared=_compared(verdict),
    )


def pieces(value: object) -> list[str]:
    """A path or a name in pieces between which a line may break: after a dot or a slash, in a long part also after an
    underscore, but never within a word."""
    parts = _BREAKS.split(printable(value, words.TEXT_CHARS))
    return [piece for part in parts for piece in ([part] if len(part) <= _LONG else _UNDERSCORES.split(part))]


def _counts(verdict: Verdict) -> list[str]:
    passed = sum(gate.passed for gate in verdict.gates)
    counts = [f"{passed} of {len(verdict.gates)} gates passed", words.layers_compared(verdict)]
    counts += [f"{len(verdict.faults)} faulty"] if verdict.faults else []
    counts += [words.took(verdict), f"exit code {verdict.exit_code}", words.started(verdict)]
    return list(filter(None, counts))


def _compared(verdict: Verdict) -> dict[str, str]:
    """The files, their digests, the reference and the date, by their names in the report."""
    facts: dict[str, str] = {}
    for what, path, digest in words.compared_files(verdict):
        facts |= {what: path, **({f"SHA-256 of the {what}": digest} if digest else {})}
    return facts | {"reference": words.reference_line(verdict), "date": words.started(verdict) or "unknown"}
