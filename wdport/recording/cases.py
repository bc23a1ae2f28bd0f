"""The cases that a network is run with: seeds, batches, scales, and samples of extreme and unusual values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable, Sequence

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


EXTREMES = ("zeros", "constant", "large", "missing")
"""Samples of extreme values: all zero, all one number, :data:`LARGE` times normal, with missing values (NaN)."""

UNUSUAL = ("whole", "sparse", "small", "far")
"""Samples of unusual values, which are run in float32 as well: odd multiples of 1/2, 1/4, 1/8 and 1, or ids that have a
meaning; zeros at half of the places and at the end, or runs of equal ids; :data:`TINY` times normal; and :data:`FAR`
from 0."""

HIDDEN = "hidden"
"""The sample in place of one with missing values where none can be missing: ordinary values, and masks without any true
value. Masks of the other extreme samples are false everywhere with zeros, true everywhere with a constant, and true at
one position with large values, which a number that stands for infinity must exceed."""

LARGE = 2e4
"""Factor of normal values in a sample of large values: float16 does not hold the largest, and the products of two stay
below the 1e9 that many models take for infinity in a mask."""

TINY = 1e-4
"""Factor of normal values in a sample of small values."""

FAR = 300.0
"""What a sample of values far from 0 is shifted by, as a factor of the case's scale."""

CONSTANT = -0.7
"""The value of a constant sample: neither float32 nor a short sum of powers of two holds it."""


@dataclass(frozen=True)
class Case:
    """One input of the battery: how its values are drawn.

    ``extremes`` names for every sample of the batch one of :data:`EXTREMES` or :data:`UNUSUAL`, :data:`HIDDEN`, or ""
    for ordinary values; it is empty if all are ordinary. ``numerics``: also run in float32. That takes two more
    compiled programs per batch size, so only one batch size is run in float32; a batch of 1, which has the greatest
    lengths, is run in float64 only. Of extreme values, which float32 rounds too coarsely to be compared, only the
    outputs are run in float32 too. In float32, isolated layers get ``gain`` times the recorded values, see
    :func:`answers_of`. If it is not ``batched``, no input has a batch axis: the case has one
    sample, and ``batch`` only selects the sizes of the axes.
    """

    seed: int
    batch: int
    scale: float
    random_biases: bool = False
    extremes: tuple[str, ...] = ()
    gain: float = 1.0
    batched: bool = True

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.batch if self.batched else 1

    @property
    def extreme(self) -> bool:
        """Whether values are more than unusual."""
        return not {"", *UNUSUAL}.issuperset(self.extremes)

    @property
    def numerics(self) -> bool:
        return self.batch > 1 and not self.extreme

    def describe(self) -> str:
        weights = "random biases" if self.random_biases else "converted weights"
        extremes = ", ".join(extreme for extreme in self.extremes if extreme)
        more = f"samples: {extremes}, " if extremes else ""
        gain = f", gain x{self.gain:g}" if self.gain != 1.0 else ""
        sizes = f"batch {self.batch}" if self.batched else f"the {'first' if self.batch > 1 else 'other'} sizes"
        return f"seed {self.seed}, {sizes}, scale x{self.scale:g}, {more}{weights}{gain}"


CASES = (
    Case(seed=0, batch=4, scale=1.0),
    Case(seed=1, batch=1, scale=1.0),
    Case(seed=2, batch=4, scale=50.0, gain=32.0),
    Case(seed=4, batch=4, scale=1.0, extremes=EXTREMES),
    Case(seed=3, batch=4, scale=1.0, random_biases=True, extremes=UNUSUAL),
)

LONGEST = 513
"""Positions up to which lengths are compared: with more, a run in float64 takes long. It is odd, for layers that treat
pairs of steps; tables often end one before."""

SEEDS = 1000
"""Seeds of one battery: those of the next are this much larger."""

SCALES = (1.0, 0.01, 50.0)
"""Factors of additional cases, in turn."""


def battery(seed: int = 0, more: int = 0) -> tuple[Case, ...]:
    """The cases of a comparison: :data:`CASES` with other seeds if ``seed`` is not 0, and ``more`` random ones."""
    first = SEEDS * seed
    random = [Case(first + len(CASES) + index, CASES[0].batch, SCALES[index % len(SCALES)]) for index in range(more)]
    return (*(replace(case, seed=first + case.seed) for case in CASES), *random)


MakeInputs = Callable[[int, int, float], Sequence["ArrayLike"]]
