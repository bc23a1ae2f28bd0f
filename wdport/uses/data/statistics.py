"""Compute the mean and standard deviation per feature of a series, for z-scores, and store them as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from wdport.base.errors import UsageError
from wdport.base.limits import MAX_FEATURE_NAME_CHARS, MAX_FEATURES, MAX_TABLE_BYTES
from wdport.base.shared_types import about
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import read_small
from wdport.checkpoint.strict_json import strict_json
from wdport.models.interface import Array
from wdport.uses.data.arrays import opened_npz
from wdport.uses.data.table import checked_names, data_file

Name = Annotated[str, Meta(max_length=MAX_FEATURE_NAME_CHARS, pattern=r"^\S(.*\S)?$")]
"""The name of a feature."""

_Names = Annotated[list[Name], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]


class StatisticsForm(TypedDict):
    """Mean and standard deviation of every feature, in the units of the data."""

    mean: Annotated[list[float], Meta(min_length=1), about("Mean of each of the F features.")]
    std: Annotated[list[Annotated[float, Meta(gt=0)]], Meta(min_length=1), about(
        "Standard deviation of each of the F features, with ddof 0.")]  # fmt: skip
    names: NotRequired[Annotated[_Names, about(
        "Names of the features, for tables and figures of samples. The names must be printable and "
        "unique.")]]  # fmt: skip
    transform: NotRequired[Annotated[Literal["zscore", "log1p-volume"], about(
        "What the statistics describe: for `zscore`, the features themselves; for `log1p-volume`, the features with "
        "log1p applied to the fifth, the volume.")]]  # fmt: skip


_PAIRS: Final = (("norm_mean", "norm_std"), ("mean", "std"))
_MOST_BYTES: Final = 16 * MAX_FEATURES + 10_000
"""Bytes of an array in an archive: long doubles and a header."""

_FIX: Final = "give one finite mean and one positive std per feature"


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of each of F features, in the features' own units, and the names of the features.

    Any sequence of F real numbers is accepted and kept as a tuple. ``names`` is None for unnamed features.
    Raises :class:`UsageError` if the two have different lengths, are empty or contain a non-finite number, if a std
    is not positive, or for names that :func:`wdport.uses.data.table.checked_names` refuses.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        try:
            mean, std = _checked(self.mean, self.std)
            names = None if self.names is None else _checked_names(self.names, len(mean))
        except Fault as fault:
            raise UsageError("statistics", fault.what, fault.fix) from None
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)
        object.__setattr__(self, "names", names)

    @staticmethod
    def of(values: ArrayLike, names: Sequence[str] | None = None) -> Statistics:
        """Compute the statistics over all T steps of ``values`` (T, F), in float64 and with ddof 0.

        A std of zero becomes 1; a constant feature has exactly its value as mean and std 1, without rounding errors.
        Raises :class:`UsageError` for values that are not (T, F), or not finite.
        """
        table = np.asarray(values, np.float64)
        if table.ndim != 2 or 0 in table.shape:
            raise UsageError("values", f"have shape {table.shape}", "give (time steps, features)")
        # The mean of equal numbers may be off by a rounding, and their deviation would then be tiny but not zero.
        with np.errstate(over="ignore", invalid="ignore"):  # refused below, as not finite
            constant = (table == table[0]).all(axis=0)
            mean = np.where(constant, table[0], table.mean(axis=0))
            std = np.where(constant, 1.0, table.std(axis=0))
        # Values whose squares underflow have a deviation of zero without being constant.
        return Statistics(tuple(mean), tuple(np.where(std == 0, 1.0, std)), None if names is None else tuple(names))

    def normalize(self, x: ArrayLike) -> Array:
        """Return (x - mean) / std of an array (..., F), in float64."""
        normalized: Array = (self._features(x) - np.array(self.mean)) / np.array(self.std)
        return normalized

    def denormalize(self, x: ArrayLike) -> Array:
        """Return x * std + mean of an array (..., F), in float64: the inverse of :meth:`normalize`, up to rounding."""
        denormalized: Array = self._features(x) * np.array(self.std) + np.array(self.mean)
        return denormalized

    def to_dict(self) -> dict[str, list[float] | list[str]]:
        """Return ``{"mean": [...], "std": [...]}``, and ``"names"`` if there are any; `json.dumps` keeps every bit."""
        named: dict[str, list[float] | list[str]] = {} if self.names is None else {"names": list(self.names)}
        return {"mean": list(self.mean), "std": list(self.std), **named}

    @staticmethod
    def from_dict(entries: Mapping[str, object]) -> Statistics:
        """The inverse of :meth:`to_dict`; raises :class:`UsageError` for anything else."""
        try:
            mean, std = _pair(entries, _PAIRS[1:])
            return Statistics(mean, std, _names(entries, len(mean)))
        except Fault as fault:
            raise UsageError("statistics", fault.what, fault.fix) from None

    def _features(self, x: ArrayLike) -> Array:
        array = np.asarray(x, np.float64)
        if array.ndim == 0 or array.shape[-1] != len(self.mean):
            features = array.shape[-1] if array.ndim else "no"
            what = f"has {features} features along its last axis, the statistics have {len(self.mean)}"
            raise UsageError("x", what, "use the statistics of the same features")
        return array


def read_statistics(path: str | PathLike[str]) -> Statistics:
    """Read statistics from ``.json`` (mean, std and, if given, names) or ``.npz`` (norm_mean, norm_std, or mean, std).

    Raises :class:`InputError` for a file that is missing, damaged or has other content, or a std that is not
    positive; an array may have leading axes of length 1.
    """
    with data_file(path) as file:
        suffix = file.suffix.lower()
        if suffix == ".json":
            entries = read_document(file)
            mean, std = _checked(*_pair(entries, _PAIRS[1:]))
            return Statistics(mean, std, _names(entries, len(mean)))
        if suffix == ".npz":
            with opened_npz(file, _MOST_BYTES) as archive:
                return Statistics(*_checked(*(np.atleast_1d(part) for part in _pair(archive, _PAIRS))))
        raise Fault(f"is of an unknown kind ({suffix or 'no suffix'})", "give a .json or .npz file")


def _pair(entries: object, pairs: tuple[tuple[str, str], ...]) -> tuple[Any, Any]:
    """Return the values of the first of the ``pairs`` of names that ``entries`` has."""
    if isinstance(entries, Mapping):
        for mean, std in pairs:
            if mean in entries and std in entries:
                return entries[mean], entries[std]
    raise Fault("holds no mean and std", f"give {' or '.join(f'{mean} and {std}' for mean, std in pairs)}")


def _names(entries: Mapping[str, object], features: int) -> tuple[str, ...] | None:
    """Return the features' names in a JSON document; None if it has none."""
    return _checked_names(entries["names"], features) if "names" in entries else None


