"""The network's output level by level, as coefficients and as series: pairs of outputs in, results per level out."""

from __future__ import annotations

from math import inf

import numpy as np

from wdport.compare.measure import ErrorPair, relative_l2
from wdport.model import Array, Levels
from wdport.parity.verdict import LevelResult, Overlay


class OutputLevels:
    """What has been seen so far of an output that divides as ``shape`` says."""

    def __init__(self, shape: Levels) -> None:
        self.shape = shape
        self.errors: dict[tuple[int, int], ErrorPair] = {}
        self.overlays: tuple[Overlay, ...] = ()
        self.series_error: float | None = None
        self._logic: dict[int, list[float]] = {}
        self._series: dict[int, list[float]] = {}
        self._energy: dict[int, float] = {}

    def add(self, candidate: Array, reference: Array) -> None:
        """Take in float64 outputs of both sides, of one shape."""
        for level, part in enumerate(self.shape.slices):
            self._logic.setdefault(level, []).append(relative_l2(candidate[:, part], reference[:, part]))
            series = [self._alone(side, part) for side in (candidate, reference)]
            if series[0] is not None and series[1] is not None:
                self._energy[level] = self._energy.get(level, 0.0) + float(np.sum(series[1] ** 2))
                self._series.setdefault(level, []).append(relative_l2(series[0], series[1]))
        if self.shape.reconstruct:
            whole = relative_l2(self.shape.reconstruct(candidate), self.shape.reconstruct(reference))
            self.series_error = max(self.series_error or 0.0, whole)

    def add_single(self, candidate: Array, reference: Array, truth: Array) -> None:
        """Take in float32 outputs of both sides beside the truth; the first ones are kept for drawing."""
        self.overlays = self.overlays or self._overlays(truth, candidate)
        for level, part in enumerate(self.shape.slices):
            for channel in range(truth.shape[-1]):
                at = (slice(None), part, channel)
                pair = self.errors.setdefault((level, channel), ErrorPair())
                pair.add(candidate[at], reference[at], truth[at])

    def allow(self, spread: Array) -> None:
        """Every value of the output may move so far by rounding."""
        for (level, channel), pair in self.errors.items():
            part = spread[:, self.shape.slices[level], channel]
            pair.allow(float(np.sum(part**2)), float(np.max(part)))

    def results(self) -> tuple[LevelResult, ...]:
        """The results per level."""
        found = []
        total = sum(self._energy.values())
        for level, name in enumerate(self.shape.names):
            ratios = [pair.rms_ratio for (own, _), pair in self.errors.items() if own == level]
            series = self._series.get(level)
            logic = max(self._logic.get(level, [inf]))
            energy = self._energy[level] / total if total else None
            found.append(LevelResult(name, logic, max(series) if series else None, max(ratios, default=inf), energy))
        return tuple(found)

    def _alone(self, output: Array, part: slice) -> Array | None:
        """The series of one level alone; ``None`` where the wavelet is not known."""
        if self.shape.reconstruct is None:
            return None
        masked = np.zeros_like(output)
        masked[:, part] = output[:, part]
        return self.shape.reconstruct(masked)

    def _overlays(self, truth: Array, output: Array) -> tuple[Overlay, ...]:
        """The first sample's first feature, level by level."""
        made = []
        for name, part in zip(self.shape.names, self.shape.slices, strict=True):
            series = [self._alone(side[:1], part) for side in (truth, output)]
            drawn = [tuple(float(value) for value in each[0, :, 0]) for each in series if each is not None]
            if len(drawn) == 2:
                made.append(Overlay(name, drawn[0], drawn[1]))
        return tuple(made)
