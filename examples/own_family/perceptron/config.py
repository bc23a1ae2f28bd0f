"""The configuration: every field is declared once, here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from wdport.fields import NETWORK, Fields, Summary

Width = Annotated[int, Meta(ge=1, le=1 << 16)]


@dataclass(frozen=True)
class Config(Fields):
    """Sizes of a perceptron with one hidden layer, and its activation; raises ``ValueError`` for invalid ones."""

    inputs: Annotated[Width, Meta(description="Numbers of an input."), NETWORK, Summary("inputs")]
    hidden: Annotated[Width, Meta(description="Units of the hidden layer."), NETWORK, Summary("hidden")]
    outputs: Annotated[Width, Meta(description="Numbers of an output."), NETWORK, Summary("outputs")]
    activation: Annotated[
        Literal["relu", "tanh", "silu"], Meta(description="Activation of the hidden layer."), NETWORK, Summary("act")
    ] = "relu"
