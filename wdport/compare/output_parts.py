"""Errors of the parts of an output, such as its levels."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np

from wdport.compare.calls import Case
from wdport.compare.measure import relative_l2
from wdport.compare.results import Overlay, PartResult
from wdport.compare.rounding_errors import RoundingErrors
from wdport.models.interface import Array, Port


class OutputParts:
    """Accumulated errors of an output that is divided as ``port`` specifies, such as into levels."""

    def __init__(self, port: Port) -> None:
        self.port = port
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

    def add_single(self, candidate: Array, truth: Array) -> None:
        """Add float32 outputs of the port and the truth; the first ones are kept for plots."""
        self.overlays = self.overlays or self._overlays(truth, candidate)

    def results(self, single: Mapping[Case, RoundingErrors]) -> tuple[PartResult, ...]:
        """The parts, with their float32 errors."""
        part_results = []
        total = sum(self._energy.values())
        pairs = [item for errors in single.values() for item in errors.parts.items()]
        for name in self.port.parts:
            ratios = [pair.rms_ratio for (part_name, _), pair in pairs if part_name == name]
            decoded = self._decoded.get(name)
            logic = max(self._logic.get(name, [inf]))
            energy = self._energy[name] / total if total else None
            decoded_error = max(decoded) if decoded else None
            part_results.append(PartResult(name, logic, decoded_error, max(ratios, default=inf), energy))
        return tuple(part_results)

    def _decode_part(self, output: Array, part: slice) -> Array | None:
        """The decoded output with only this part; ``None`` if unknown."""
        if self.port.decode is None:
            return None
        # The other parts are zero: what remains is the effect of this part on the decoded series.
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