def _checked_names(names: object, features: int) -> tuple[str, ...]:
    """Return ``names`` as a tuple; raises :class:`Fault` for invalid feature names."""
    try:
        return checked_names(names, features)
    except ValueError as error:
        raise Fault(str(error), "give each feature a short, distinct name, or leave the names out") from None


def read_document(file: Path) -> dict[str, object]:
    """A JSON file of statistics as plain data; raises :class:`Fault`."""
    try:
        return strict_json(read_small(file, MAX_TABLE_BYTES), "file", finite=False)
    except Fault as fault:
        raise Fault(fault.what, 'write {"mean": [...], "std": [...]}') from None


def _checked(mean: ArrayLike, std: ArrayLike) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return both as tuples of floats; raises :class:`Fault` for invalid statistics."""
    means, stds = _numbers("mean", mean), _numbers("std", std)
    if len(means) != len(stds):
        raise Fault(f"{len(means)} means but {len(stds)} standard deviations", _FIX)
    for number, value in enumerate(stds, 1):
        if value <= 0:
            raise Fault(f"std of feature {number} is {value:g}, which is not positive", _FIX)
    return means, stds


def _numbers(name: str, values: ArrayLike) -> tuple[float, ...]:
    try:
        array = np.asarray(values)
    except ValueError:  # nested lists of different lengths
        raise Fault(f"{name} is not a list of numbers", _FIX) from None
    if array.dtype.kind not in "iuf" or not array.ndim or not array.size or array.size != array.shape[-1]:
        raise Fault(f"{name} is not a list of numbers", _FIX)
    if array.size > MAX_FEATURES:
        raise Fault(f"{name} has {array.size} values, more than {MAX_FEATURES} features", _FIX)
    numbers = tuple(float(value) for value in array.reshape(-1))
    for number, value in enumerate(numbers, 1):
        if not isfinite(value):
            raise Fault(f"{name} of feature {number} is {value}", _FIX)
    return numbers
