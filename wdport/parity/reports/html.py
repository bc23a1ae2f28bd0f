"""Render a verdict as one self-contained HTML file: no network, no fonts, and readable without the script.

The one script sorts and filters a table; the page's content security policy admits only that script, by its hash.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path

from wdport.parity.reports.charts import depth_chart, heat_strip, overlay_charts, trajectory_charts
from wdport.parity.reports.svg import name, text
from wdport.parity.reports.tables import (
    bounds_table,
    facts_table,
    faults_table,
    gates_table,
    glossary,
    parts_table,
    settings_table,
    taps_table,
)
from wdport.parity.reports.words import (
    claim,
    compared_files,
    file_name,
    on_assumptions,
    outcome,
    reference_line,
    started,
)
from wdport.parity.verdict import Verdict

_HERE = Path(__file__).parent


def render_html(verdict: Verdict) -> str:
    """The verdict as one page: headline, gates, faulty layers, errors by part and depth, charts, and the run."""
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    seal = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{seal}'"
    word = outcome(verdict)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="wdport">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{word}: {text(file_name(verdict.converted))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{_headline(verdict, word)}\n<main>\n{_results(verdict)}\n{_run(verdict)}\n</main>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _headline(verdict: Verdict, word: str) -> str:
    passed = sum(gate.passed for gate in verdict.gates)
    gates, taps, faults = len(verdict.gates), len(verdict.taps), len(verdict.faults)
    counts = [f"{passed} of {gates} gates passed", f"{taps} layer{'' if taps == 1 else 's'} compared"]
    counts += [f"{faults} faulty"] if faults else []
    counts += [f"{verdict.seconds:.0f} s", f"exit code {verdict.exit_code}", text(started(verdict))]
    return (
        f'<header class="{word.lower()}"><h1><b>{word}</b> {claim(verdict, _name, name)}</h1>'
        f"<p>{' · '.join(filter(None, counts))}</p></header>"
    )


def _name(told: str) -> str:
    return f'<span class="path">{name(told)}</span>'


def _results(verdict: Verdict) -> str:
    one, kind, decoded = map(text, (verdict.words.one, verdict.words.kind, verdict.words.decoded))
    parts = []
    if verdict.settings.told:
        said = "Hyper-parameters of the two models, compared before anything runs. A difference fails no gate."
        parts.append(_section("Settings", said, settings_table(verdict)))
    parts.append(
        _section("Gates", "", gates_table(verdict) + glossary(verdict) if verdict.gates else "<p>No gate was run.</p>")
    )
    if verdict.faults:
        said = "Wrong even with every other layer's output replaced by the reference's: each is one probable bug."
        parts.append(_section("Faulty layers", said, faults_table(verdict)))
    if verdict.taps:
        said = "Relative float64 errors, one cell a layer, in the order of the computation."
        title = f"Layers by {kind}" if verdict.parts else "Layers in their order"
        parts.append(_section(title, said, heat_strip(verdict)))
        said = "A fault raises both lines where it is; behind it, only the cumulative error stays high."
        parts.append(_section("Error along the depth", said, depth_chart(verdict)))
    if verdict.parts:
        said = f"Errors of the network's output, {one} by {one}, and of the {decoded} made from each {one} only."
        parts.append(_section(f"{kind.capitalize()}s", said, parts_table(verdict)))
    if growth := trajectory_charts(verdict):
        said = "Relative error of the state after every step; both sides have the same initial state and noise."
        parts.append(_section("Error along sampling runs", said, growth))
    if series := overlay_charts(verdict):
        said = f"First feature of the first sample, made from one {kind} only."
        parts.append(_section(f"{decoded.capitalize()} by {kind}", said, series))
    if verdict.taps:
        count = "The one layer" if len(verdict.taps) == 1 else f"All {len(verdict.taps)} layers"
        body = f"<details><summary>{count} with every number</summary>{taps_table(verdict)}</details>"
        parts.append(_section("Layers", "", body))
    return "\n".join(parts)


def _run(verdict: Verdict) -> str:
    files: dict[str, object] = {}
    for what, path, digest in compared_files(verdict):
        files |= {what: path, **({f"SHA-256 of the {what}": digest} if digest else {})}
    files |= {"reference": reference_line(verdict), "date": started(verdict) or "unknown"}
    inputs = "".join(f"<li>{text(each)}</li>" for each in verdict.inputs)
    parts = [_section("What was compared", "", facts_table(files))]
    parts.append(_section("Inputs", "", f"<ol>{inputs}</ol>" if inputs else "<p>None.</p>"))
    assumed = "<p>None: every setting was found in the files or given.</p>"
    if verdict.assumed:
        assumed = f"<p>Not found in the files; {on_assumptions(verdict, _name)}.</p>{facts_table(verdict.assumed)}"
    parts.append(_section("Assumptions", "", assumed))
    parts.append(_section("Environment", "", facts_table(verdict.environment)))
    parts.append(_section("Bounds in force", "", bounds_table(verdict)))
    return f'<div class="run">{"".join(parts)}</div>'


def _section(title: str, said: str, body: str) -> str:
    """A section of the page; all three arguments are HTML."""
    note = f'<p class="note">{said}</p>' if said else ""
    return f"<section><h2>{title}</h2>{note}{body}</section>"
