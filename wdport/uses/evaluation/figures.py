"""Figures of real and generated series side by side, as PNG images, and an evaluation as one HTML file with them
inside: no network, no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wdport.base.errors import MachineError
from wdport.files.figure import any_script
from wdport.files.templates import template
from wdport.models.interface import Array
from wdport.uses.evaluation.document import FLOORS
from wdport.uses.evaluation.metrics import METRICS, some
from wdport.uses.evaluation.result import Evaluation
from wdport.uses.evaluation.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REAL, GENERATED = "#0072B2", "#D55E00"
POINTS: Final = 800
"""Series of each set in a cloud."""

FEATURES: Final = 12
"""Maximum number of features in figures with a panel for every feature."""

SETS: Final = 3
"""Sets in a figure."""

GRID: Final = 6
"""Series of each set in the grid."""

LAGS: Final = 0.75
"""Share of the length up to which autocorrelations are drawn; later ones are means of few products."""

BINS: Final = 50


def require_figures() -> None:
    """Raise :class:`MachineError` if a package for figures is not installed."""
    import importlib.util

    for package, name in (("matplotlib", "matplotlib"), ("sklearn", "scikit-learn")):
        if importlib.util.find_spec(package) is None:
            raise MachineError("--html", f"needs {name}, which is not installed", "install wdport[evaluation]")


def clouds(real: Array, sets: Mapping[str, Array], seed: int = 0) -> bytes:
    """PCA of the real series, and t-SNE of both, a row for every set: real series (n, N, F) and generated ones as
    points."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    random = np.random.default_rng(seed)
    flat = _flat(some(random, real, POINTS), real)
    figure = _figure(9.0, 4.2 * len(sets))
    panels = figure.subplots(len(sets), 2, squeeze=False)
    # Fitted to the real series only, so that the axes are the same for every set.
    main = PCA(2, random_state=seed).fit(flat)
    for row, (name, series), colour in zip(panels, sets.items(), _colours(sets)[1:], strict=True):
        other = _flat(some(random, series, POINTS), real)
        both = np.concatenate([flat, other])
        # t-SNE cannot place new points, so both sets are embedded together; the perplexity must be below their number.
        near = TSNE(2, random_state=seed, init="pca", perplexity=min(30.0, (len(both) - 1) / 3)).fit_transform(both)
        for panel, points, title in zip(row, (main.transform(both), near), ("PCA", "t-SNE"), strict=True):
            for part, shade, label in ((points[: len(flat)], REAL, "real"), (points[len(flat) :], colour, name)):
                panel.plot(*part.T, ".", color=shade, markersize=2.5, alpha=0.5, label=label)
            panel.set_title(title, fontsize=10)
            panel.legend(loc="upper right", fontsize=8, markerscale=3)
            panel.set_xticks([])
            panel.set_yticks([])
    return _png(figure)


def _flat(series: Array, real: Array) -> Array:
    """Series as vectors, their features standardised as the real ones."""
    deviation = real.std((0, 1))
    flat: Array = ((series - real.mean((0, 1))) / np.where(deviation > 0, deviation, 1.0)).reshape(len(series), -1)
    return flat


def marginals(real: Array, sets: Mapping[str, Array], names: Sequence[str]) -> bytes:
    """Histograms of every feature's values."""
    figure, panels = _panels(real, names)
    for feature, panel in enumerate(panels):
        values = [series[..., feature].ravel() for series in (real, *sets.values())]
        # Without the outermost thousandths, which would leave most bins empty.
        low, high = np.quantile(np.concatenate(values), [0.001, 0.999])
        edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
        for (name, series), colour in zip({"real": real, **sets}.items(), _colours(sets), strict=True):
            panel.hist(series[..., feature].ravel(), edges, density=True, histtype="step", color=colour, label=name)
        panel.set_yticks([])
    return _legend(figure, panels)


def autocorrelations(real: Array, sets: Mapping[str, Array], names: Sequence[str]) -> bytes:
    """The autocorrelation of every feature by lag, about the mean of all series of the set."""
    figure, panels = _panels(real, names)
    for (name, series), colour in zip({"real": real, **sets}.items(), _colours(sets), strict=True):
        correlations = autocorrelation(series, max(1, int(LAGS * series.shape[1])))
        for feature, panel in enumerate(panels):
            panel.plot(correlations[:, feature], color=colour, label=name, linewidth=1.2)
    return _legend(figure, panels)


def autocorrelation(series: Array, lags: int) -> Array:
    """(lags, F): the correlation of values so many steps apart, over series (n, N, F) and time; 0 for constants."""
    centred = series - series.mean((0, 1))
    variance = (centred**2).mean((0, 1))
    covariances = [(centred[:, lag:] * centred[:, : series.shape[1] - lag]).mean((0, 1)) for lag in range(lags)]
    return np.array(covariances) / np.where(variance > 0, variance, 1.0)


