"""An evaluation as one HTML file with its figures inside: no network, no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from html import escape

from wdport.errors import printable
from wdport.evaluation import figures
from wdport.evaluation.document import FLOORS
from wdport.evaluation.metrics import METRICS
from wdport.evaluation.scores import Evaluation
from wdport.evaluation.sweep import Sweep
from wdport.model import Array

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: #f9f9f7; color: #16160f;
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; font-weight: 500; } h2 { font-size: 1.05rem; margin: 0 0 .4rem; }
section { margin: 1rem 0; padding: .9rem 1rem; background: #fff; border: 1px solid #deddd5; border-radius: 6px;
  overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem 1rem .3rem 0; text-align: left; border-bottom: 1px solid #deddd5; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
img { max-width: 100%; height: auto; }
p { margin: .3rem 0; color: #55544e; }
"""


def page_of(
    found: Evaluation, sets: Mapping[str, Array], title: str, swept: Sweep | None = None, shown: int = 3
) -> str:
    """The evaluation as a page.

    Args:
        found: the scores.
        sets: the scored series by name; figures show the first ``shown`` of them.
        title: the headline.
        swept: the sweep that the scores are of, for its curves.
        shown: sets in a figure.
    """
    drawn, real = dict(list(sets.items())[:shown]), found.real
    said = "Mean and standard deviation over the repetitions; smaller is better."
    said += "".join(f" {name}: {told}." for name, told in FLOORS.items() if name in found.sets)
    parts = [_section("Scores", said, _table(found, swept))]
    if swept is not None:
        parts.append(_figure("Scores by network calls", figures.curves(swept)))
    parts += [
        _figure("Series as points", figures.clouds(real, drawn, found.seed)),
        _figure("Values of every feature", figures.marginals(real, drawn, found.features)),
        _figure("Autocorrelation by lag", figures.autocorrelations(real, drawn, found.features)),
        _figure("Real and generated series", figures.grid(real, drawn, found.features, found.seed)),
    ]
    told = (f"{len(found.real)} real windows of {found.shape[0]} steps and {found.shape[1]} features; "
            f"{found.repeats} repetitions, seed {found.seed}")  # fmt: skip
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="wdport">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{_safe(title)}</h1>\n"
        f"<p>{told}</p>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


def _safe(text: str) -> str:
    return escape(printable(text, None))


def _section(title: str, said: str, body: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{f'<p>{said}</p>' if said else ''}\n{body}\n</section>"


def _figure(title: str, image: bytes) -> str:
    return _section(title, "", f'<img alt="{title}" src="data:image/png;base64,{b64encode(image).decode()}">')


def _table(found: Evaluation, swept: Sweep | None) -> str:
    drawn = swept.by_name if swept else {}
    head = ["set", "series", *(["network calls", "seconds"] if drawn else []),
            *(METRICS[metric].title for metric in found.metrics)]  # fmt: skip
    rows = []
    for name, scores in found.sets.items():
        each = drawn.get(name)
        cost = [str(each.calls) if each else "", f"{each.seconds:.3g}" if each else ""] if drawn else []
        rows.append([_safe(name), str(found.counts[name]), *cost, *map(str, scores.values())])
    cells = "".join(f'<th scope="col">{each}</th>' for each in head)
    body = "".join(f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>"
                   for row in rows)  # fmt: skip
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
