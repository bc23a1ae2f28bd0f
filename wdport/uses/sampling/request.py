"""A sampling request, made from the options of the command line or from the arguments of the Python function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

Setting = int | float | str | bool | None


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that determines the samples of a network; :func:`wdport.sample` documents each field.

    ``condition_name`` is the argument that gave the ``condition``, which is "condition" for an input of any name.
    ``called`` maps an argument to its name in errors where that differs, such as the file it was read from.
    """

    count: int | None = None
    sampler: str | None = None
    steps: int | None = None
    eta: float = 0.0
    spacing: str | None = None
    seed: int = 0
    init: ArrayLike | None = None
    noise: ArrayLike | None = None
    known: ArrayLike | None = None
    resample: int | None = None
    condition: ArrayLike | str | None = None
    condition_name: str = "condition"
    unconditional: bool = False
    guidance: float | None = None
    anchor: float | None = None
    transform: str | None = None
    devices: int | str | None = None
    shard_weights: bool = False
    batch: int | None = None
    called: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that a resumed run must share with the first, as JSON values; without the arrays, which are
        identified by their files, the number of samples and the batch size."""
        names = ("sampler", "steps", "eta", "spacing", "seed", "resample", "guidance", "unconditional", "anchor",
                 "transform", "shard_weights")  # fmt: skip
        return {name: getattr(self, name) for name in names}
