"""Plan a multilevel transform: its stages and the layout of its coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wdport.errors import UsageError
from wdport.mapping.arrays import Array
from wdport.wavelets.extension import require_mode
from wdport.wavelets.lengths import auto_level
from wdport.wavelets.stage import TransformStage, filter_bank, make_stage


@dataclass(frozen=True, eq=False)
class TransformPlan:
    """Stages from the finest to the coarsest; coefficients are laid out [cA_L, cD_L, ..., cD_1]."""

    length: int
    stages: tuple[TransformStage, ...]

    @property
    def level_lengths(self) -> tuple[int, ...]:
        """Coefficients per group."""
        if not self.stages:
            return (self.length,)
        return (self.stages[-1].count, *(stage.count for stage in reversed(self.stages)))

    @property
    def level_names(self) -> tuple[str, ...]:
        """cA3, cD3, cD2, cD1 for three levels."""
        level = len(self.stages)
        return (f"cA{level}", *(f"cD{i}" for i in range(level, 0, -1)))

    @property
    def level_slices(self) -> tuple[slice, ...]:
        """Slice of each group."""
        ends = np.cumsum(self.level_lengths).tolist()
        return tuple(slice(end - size, end) for end, size in zip(ends, self.level_lengths, strict=True))

    @property
    def coefficients(self) -> int:
        """C, coefficients in all groups."""
        return sum(self.level_lengths)

    def analysis(self) -> Array:
        """W (C, N) in float64: the whole transform as one matrix."""
        approximation = np.eye(self.length)
        details: list[Array] = []
        for stage in self.stages:
            low, high = stage.analysis()
            details.insert(0, high @ approximation)
            approximation = low @ approximation
        return np.concatenate([approximation, *details])

    def synthesis(self) -> Array:
        """R (N, C) in float64: the whole inverse as one matrix; R W is the identity, W R is not."""
        groups = [np.eye(self.coefficients)[part] for part in self.level_slices]
        approximation = groups[0]
        for stage, detail in zip(reversed(self.stages), groups[1:], strict=True):
            low, high = stage.synthesis()
            approximation = (low @ approximation[: stage.count] + high @ detail)[: stage.length]
        return approximation


def make_plan(length: int, wavelet: str, mode: str, level: int | None) -> TransformPlan:
    """Make a plan; ``level`` None is the automatic one. Raises :class:`UsageError` naming the invalid argument."""
    _require_integer("length", length, 1)
    require_mode(mode)
    # Raises UsageError for an unknown wavelet, for which the automatic level would raise ValueError.
    filter_bank(wavelet)
    if level is None:
        level = auto_level(length, wavelet)
    _require_integer("level", level, 0)
    return _cached_plan(length, wavelet, mode, level)


# A plan compares by identity; cached, equal arguments give one static argument of jit, and so one program.
@lru_cache(maxsize=1024)
def _cached_plan(length: int, wavelet: str, mode: str, level: int) -> TransformPlan:
    stages: list[TransformStage] = []
    for _ in range(level):
        stages.append(make_stage(stages[-1].count if stages else length, wavelet, mode))
    return TransformPlan(length, tuple(stages))


def _require_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(name, f"{value!r} is not a whole number of at least {least}", "correct it")
