"""The result of ``wdport map suggest`` as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from wdport.parity.verdict import VerdictDocument
from wdport.shared_types import Count


@dataclass(frozen=True)
class Place:
    """A layer in both models; either name may be empty."""

    keras: Annotated[str, Meta(description="Path of the Keras layer.")]
    torch: Annotated[str, Meta(description="Path of the PyTorch module.")]


@dataclass(frozen=True)
class SuggestionDocument:
    """What ``wdport map suggest --json`` prints."""

    found: Annotated[bool, Meta(description="Whether a table was found for the whole model.")]
    proved: Annotated[bool, Meta(description="Whether `verify` proved the table.")]
    layers: Annotated[Count, Meta(description="Number of layers.")]
    passes: Annotated[Count, Meta(description="Number of passes through the models.")]
    seconds: Annotated[float, Meta(description="Total duration in seconds.")]
    forward_seconds: Annotated[float, Meta(description=
        "Time spent running the models, in seconds; part of the total duration.")]  # fmt: skip
    doubts: Annotated[Sequence[str], Meta(description="Uncertainties about the table, one sentence each.")]
    notes: Annotated[Sequence[str], Meta(description="Notes for the reader, one sentence each.")]
    rows: Annotated[Sequence[Mapping[str, object]], Meta(description=
        "Rows of the table, in the form in which a mapping table contains them under `layers`, `tensors` and "
        "`tied`.")]  # fmt: skip
    failure: Annotated[str, Meta(description=
        "Why the table is not proved; empty if it is proved, or if no proof was attempted.")]  # fmt: skip
    verdict: Annotated[VerdictDocument | None, Meta(description="The proof; null if there is none.")]
    last_alike: Annotated[Place | None, Meta(description="The last layer at which the models agree.")]
    first_unlike: Annotated[Place | None, Meta(description="The first layer at which the models do not agree.")]
    causes: Annotated[Sequence[str], Meta(description="Probable causes of the difference, the most likely first.")]
    what: Annotated[str | UnsetType, Meta(description=
        "What is wrong at the first layer at which the models do not agree.")] = UNSET  # fmt: skip
    wanted: Annotated[str | UnsetType, Meta(description=
        "What the input or output of this layer should be; empty if unknown.")] = UNSET  # fmt: skip
