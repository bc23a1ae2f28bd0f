"""The inputs that a parity run uses: they decide what can be seen.

Three seeds; the first, a middle and the last time step within one batch; unit and fifty-fold scale;
batches of one and of four; energy different in every level; weights as converted and with random
biases. Inputs of zeros or ones, or a time of 0, would each hide known faults.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One input of the battery.

    ``numerics``: float32 is looked at too. That takes two more compiled programs per batch size, so one
    batch size does it; a batch of 1 is followed through the network in float64.
    """

    seed: int
    batch: int
    scale: float
    random_biases: bool = False

    @property
    def numerics(self) -> bool:
        return self.batch > 1

    def describe(self) -> str:
        """A few words for a person."""
        weights = "random biases" if self.random_biases else "converted weights"
        return f"seed {self.seed}, batch {self.batch}, scale x{self.scale:g}, {weights}"


CASES = (
    Case(seed=0, batch=4, scale=1.0),
    Case(seed=1, batch=1, scale=1.0),
    Case(seed=2, batch=4, scale=50.0),
    Case(seed=3, batch=4, scale=1.0, random_biases=True),
)
