"""The result of an evaluation: scores by set and metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from wdport.models.interface import Array

FLOOR: Final = "real"
"""The name of the floor among the scored sets: real series against other real series."""

ITSELF: Final = "itself"
"""The name of the other floor: one half of the first set against the other half, as if drawn with another seed."""


@dataclass(frozen=True)
class Score:
    """One score of one set of series, a number for every repetition; smaller is better."""

    metric: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the repetitions."""
        return float(np.mean(self.values))

    @property
    def std(self) -> float:
        """With n - 1 degrees of freedom; 0 for one repetition."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.std:.2g}" if len(self.values) > 1 else f"{self.mean:.4g}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of named sets of series, one score per metric for each set.

    ``sets`` holds the scores of the samples under the names that you gave them, and of two floors: "real", if the data
    allows one, and "itself", one half of the first set against the other, unless the set is too small. ``counts`` is
    the number of series of each set that are compared with the same number of real ones, ``features`` the names of the
    features, if known, and ``real`` all real windows (n, N, F).
    """

    sets: Mapping[str, Mapping[str, Score]]
    counts: Mapping[str, int]
    shape: tuple[int, int]
    repeats: int
    seed: int
    features: tuple[str, ...] = ()
    real: Array = field(default_factory=lambda: np.zeros((0, 0, 0)), repr=False)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in their order."""
        return tuple(next(iter(self.sets.values())))

    def __getitem__(self, name: str) -> Mapping[str, Score]:
        return self.sets[name]

    def within_floor(self, name: str, metric: str, width: float = 2.0) -> bool | None:
        """Whether a set's score exceeds the floor's by at most ``width`` standard deviations of their difference; None
        without a floor."""
        if FLOOR not in self.sets or name == FLOOR:
            return None
        return not apart(self.sets[name][metric], self.sets[FLOOR][metric], width)


def apart(score: Score, other: Score, width: float = 2.0) -> bool:
    """Whether a score is above another one by more than ``width`` standard deviations of their difference."""
    # One-sided: a set that is better than the floor is within it.
    return score.mean - other.mean > width * float(np.hypot(score.std, other.std))
