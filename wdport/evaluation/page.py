"""An evaluation as one HTML file with its figures inside: no network, no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wdport.evaluation import figures
from wdport.evaluation.document import FLOORS
from wdport.evaluation.metrics import METRICS
from wdport.evaluation.scores import Evaluation
from wdport.evaluation.sweep import Sweep
from wdport.files.templates import template
from wdport.model import Array

TEMPLATE: Final = Path(__file__).parent / "templates" / "page.html"


def page_of(
    evaluation: Evaluation, sets: Mapping[str, Array], title: str, swept: Sweep | None = None, limit: int = 3
) -> str:
    """The evaluation as a page.

    Args:
        evaluation: the scores.
        sets: the scored series by name; figures show the first ``limit`` of them.
        title: the headline.
        swept: the sweep that the scores are of, for its curves.
        limit: sets in a figure.
    """
    drawn, real = dict(list(sets.items())[:limit]), evaluation.real
    images = {"Scores by network calls": figures.curves(swept)} if swept is not None else {}
    images |= {
        "Series as points": figures.clouds(real, drawn, evaluation.seed),
        "Values of every feature": figures.marginals(real, drawn, evaluation.features),
        "Autocorrelation by lag": figures.autocorrelations(real, drawn, evaluation.features),
        "Real and generated series": figures.grid(real, drawn, evaluation.features, evaluation.seed),
    }
    return template(TEMPLATE, None).render(
        title=title,
        evaluation=evaluation,
        floors={name: text for name, text in FLOORS.items() if name in evaluation.sets},
        metrics=[METRICS[metric].title for metric in evaluation.metrics],
        settings=swept.by_name if swept else {},
        figures={name: b64encode(image).decode() for name, image in images.items()},
    )
