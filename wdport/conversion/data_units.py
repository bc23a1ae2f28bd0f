"""The units of the data of a model that is trained on series, from data or their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast

from wdport.base.options import PathText
from wdport.compare.findings import Finding
from wdport.families.shipped import provided


class DataUnits(Protocol):
    """What a model's windows are in the units of the data; :class:`wdport.uses.data.units.Units` has them."""

    def flags(self) -> dict[str, Any]:
        """The settings of a family's configuration that they state."""

    def differences(self, config: Mapping[str, object]) -> Iterable[Finding]:
        """The statistics in a converted file's configuration that are not those of the data."""


def read_units(norm_stats: PathText | None, data: PathText | None, transform: str | None = None) -> DataUnits | None:
    """The units from a file of statistics or from data, whichever is given; None if neither is.

    Raises:
        UsageError: both are given, or a transform without them.
        InputError: the file cannot be read or does not fit the transform.
    """
    if norm_stats is None and data is None and transform is None:
        return None
    read = cast(Callable[[PathText | None, PathText | None, str | None], DataUnits | None], provided("units"))
    return read(norm_stats, data, transform)
