"""The type of a file of statistics."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from wdport.limits import MAX_FEATURE_NAME_CHARS

Name = Annotated[str, Meta(max_length=MAX_FEATURE_NAME_CHARS, pattern=r"^\S(.*\S)?$")]
"""The name of a feature."""

_Names = Annotated[list[Name], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]


class StatisticsForm(TypedDict):
    """Mean and standard deviation of every feature, in the units of the data."""

    mean: Annotated[list[float], Meta(min_length=1), Meta(description="Mean of each of F features.")]
    std: Annotated[list[Annotated[float, Meta(gt=0)]], Meta(min_length=1), Meta(description=
        "Standard deviation of each of F features, with ddof 0.")]  # fmt: skip
    names: NotRequired[Annotated[_Names, Meta(description=
        "Names of the features, all different and printable, for tables and figures of samples.")]]  # fmt: skip
    transform: NotRequired[Annotated[Literal["zscore", "log1p-volume"], Meta(description=
        "What the statistics are of: the features, or the features with log1p of the volume, the fifth.")]]  # fmt: skip
