"""Rules applied to arrays: source arrays in, target arrays out, bit for bit and back.

The same function serves both directions, because the inverse of a rule is a rule. Arithmetic, which is
not exact, is in :mod:`wdport.mapping.arithmetic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdport.mapping.axes import Rule

Array = NDArray[Any]


def apply_rule(rule: Rule, sources: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
    """Rearrange ``sources`` (one array, or one per index of the stacked axis) into target arrays.

    ``sizes`` are the axis sizes from :meth:`wdport.mapping.axes.Rule.sizes`. The results are
    C-contiguous; they share memory with the sources where nothing had to move.
    """
    if rule.source.any_axes:
        return [np.require(sources[0], requirements="C")]
    split = [array.reshape([sizes[n] for group in rule.source.groups for n in group]) for array in sources]
    names = [name for group in rule.source.groups for name in group]
    stacked = np.stack(split) if rule.source.stacked else split[0]
    if rule.source.stacked:
        names.insert(0, rule.source.stacked)
    for name, order in rule.orders.items():
        stacked = np.take(stacked, order, axis=names.index(name))
    ordered = stacked.transpose([names.index(name) for name in rule.target.names])
    shape = rule.target.shape(sizes)
    parts = list(ordered) if rule.target.stacked else [ordered]
    return [np.ascontiguousarray(part).reshape(shape) for part in parts]
