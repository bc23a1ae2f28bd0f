"""An evaluation as a document and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from wdport.base.shared_types import Count, JsonShape, Positive, about
from wdport.files.json_document import NamedFile
from wdport.uses.evaluation.metrics import METRICS
from wdport.uses.evaluation.result import FLOOR, ITSELF, Evaluation
from wdport.uses.evaluation.sweep import Sweep

SHORT: Mapping[str, str] = {
    "context-fid": "C-FID", "correlational": "corr", "discriminative": "disc", "predictive": "pred",
    "dtw-js": "DTW-JS", "sliced-wasserstein": "SW",
}  # fmt: skip
"""Headings of a table with a row for every set."""

FLOORS: Mapping[str, str] = {
    FLOOR: "real windows against others, with which they share no step",
    ITSELF: "half of the first set of samples against the other half",
}
"""What the rows are that no samples were given for."""

WIDE = 4
"""Sets next to each other in a table with a row for every metric."""


@dataclass(frozen=True)
class ScoreEntry:
    """One score of one set of series; smaller is better."""

    mean: Annotated[float, about("Mean over the repetitions.")]
    std: Annotated[float, about(
        "Standard deviation over the repetitions, with n - 1 degrees of freedom; 0 for one repetition.")]  # fmt: skip
    values: Annotated[Sequence[float], about("The score of every repetition.")]


@dataclass(frozen=True)
class ScoredSet:
    """A set of series and its scores."""

    name: Annotated[str, about(
        "Name of the set: `samples`, `against`, a setting of a sweep, or `real` and `itself` for the "
        "floors.")]  # fmt: skip
    count: Annotated[Count, about(
        "Number of series that every repetition compares with the same number of real series.")]  # fmt: skip
    network_calls: Annotated[Count | None, about(
        "Number of network calls per sample; null for a set that this command did not draw.")]  # fmt: skip
    seconds: Annotated[float | None, about(
        "Duration of sampling in seconds, excluding compilation; null for a set that this command did not "
        "draw.")]  # fmt: skip
    scores: Annotated[Mapping[str, ScoreEntry], about("Scores, by the name of the metric.")]


@dataclass(frozen=True)
class UnscoredSetting:
    """A setting of a sweep whose samples cannot be scored."""

    name: Annotated[str, about("Name of the setting.")]
    reason: Annotated[str, about("Why the samples cannot be scored.")]


@dataclass(frozen=True)
class EvaluationDocument:
    """What ``wdport evaluate --json`` prints."""

    samples: Annotated[str, about("Name of the samples file or of the converted model.")]
    data: Annotated[NamedFile, about("The real data.")]
    windows: Annotated[Count, about("Number of windows of the real data.")]
    shape: Annotated[JsonShape, about("Number of steps and number of features in a series.")]
    features: Annotated[Sequence[str], about("Names of the features; empty if the data has none.")]
    repeats: Annotated[Positive, about("Number of repetitions of every score.")]
    seed: Annotated[Count, about("Random seed.")]
    floor: Annotated[str | None, about(
        "Name of the floor of real series, `real`; null if there is too little data for it.")]  # fmt: skip
    cheapest: Annotated[str | None, about(
        "Of the settings of a sweep that are as good as the setting with the most network calls, the one with the "
        "fewest calls; null without a sweep, and if there is only one setting or one repetition.")]  # fmt: skip
    sets: Annotated[Sequence[ScoredSet], about("All sets of series, beginning with the floors.")]
    failed: Annotated[Sequence[UnscoredSetting], about(
        "Settings of a sweep whose samples cannot be scored.")]  # fmt: skip


def document_of(
    samples: str, data: NamedFile, evaluation: Evaluation, swept: Sweep | None = None
) -> EvaluationDocument:
    """The evaluation of ``samples``, a name, with the real ``data``."""
    drawn = swept.by_name if swept else {}
    return EvaluationDocument(
        samples=samples,
        data=data,
        windows=len(evaluation.real),
        shape=evaluation.shape,
        features=evaluation.features,
        repeats=evaluation.repeats,
        seed=evaluation.seed,
        floor=FLOOR if FLOOR in evaluation.sets else None,
        cheapest=str(swept.cheapest().setting) if swept and swept.compares else None,
        sets=[
            ScoredSet(
                name=name,
                count=evaluation.counts[name],
                network_calls=drawn[name].calls if name in drawn else None,
                seconds=drawn[name].seconds if name in drawn else None,
                scores={metric: ScoreEntry(score.mean, score.std, score.values) for metric, score in scores.items()},
            )
            for name, scores in evaluation.sets.items()
        ],
        failed=[UnscoredSetting(name, why) for name, why in (swept.failed if swept else {}).items()],
    )


def text_of(evaluation: Evaluation, swept: Sweep | None = None) -> str:
    """A table of all scores, mean and standard deviation over the repetitions, and what follows from a sweep."""
    rows = _by_metric(evaluation) if len(evaluation.sets) <= WIDE and not swept else _by_set(evaluation, swept)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in rows]  # fmt: skip
    lines += [f"  {name}: {text}" for name, text in FLOORS.items() if name in evaluation.sets]
    if swept:
        lines += [f"  not scored: {name}, whose samples {why}" for name, why in swept.failed.items()]
    if swept and swept.compares:
        lines += ["", *_concluded(swept)]
    elif swept and len(swept.drawn) > 1:
        lines += ["", "  one repetition has no spread, so no cheapest setting is named"]
    return "\n".join(lines)


def _by_metric(evaluation: Evaluation) -> list[list[str]]:
    rows = (
        [METRICS[metric].title, *(str(evaluation[name][metric]) for name in evaluation.sets)]
        for metric in evaluation.metrics
    )
    return [["", *evaluation.sets], ["series", *map(str, evaluation.counts.values())], *rows]


def _by_set(evaluation: Evaluation, swept: Sweep | None) -> list[list[str]]:
    drawn = swept.by_name if swept else {}
    rows = [["", "series", "calls", "seconds", *(SHORT[metric] for metric in evaluation.metrics)]]
    for name, scores in evaluation.sets.items():
        cost = drawn.get(name)
        cells = [str(cost.calls), f"{cost.seconds:.3g}"] if cost else ["", ""]
        rows.append(
            [name, str(evaluation.counts[name]), *cells, *(str(score).replace(" ± ", "±") for score in scores.values())]
        )
    return rows


def _concluded(swept: Sweep) -> list[str]:
    """Which settings are as good as the one with the most calls, and which is the cheapest of them."""
    full, cheapest = swept.full(), swept.cheapest()
    lines = [f"  cheapest setting that is as good as {full.setting} in every score: {cheapest.setting}, "
             f"{cheapest.calls} network calls"]  # fmt: skip
    for drawn in sorted(swept.drawn, key=lambda run: run.calls):
        good = swept.as_good(drawn)
        worse = [METRICS[metric].title for metric in swept.evaluation.metrics if metric not in good]
        if worse:
            lines.append(f"  {drawn.setting} is worse in: {', '.join(worse)}")
    return lines
