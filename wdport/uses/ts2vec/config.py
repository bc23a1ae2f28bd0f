"""The configuration: everything that fixes the function of a TS2Vec encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from wdport.base.fields import NETWORK, Fields, Summary, Width, Wording, fields_of
from wdport.base.limits import MAX_FEATURES, require_model_size

MAX_DEPTH = 14
"""Test inputs are as long as the widest dilation: 2^14 = 16,384 steps here, 1024 for the public code's default."""


@dataclass(frozen=True)
class Config(Fields):
    """Sizes of one encoder; raises ``ValueError`` for invalid sizes."""

    input_dims: Annotated[int, Meta(ge=1, le=MAX_FEATURES), "Number of features per time step, F.", NETWORK, Summary()]
    hidden_dims: Annotated[Width, "Number of channels of every block but the last, H.", NETWORK, Summary()]
    output_dims: Annotated[
        Width, "Number of channels of the last block and of the representation, D.", NETWORK, Summary()
    ]
    depth: Annotated[
        int, Meta(ge=0, le=MAX_DEPTH), "Number of blocks before the last; block i has dilation 2^i.", NETWORK, Summary()
    ]
    kernel_size: Annotated[
        int,
        Meta(ge=1, le=255, extra_json_schema={"not": {"multipleOf": 2}}),
        "Width of the convolution kernels, K; odd.",
        NETWORK,
    ] = 3

    wording: ClassVar = Wording(
        below="{value}: {least} to {most} is supported",
        above="{value}: {least} to {most} is supported",
        unknown="unknown configuration values: {names}",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel_size % 2 == 0:
            # The first block has a dilation of 1, so K - 1 zeros are divided between the two sides.
            raise ValueError(f"kernel_size {self.kernel_size} is even, so no padding is the same on both sides")
        require_model_size(0, self._values())

    def _values(self) -> int:
        """Lower bound of the number of values in the variables, computed without building the model."""
        hidden, out, kernel = self.hidden_dims, self.output_dims, self.kernel_size
        # The last block has a projection even where its widths are equal.
        return self.input_dims * hidden + kernel * (2 * self.depth * hidden**2 + hidden * out + out**2) + hidden * out

    @property
    def blocks(self) -> tuple[tuple[int, int, int], ...]:
        """Every block's input channels, output channels and dilation."""
        hidden = [(self.hidden_dims, self.hidden_dims, 2**i) for i in range(self.depth)]
        return (*hidden, (self.hidden_dims, self.output_dims, 2**self.depth))


NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {**{name: name for name in fields_of(Config)}, "repr_dims": "output_dims"}
)
"""Names of the fields in a configuration file; ``repr_dims`` is that of the public training script."""
