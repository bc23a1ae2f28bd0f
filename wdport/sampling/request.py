"""What is asked of a sampler. The command line fills a request from its options, Python from arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

Setting = int | float | str | bool | None


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that determines the samples of a network; :func:`wdport.sample` says what each is.

    ``called`` is what an argument goes by in errors where that is not its name, such as the file that it is from.
    """

    count: int | None = None
    sampler: str | None = None
    steps: int | None = None
    eta: float = 0.0
    seed: int = 0
    init: ArrayLike | None = None
    noise: ArrayLike | None = None
    known: ArrayLike | None = None
    resample: int | None = None
    labels: ArrayLike | None = None
    guidance: float | None = None
    devices: int | str | None = None
    shard_weights: bool = False
    batch: int | None = None
    called: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Setting]:
        """What a run that resumes has to have in common with the one before it, as JSON values; without the arrays,
        which are known by their files, the number of samples and the batch."""
        names = ("sampler", "steps", "eta", "seed", "resample", "guidance", "shard_weights")
        return {name: getattr(self, name) for name in names}
