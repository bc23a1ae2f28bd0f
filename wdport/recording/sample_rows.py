"""Rows of one sample in arrays whose first axis holds the samples, or several rows of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

import numpy as np

if TYPE_CHECKING:
    from .shared_types import Array


def by_sample(array: Array, count: int) -> Array | None:
    """A row of values for each of ``count`` samples, which are along the first axis, or all of the array; ``None`` if
    the array does not have that many."""
    if not count or (count > 1 and array.shape[:1] != (count,)):
        return None
    return array.reshape(count, -1)


def rows_of_sample(rows: int, count: int, sample: int) -> tuple[range, range]:
    """The places along a first axis of ``rows``, a multiple of ``count``, that may be of one of ``count`` samples:
    adjacent ones, as of windows of an image, or ones that are a batch apart, as of two batches in one."""
    several = rows // count
    return range(sample * several, (sample + 1) * several), range(sample, rows, count)


def squares_by_sample(arrays: Sequence[Array], count: int) -> Array | None:
    """The sum of the squares of each of ``count`` samples, over the arrays that have their axis; if there is none, of
    each row, if the first axis of all arrays is the same multiple of ``count``; else ``None``."""
    rows = [values for array in arrays if (values := by_sample(array, count)) is not None]
    lengths = {len(array) if array.ndim else 0 for array in arrays}
    if not rows and count > 1 and len(lengths) == 1 and (length := lengths.pop()) > count and length % count == 0:
        rows = [array.reshape(length, -1) for array in arrays]
    return np.asarray(np.sum([np.sum(np.square(values), 1) for values in rows], 0)) if rows else None
