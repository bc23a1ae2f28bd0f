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


def set_of(name: str, given: Given) -> SeriesSet:
    """The set that is given under this name; raises :class:`UsageError`, or :class:`InputError` for a file."""
    if isinstance(given, SeriesSet):
        return given
    if isinstance(given, (str, PathLike)):
        return read_samples(given)
    if isinstance(given, Samples):
        if given.decoded is None:
            raise UsageError(name, "are not decoded to series", "convert the model with its transform's settings")
        return SeriesSet(require_series(name, given.decoded), given.features, name)
    return SeriesSet(require_series(name, given), (), name)


def array_of(name: str, given: object) -> Array:
    """Numbers as an array, masked ones as NaN; raises :class:`UsageError` for what is not an array of real numbers."""
    try:
        array = np.ma.filled(given.astype(float), np.nan) if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths, a tensor that requires a gradient
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise UsageError(name, "are not an array of real numbers", "give series (n, length, features)")
    return array


def require_series(name: str, given: object) -> Array:
    """Return the series (n, N, F); raises :class:`UsageError` for anything else, or values that are not finite."""
    series = array_of(name, given)
    if series.ndim != 3 or 0 in series.shape:
        raise UsageError(name, f"have shape {series.shape}", "give series (n, length, features)")
    if not np.isfinite(series).all():
        count = int((~np.isfinite(series)).any((1, 2)).sum())
        raise UsageError(name, f"have NaN or infinite values in {count} of {len(series)}", "leave these series out")
    return np.ascontiguousarray(series)  # sums over another layout have other last bits


def require_scale(found: SeriesSet, scale: Scaling) -> None:
    """Raise :class:`UsageError` for values that are too far from the real ones to compute with."""
    if (furthest := float(np.abs(scale(found.values)).max())) > LARGEST:
        what = f"have values of {furthest:.3g} times the range of the data"
        raise UsageError(found.where, what, "leave these series out")


def alike(sets: Mapping[str, SeriesSet]) -> dict[str, SeriesSet]:
    """The sets with their features in one order, that of the first set with names; raises :class:`UsageError` for sets
    of different sizes or features."""
    shape = next(iter(sets.values())).shape
    names = next((each.features for each in sets.values() if each.features), ())
    found = {}
    for name, each in sets.items():
        if each.shape != shape:
            what = f"have length and features {each.shape}, others {shape}"
            raise UsageError(each.where, what, "give series of one shape")
        if each.features and each.features != names:
            places = [each.features.index(feature) for feature in names if feature in each.features]
            if len(places) < len(names):
                what = f"have the features {_listed(each.features)}, others {_listed(names)}"
                raise UsageError(each.where, what, "give series of the same features")
            each = replace(each, values=np.ascontiguousarray(each.values[..., places]), features=names)
        found[name] = each
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(str(name)[:40] for name in names)
