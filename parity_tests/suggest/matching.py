"""Names and shapes alone: the best assignment by how alike names are, among equal shapes up to the order of axes.

Generous: a tensor counts as right if it is given to a variable that it fills, whatever the order of its values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher

import numpy as np
from scipy.optimize import linear_sum_assignment

from .fates import UNCOUNTED, Fates

_SAME = {"kernel": "weight", "gamma": "weight", "beta": "bias", "moving": "running", "variance": "var",
         "embeddings": "weight", "alpha": "weight", "recurrent": "hh"}  # fmt: skip
Shapes = Mapping[str, tuple[int, ...]]


def matched_right(truth: Fates, sources: Shapes, targets: Shapes, given: Mapping[str, str]) -> float:
    """The share of tensors that fill a variable in truth and are assigned to one of those.

    Args:
        truth: what becomes of them, by honest names.
        sources: their shapes, by honest names.
        targets: those of the variables.
        given: the name that each has in the model, by its honest name.
    """
    names = [name for name in sources if not name.endswith(UNCOUNTED)]
    paths = list(targets)
    cost = np.full((len(names), len(paths)), 1e3)
    for row, name in enumerate(names):
        for column, path in enumerate(paths):
            if _sizes(sources[name]) == _sizes(targets[path]):
                cost[row, column] = -_alike(given[name], path)
    assigned = {
        names[row]: paths[column]
        for row, column in zip(*linear_sum_assignment(cost), strict=True)
        if cost[row, column] < 1e3
    }
    asked = [name for name in names if truth.fills(name)]
    return sum(assigned.get(name) in truth.fills(name) for name in asked) / len(asked)


def _sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(size for size in shape if size != 1))


def _alike(name: str, path: str) -> float:
    ours, theirs = (" ".join(_SAME.get(word, word) for word in re.split(r"[./_]", each)) for each in (name, path))
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()
