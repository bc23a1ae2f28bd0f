"""Sets of series as they are given, and the real series that they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike

from wdport.data.samples import SeriesSet, read_samples
from wdport.errors import UsageError
from wdport.evaluation.scaling import LARGEST, Scaling
from wdport.model import Array
from wdport.sampling.samples import Samples

Given = ArrayLike | SeriesSet | Samples | str | PathLike[str]
"""A set of series: an array (n, N, F), what :func:`wdport.sample` returns, or a file of either."""


def set_of(name: str, samples: Given) -> SeriesSet:
    """The set that is given under this name; raises :class:`UsageError`, or :class:`InputError` for a file."""
    if isinstance(samples, SeriesSet):
        return samples
    if isinstance(samples, (str, PathLike)):
        return read_samples(samples)
    if isinstance(samples, Samples):
        if samples.decoded is None:
            raise UsageError(name, "are not decoded to series", "convert the model with its transform's settings")
        return SeriesSet(require_series(name, samples.decoded), samples.features, name)
    return SeriesSet(require_series(name, samples), (), name)


def array_of(name: str, values: object) -> Array:
    """Numbers as an array, masked ones as NaN; raises :class:`UsageError` for what is not an array of real numbers."""
    try:
        array = (
            np.ma.filled(values.astype(float), np.nan) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        )
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths, a tensor that requires a gradient
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise UsageError(name, "are not an array of real numbers", "give series (n, length, features)")
    return array


def require_series(name: str, values: object) -> Array:
    """Return the series (n, N, F); raises :class:`UsageError` for anything else, or values that are not finite."""
    series = array_of(name, values)
    if series.ndim != 3 or 0 in series.shape:
        raise UsageError(name, f"have shape {series.shape}", "give series (n, length, features)")
    if not np.isfinite(series).all():
        count = int((~np.isfinite(series)).any((1, 2)).sum())
        raise UsageError(name, f"have NaN or infinite values in {count} of {len(series)}", "leave these series out")
    return np.ascontiguousarray(series)  # sums over another layout have other last bits


def require_scale(series_set: SeriesSet, scale: Scaling) -> None:
    """Raise :class:`UsageError` for values that are too far from the real ones to compute with."""
    if (furthest := float(np.abs(scale(series_set.values)).max())) > LARGEST:
        what = f"have values of {furthest:.3g} times the range of the data"
        raise UsageError(series_set.where, what, "leave these series out")


def alike(sets: Mapping[str, SeriesSet]) -> dict[str, SeriesSet]:
    """The sets with their features in one order, that of the first set with names; raises :class:`UsageError` for sets
    of different sizes or features."""
    shape = next(iter(sets.values())).shape
    names = next((series_set.features for series_set in sets.values() if series_set.features), ())
    ordered = {}
    for name, series_set in sets.items():
        if series_set.shape != shape:
            what = f"have length and features {series_set.shape}, others {shape}"
            raise UsageError(series_set.where, what, "give series of one shape")
        if series_set.features and series_set.features != names:
            places = [series_set.features.index(feature) for feature in names if feature in series_set.features]
            if len(places) < len(names):
                what = f"have the features {_listed(series_set.features)}, others {_listed(names)}"
                raise UsageError(series_set.where, what, "give series of the same features")
            series_set = replace(
                series_set, values=np.ascontiguousarray(series_set.values[..., places]), features=names
            )
        ordered[name] = series_set
    return ordered


def _listed(names: Sequence[str]) -> str:
    return ", ".join(str(name)[:40] for name in names)
