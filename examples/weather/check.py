"""Compare a CSV file of samples with three-day windows of weeks that the model never saw.

Windows of the training weeks are compared with the same held-out ones, which shows how much two real sets differ. The
last lines show how well a random forest distinguishes samples from real windows, and whether samples are copies of
training windows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from three_days import DATA, DAY, SEQ_LEN, windows

from wdport.uses.data import Statistics, read_series

Windows = NDArray[np.float64]
"""(n, 72, F), in the units of the data."""


def read_samples(path: Path, names: tuple[str, ...]) -> Windows:
    """The samples in a CSV file that `wdport sample` wrote."""
    return read_series(path, columns=names).values.reshape(-1, SEQ_LEN, len(names))


def hourly_change(x: Windows) -> Windows:
    """Standard deviation of the change from one hour to the next, of every feature."""
    return np.diff(x, axis=1).std(axis=(0, 1))


def daily_range(x: Windows) -> Windows:
    """Mean daily range: the largest minus the smallest value of a day."""
    return np.ptp(x.reshape(-1, DAY, x.shape[2]), axis=1).mean(axis=0)


def next_day(x: Windows) -> Windows:
    """Correlation of an hour with the same hour of the next day."""
    one, other = (part.reshape(-1, x.shape[2]) for part in (x[:, :-DAY], x[:, DAY:]))
    return np.array([np.corrcoef(one[:, f], other[:, f])[0, 1] for f in range(x.shape[2])])


STATISTICS = {
    "mean": lambda x: x.mean(axis=(0, 1)),
    "5 % quantile": lambda x: np.quantile(x, 0.05, axis=(0, 1)),
    "95 % quantile": lambda x: np.quantile(x, 0.95, axis=(0, 1)),
    "deviation": lambda x: x.std(axis=(0, 1)),
    "hourly change": hourly_change,
    "range of a day": daily_range,
    "correlation of days": next_day,
}


def told_apart(one: Windows, other: Windows) -> float:
    """How well a random forest distinguishes the two: the area under its ROC curve, 0.5 for chance, 1 for always."""
    one, other = evenly(one, len(other)), evenly(other, len(one))
    both = np.concatenate([one, other])
    seen = np.concatenate([both.reshape(len(both), -1), np.diff(both, axis=1).std(axis=1)], axis=1)
    truth = np.repeat([0, 1], [len(one), len(other)])
    forest = RandomForestClassifier(300, random_state=0)
    return float(roc_auc_score(truth, cross_val_predict(forest, seen, truth, cv=5, method="predict_proba")[:, 1]))


def evenly(x: Windows, count: int) -> Windows:
    """At most ``count`` of the windows, spread evenly."""
    return x[np.linspace(0, len(x) - 1, min(count, len(x))).round().astype(int)]


def nearest(x: Windows, others: Windows, scale: Statistics) -> float:
    """Median distance to the nearest of the ``others``, in standard deviations per value."""
    one, other = (scale.normalize(part).reshape(len(part), -1) for part in (x, others))
    return float(np.median([np.sqrt(((each - other) ** 2).mean(axis=1)).min() for each in one]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Compare samples of weather with weeks that the model never saw.")
    parser.add_argument("samples", type=Path, metavar="SAMPLES.csv", help="a file written by wdport sample")
    options = parser.parse_args(arguments)
    series = read_series(DATA)
    held_out, training, samples = windows(True), windows(False), read_samples(options.samples, series.names)
    lines = [f"{'':20}" + "".join(f"  {name:^26}" for name in series.names),
             f"{'':20}" + f"  {'held out':>8} {'samples':>8} {'training':>8}" * len(series.names)]  # fmt: skip
    for name, statistic in STATISTICS.items():
        found = np.stack([statistic(x) for x in (held_out, samples, training)], axis=1)
        lines.append(f"{name:20}" + "".join(f"  {a:8.2f} {b:8.2f} {c:8.2f}" for a, b, c in found))
    scale = Statistics.of(series.values)
    lines += [
        "",
        f"a random forest tells samples from held-out windows with AUC {told_apart(held_out, samples):.2f}, "
        f"training windows with {told_apart(held_out, training):.2f} (0.5: not at all, 1: always)",
        f"distance to the nearest training window: samples {nearest(samples, training, scale):.2f}, "
        f"held-out windows {nearest(held_out, training, scale):.2f} deviations per value",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
