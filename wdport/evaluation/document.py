"""An evaluation as JSON values and as text."""

from __future__ import annotations

from collections.abc import Mapping

from wdport.evaluation.metrics import METRICS
from wdport.evaluation.scores import FLOOR, ITSELF, Evaluation
from wdport.evaluation.sweep import Drawn, Sweep

SHORT: Mapping[str, str] = {
    "context-fid": "C-FID", "correlational": "corr", "discriminative": "disc", "predictive": "pred",
    "dtw-js": "DTW-JS", "sliced-wasserstein": "SW",
}  # fmt: skip
"""Headings of a table with a row for every set."""

FLOORS: Mapping[str, str] = {
    FLOOR: "real windows against others, with which they share no step",
    ITSELF: "half of the first set's series against the other half",
}
"""What the rows are that no samples were given for."""

WIDE = 4
"""Sets beside each other in a table with a row for every metric."""


def facts_of(found: Evaluation, swept: Sweep | None = None) -> dict[str, object]:
    """The evaluation as JSON values."""
    drawn = swept.by_name if swept else {}
    return {
        "windows": len(found.real),
        "shape": list(found.shape),
        "features": list(found.features),
        "repeats": found.repeats,
        "seed": found.seed,
        "floor": FLOOR if FLOOR in found.sets else None,
        "cheapest": str(swept.cheapest().setting) if swept and swept.compares else None,
        "sets": [{
            "name": name,
            "count": found.counts[name],
            "network_calls": drawn[name].calls if name in drawn else None,
            "seconds": drawn[name].seconds if name in drawn else None,
            "scores": {metric: {"mean": score.mean, "std": score.std, "values": list(score.values)}
                       for metric, score in scores.items()},
        } for name, scores in found.sets.items()],
        "failed": [{"name": name, "reason": why} for name, why in (swept.failed if swept else {}).items()],
    }  # fmt: skip


def text_of(found: Evaluation, swept: Sweep | None = None) -> str:
    """A table of all scores, mean and standard deviation over the repetitions, and what follows from a sweep."""
    rows = _by_metric(found) if len(found.sets) <= WIDE and not swept else _by_set(found, swept)
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in rows]  # fmt: skip
    lines += [f"  {name}: {said}" for name, said in FLOORS.items() if name in found.sets]
    if swept:
        lines += [f"  not scored: {name}, whose samples {why}" for name, why in swept.failed.items()]
    if swept and swept.compares:
        lines += ["", *_concluded(swept)]
    elif swept and len(swept.drawn) > 1:
        lines += ["", "  one repetition has no spread, so no cheapest setting is named"]
    return "\n".join(lines)


def _by_metric(found: Evaluation) -> list[list[str]]:
    rows = ([METRICS[metric].title, *(str(found[name][metric]) for name in found.sets)] for metric in found.metrics)
    return [["", *found.sets], ["series", *map(str, found.counts.values())], *rows]


def _by_set(found: Evaluation, swept: Sweep | None) -> list[list[str]]:
    drawn = swept.by_name if swept else {}
    rows = [["", "series", "calls", "seconds", *(SHORT[metric] for metric in found.metrics)]]
    for name, scores in found.sets.items():
        each = drawn.get(name)
        told = [str(each.calls), f"{each.seconds:.3g}"] if each else ["", ""]
        rows.append(
            [name, str(found.counts[name]), *told, *(str(score).replace(" ± ", "±") for score in scores.values())]
        )
    return rows


def _concluded(swept: Sweep) -> list[str]:
    """Which settings are as good as the one with the most calls, and which is the cheapest of them."""
    full, cheapest = swept.full(), swept.cheapest()
    lines = [f"  cheapest setting that is as good as {full.setting} in every score: {_priced(cheapest)}"]
    for drawn in sorted(swept.drawn, key=lambda each: each.calls):
        good = swept.as_good(drawn)
        worse = [METRICS[metric].title for metric in swept.evaluation.metrics if metric not in good]
        if worse:
            lines.append(f"  {drawn.setting} is worse in: {', '.join(worse)}")
    return lines


def _priced(drawn: Drawn) -> str:
    return f"{drawn.setting}, {drawn.calls} network calls"
