"""The configuration: everything that fixes the function a TS2Vec encoder computes, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from wdport.limits import MAX_FEATURES, MAX_VALUES, MAX_WIDTH

MAX_DEPTH = 14
"""Test inputs are as long as the widest dilation: 2^14 = 16,384 steps here, 1024 for the public code's default."""

BETWEEN = {
    "input_dims": (1, MAX_FEATURES),
    "hidden_dims": (1, MAX_WIDTH),
    "output_dims": (1, MAX_WIDTH),
    "depth": (0, MAX_DEPTH),
    "kernel_size": (1, 255),
}
"""The smallest and the largest value of every field."""


@dataclass(frozen=True)
class Config:
    """Sizes of one encoder; raises ``ValueError`` for invalid sizes.

    Attributes:
        input_dims: F, features of a step.
        hidden_dims: H, channels of all blocks but the last.
        output_dims: D, channels of the last block and of the representation.
        depth: number of blocks before the last; block i dilates by 2^i.
        kernel_size: K, odd, so that the padding is symmetric.
    """

    input_dims: int
    hidden_dims: int
    output_dims: int
    depth: int
    kernel_size: int = 3

    def __post_init__(self) -> None:
        for name, (least, most) in BETWEEN.items():
            value = getattr(self, name)
            if type(value) is not int:
                raise ValueError(f"{name} is not a whole number")
            if not least <= value <= most:
                shown = value if abs(value) < 1 << 64 else f"of {value.bit_length()} bits"
                raise ValueError(f"{name} {shown}: {least} to {most} is supported")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size {self.kernel_size} is even, so no padding is the same on both sides")
        if (count := self._values()) > MAX_VALUES:
            raise ValueError(f"the sizes are those of a model of {count} values, at most {MAX_VALUES} are supported")

    def _values(self) -> int:
        """Lower bound of the number of values in the variables, computed without building the model."""
        hidden, out, kernel = self.hidden_dims, self.output_dims, self.kernel_size
        return self.input_dims * hidden + kernel * (2 * self.depth * hidden**2 + hidden * out + out**2) + hidden * out

    @property
    def blocks(self) -> tuple[tuple[int, int, int], ...]:
        """Every block's input channels, output channels and dilation."""
        hidden = [(self.hidden_dims, self.hidden_dims, 2**i) for i in range(self.depth)]
        return (*hidden, (self.hidden_dims, self.output_dims, 2**self.depth))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; :meth:`from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Config:
        """A configuration from :meth:`to_dict`'s values; raises ``ValueError`` for anything else."""
        if not isinstance(values, Mapping):
            raise ValueError("the configuration is not a table of values")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(str(name) for name in set(values) - known):
            raise ValueError(f"unknown configuration values: {', '.join(unknown[:5])}")
        if missing := [name for name in BETWEEN if name not in values and name != "kernel_size"]:
            raise ValueError(f"missing configuration values: {', '.join(missing)}")
        return cls(**values)  # type: ignore[arg-type]  # __post_init__ looks at the types
