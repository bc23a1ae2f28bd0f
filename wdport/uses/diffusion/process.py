"""The process that a network was trained to undo, diffusion or flow: the interface for samplers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

from wdport.models.interface import Array, Clipping
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.reference_samplers import Change, Noise

if TYPE_CHECKING:
    from wdport.uses.diffusion.noise import Noising

UNIFORM, MIN_SNR = "uniform", "min-snr"
"""How training draws steps: all equally often, or those of much noise more often (Hang et al., arXiv 2303.09556)."""

Network = Callable[[Array, Array], Array]
"""(state (B, *shape), time (B,)) to the prediction (B, *shape), in numpy."""


@dataclass(frozen=True)
class Run:
    """One sampler with one target and one amount of noise: "DDIM, eta 0.5, noise target"."""

    sampler: str
    eta: float
    target: str

    def __str__(self) -> str:
        eta = f", eta {self.eta:g}" if self.sampler == "ddim" else ""
        return f"{self.sampler.upper()}{eta}, {self.target} target"


def is_number(value: object) -> bool:
    """Whether a field of a document is a finite number; a bool is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def require_integer(name: str, value: object, least: int, largest: int) -> None:
    """Raise ``ValueError`` for a field that is not a whole number between these."""
    if type(value) is not int or not least <= value <= largest:
        raise ValueError(f"{name} is not a whole number from {least} to {largest}")


def require_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise ``ValueError`` for a field that has none of these values."""
    if value not in choices:
        raise ValueError(f"{name} {value!r:.40} is not supported: one of {', '.join(map(str, choices))}")


def require_fields(kind: type[Any], values: Mapping[str, object]) -> None:
    """Raise ``ValueError`` for a value that is not a field of the scheduler class ``kind``."""
    names = [field.name for field in fields(kind)]
    if unknown := set(map(str, values)).difference(names):
        raise ValueError(f"unknown field {min(unknown)!r:.40} of a scheduler, which has {', '.join(names)}")


class TrainedProcess:
    """The fields of a ``scheduler_config.json`` that fix the process that a network was trained to undo."""

    @property
    def target(self) -> str:
        """What the network predicts."""
        raise NotImplementedError

    @property
    def clipping(self) -> Clipping | None:
        """How the predicted clean state is changed, if it is."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, object]:
        """As JSON values."""
        raise NotImplementedError


class Process(Protocol):
    """The plans that sample from a network. What most processes do not have is absent by default."""

    @property
    def target(self) -> str:
        """What the network predicts."""
        ...

    @property
    def clip(self) -> Clipping | None:
        """How the predicted clean state is changed, if it is."""
        ...

    @property
    def learned(self) -> bool:
        """Whether the network also predicts the variance of every step, as further channels."""
        return False

    @property
    def samplers(self) -> Sequence[str]:
        """Names of the samplers; the first one is the default."""
        ...

    @property
    def few(self) -> tuple[str, int] | None:
        """A sampler and its steps whose samples are as good as those of every step, where that was measured: see
        docs/evaluation.md. None where the default sampler takes few steps itself."""
        return None

    def plan(
        self, sampler: str | None = None, steps: int | None = None, eta: float = 0.0, times: int = 1,
        changed: bool = False,
    ) -> SamplingPlan:  # fmt: skip
        """The plan of one sampler with this number of steps, every step taken ``times`` times; ``changed`` if the
        network's estimate of the clean state is changed. Raises :class:`UsageError`."""
        ...

    def respaced(self, spacing: str, count: int | None) -> Process:
        """The process whose samplers visit other steps, ``count`` of them, all for None, by a name of
        :data:`wdport.uses.diffusion.schedules.SPACINGS`: whole steps, or noise levels between those of the first and
        last trained steps, with times between those of the steps. Raises :class:`UsageError`."""
        ...

    def noising(self, law: str = UNIFORM) -> Noising:
        """How training makes noisy states, with steps drawn by this ``law``; raises :class:`UsageError` for one that it
        does not know."""
        ...

    @property
    def runs(self) -> Sequence[Run]:
        """The runs that are compared with plain loops; empty without such loops."""
        ...

    def trial(self, run: Run, changed: bool = False) -> SamplingPlan:
        """The plan of a run of few steps; raises :class:`UsageError`."""
        ...

    def loop(self, run: Run, network: Network, init: Array, tape: Array) -> list[Array]:
        """The same run as a plain loop: the state after every row, in the dtype of ``init`` (B, *shape)."""
        ...

    def visited(self, run: Run) -> list[int]:
        """The steps that the loop visits."""
        ...

    def count(self, sampler: str) -> int | None:
        """The number of steps to request for the run that :meth:`plain` computes; None for all steps."""
        ...

    def plain(
        self, run: Run, network: Network, init: Array, noise: Noise, change: Change | None = None, repeats: int = 1
    ) -> Array:
        """The last state of any sampler by a plain loop, with the clean state changed and every step but the last taken
        ``repeats`` times, as :meth:`plan` has them."""
        ...

    @property
    def counts(self) -> int:
        """The number of step counts that can be requested."""
        return 0

    def wrong_count(self) -> int | None:
        """The first number of steps for which the plans do not visit the steps that the loops visit."""
        return None
