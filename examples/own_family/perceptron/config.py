"""The configuration: every field is declared once, here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from wdport.base.fields import NETWORK, Fields, Summary

Width = Annotated[int, Meta(ge=1, le=1 << 16)]


@dataclass(frozen=True)
class Config(Fields):
    """Sizes of a perceptron with one hidden layer, and its activation; raises ``ValueError`` for invalid ones."""

    inputs: Annotated[Width, "Number of input features.", NETWORK, Summary()]
    hidden: Annotated[Width, "Number of units in the hidden layer.", NETWORK, Summary()]
    outputs: Annotated[Width, "Number of output features.", NETWORK, Summary()]
    activation: Annotated[
        Literal["relu", "tanh", "silu"], "Activation of the hidden layer.", NETWORK, Summary("act")
    ] = "relu"