def grid(real: Array, sets: Mapping[str, Array], names: Sequence[str], seed: int = 0) -> bytes:
    """Some real series above some of every set; a panel has all features, standardised as the real ones."""
    random, rows = np.random.default_rng(seed), {"real": real, **sets}
    figure = _figure(2.2 * GRID, 1.7 * len(rows))
    panels = figure.subplots(len(rows), GRID, squeeze=False, sharex=True, sharey=True)
    for (name, series), row, colour in zip(rows.items(), panels, _colours(sets), strict=True):
        examples = _flat(some(random, series, GRID), real).reshape(-1, *real.shape[1:])
        for panel, example in zip(row, examples, strict=False):
            panel.plot(example, color=colour, linewidth=0.8, alpha=0.8)
        row[0].set_ylabel(name, parse_math=False)
    return _png(figure)


def curves(swept: Sweep) -> bytes:
    """Every score by network calls, with error bars of a standard deviation, and the floor as a band."""
    evaluation = swept.evaluation
    figure = _figure(12.0, 3.2 * -(-len(evaluation.metrics) // 3))
    panels = figure.subplots(-(-len(evaluation.metrics) // 3), 3, squeeze=False).ravel()
    for panel, metric in zip(panels, evaluation.metrics, strict=False):
        for kind in dict.fromkeys(run.setting.kind for run in swept.drawn):
            runs = sorted((d for d in swept.drawn if d.setting.kind == kind), key=lambda d: d.calls)
            scores = [evaluation[str(d.setting)][metric] for d in runs]
            panel.errorbar([d.calls for d in runs], [s.mean for s in scores], [s.std for s in scores], marker="o",
                           markersize=3.5, linewidth=1.0, capsize=2, label=kind)  # fmt: skip
        if "real" in evaluation.sets:
            floor = evaluation["real"][metric]
            panel.axhspan(floor.mean - floor.std, floor.mean + floor.std, color="0.85", label="real")
        panel.set_xscale("log")
        panel.set_title(METRICS[metric].title, fontsize=10)
        panel.set_xlabel("network calls", fontsize=9)
    for panel in panels[len(evaluation.metrics) :]:
        panel.set_axis_off()
    return _legend(figure, list(panels))


def _colours(sets: Mapping[str, Array]) -> list[str]:
    more = ["#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
    return [REAL, GENERATED, *(more[index % len(more)] for index in range(len(sets) - 1))]


def _panels(real: Array, names: Sequence[str]) -> tuple[Figure, list[Any]]:
    count = min(real.shape[2], FEATURES)
    columns = min(count, 4)
    figure = _figure(3.0 * columns, 2.2 * -(-count // columns))
    panels = list(figure.subplots(-(-count // columns), columns, squeeze=False).ravel())
    for index, panel in enumerate(panels):
        if index >= count:
            panel.set_axis_off()
        else:
            panel.set_title(names[index] if names else f"feature {index + 1}", fontsize=9, parse_math=False)
            panel.tick_params(labelsize=7)
    return figure, panels[:count]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    # Not pyplot, which keeps figures alive and may need a display.
    return Figure(figsize=(width, height), layout="constrained")


def _legend(figure: Figure, panels: Sequence[Any]) -> bytes:
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    stream = BytesIO()
    # Names of features may have characters that matplotlib's own font lacks.
    with any_script():
        figure.savefig(stream, format="png", dpi=110)
    return stream.getvalue()


TEMPLATE: Final = Path(__file__).parent / "templates" / "page.html"


def page_of(evaluation: Evaluation, sets: Mapping[str, Array], title: str, swept: Sweep | None = None) -> str:
    """The evaluation as a page.

    Args:
        evaluation: the scores.
        sets: the scored series by name; figures show the first of them, :data:`SETS`.
        title: the headline.
        swept: the sweep that the scores are of, for its curves.
    """
    drawn, real = dict(list(sets.items())[:SETS]), evaluation.real
    images = {"Scores by network calls": curves(swept)} if swept is not None else {}
    images |= {
        "Series as points": clouds(real, drawn, evaluation.seed),
        "Values of every feature": marginals(real, drawn, evaluation.features),
        "Autocorrelation by lag": autocorrelations(real, drawn, evaluation.features),
        "Real and generated series": grid(real, drawn, evaluation.features, evaluation.seed),
    }
    return template(TEMPLATE, None).render(
        title=title,
        evaluation=evaluation,
        floors={name: text for name, text in FLOORS.items() if name in evaluation.sets},
        metrics=[METRICS[metric].title for metric in evaluation.metrics],
        settings=swept.by_name if swept else {},
        figures={name: b64encode(image).decode() for name, image in images.items()},
    )
