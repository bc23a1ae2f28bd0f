"""The type of a file of statistics."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from wdport.declared import Also
from wdport.limits import MAX_FEATURE_NAME_CHARS

Name = Annotated[str, Also(maxLength=MAX_FEATURE_NAME_CHARS, pattern=r"^\S(.*\S)?$")]
"""The name of a feature."""


class StatisticsForm(TypedDict):
    """Mean and standard deviation of every feature, in the units of the data."""

    mean: Annotated[list[float], Also(minItems=1)]
    """Mean of each of F features."""
    std: Annotated[list[Annotated[float, Also(exclusiveMinimum=0)]], Also(minItems=1)]
    """Standard deviation of each of F features, with ddof 0."""
    names: NotRequired[Annotated[list[Name], Also(minItems=1, uniqueItems=True)]]
    """Names of the features, all different and printable, for tables and figures of samples."""
    transform: NotRequired[Literal["zscore", "log1p-volume"]]
    """What the statistics are of: the features, or the features with log1p of the volume, the fifth."""
