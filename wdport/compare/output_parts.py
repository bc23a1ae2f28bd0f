"""Compare the network's output part by part, as values and decoded."""

from __future__ import annotations

from math import inf

import numpy as np

from wdport.compare.measure import ErrorPair, relative_l2
from wdport.compare.results import Overlay, PartResult
from wdport.model import Array, Port


class OutputParts:
    """Accumulated errors of an output that is divided as ``port`` specifies."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.errors: dict[tuple[str, int], ErrorPair] = {}
        self.overlays: tuple[Overlay, ...] = ()
        self.decoded_error: float | None = None
        self._logic: dict[str, list[float]] = {}
        self._decoded: dict[str, list[float]] = {}
        self._energy: dict[str, float] = {}

    def add(self, candidate: Array, reference: Array) -> None:
        """Add float64 outputs of both sides, of one shape."""
        for name, part in self.port.parts.items():
            self._logic.setdefault(name, []).append(relative_l2(candidate[:, part], reference[:, part]))
            decoded = [self._decode_part(side, part) for side in (candidate, reference)]
            if decoded[0] is not None and decoded[1] is not None:
                self._energy[name] = self._energy.get(name, 0.0) + float(np.sum(decoded[1] ** 2))
                self._decoded.setdefault(name, []).append(relative_l2(decoded[0], decoded[1]))
        if self.port.decode:
            error = relative_l2(self.port.decode(candidate), self.port.decode(reference))
            self.decoded_error = max(self.decoded_error or 0.0, error)

    def add_single(self, candidate: Array, reference: Array, truth: Array) -> None:
        """Add float32 outputs of both sides and the truth; the first ones are kept for plots."""
        self.overlays = self.overlays or self._overlays(truth, candidate)
        for name, part in self.port.parts.items():
            for channel in range(truth.shape[-1]):
                index = (slice(None), part, channel)
                pair = self.errors.setdefault((name, channel), ErrorPair())
                pair.add(candidate[index], reference[index], truth[index])

    def allow(self, spread: Array) -> None:
        """Allow every value of the output an error of ``spread``, the effect of rounding."""
        for (name, channel), pair in self.errors.items():
            part = spread[:, self.port.parts[name], channel]
            pair.allow(float(np.sum(part**2)), float(np.max(part)))

    def results(self) -> tuple[PartResult, ...]:
        """The results per part."""
        part_results = []
        total = sum(self._energy.values())
        for name in self.port.parts:
            ratios = [pair.rms_ratio for (part_name, _), pair in self.errors.items() if part_name == name]
            decoded = self._decoded.get(name)
            logic = max(self._logic.get(name, [inf]))
            energy = self._energy[name] / total if total else None
            part_results.append(
                PartResult(name, logic, max(decoded) if decoded else None, max(ratios, default=inf), energy)
            )
        return tuple(part_results)

    def _decode_part(self, output: Array, part: slice) -> Array | None:
        """The decoded output with only this part; ``None`` if unknown."""
        if self.port.decode is None:
            return None
        masked = np.zeros_like(output)
        masked[:, part] = output[:, part]
        return self.port.decode(masked)

    def _overlays(self, truth: Array, output: Array) -> tuple[Overlay, ...]:
        """The first sample's first channel, part by part."""
        overlays = []
        for name, part in self.port.parts.items():
            decoded = [self._decode_part(side[:1], part) for side in (truth, output)]
            drawn = [tuple(float(value) for value in array[0, :, 0]) for array in decoded if array is not None]
            if len(drawn) == 2:
                overlays.append(Overlay(name, drawn[0], drawn[1]))
        return tuple(overlays)
