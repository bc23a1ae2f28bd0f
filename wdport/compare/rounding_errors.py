"""Accumulate the rounding errors of both sides by tap and by output, as pairs for the ratios of float32 (B) and
bfloat16 (B')."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wdport.compare.bounds import NUMERICS, UNIT_ROUNDOFF
from wdport.compare.calls import Call, Expected, Outputs
from wdport.compare.errors import fed, made
from wdport.compare.measure import ErrorPair
from wdport.compare.output_parts import OutputParts
from wdport.compare.taps import Tap
from wdport.model import Array
from wdport.recorder import Conditioning


class RoundingErrors:
    """Error pairs by the reference's names: ``alone`` of every isolated tap and output, ``inputs`` of the taps' inputs,
    ``times`` of taps at every value of their input, and ``whole`` of the outputs of the running network. ``unit`` is
    the dtype's rounding error."""

    def __init__(self, unit: float = UNIT_ROUNDOFF) -> None:
        self._unit = unit
        self.alone: dict[str, ErrorPair] = {}
        self.inputs: dict[str, ErrorPair] = {}
        self.times: dict[str, ErrorPair] = {}
        self.whole: dict[str, ErrorPair] = {}

    def add_outputs(self, names: Sequence[str], running: Sequence[Outputs], isolated: Sequence[Outputs]) -> None:
        """Add the network's outputs, running and isolated: of the port, the reference and the truth."""
        for index, name in enumerate(names):
            for errors, (port, reference, truth) in ((self.whole, running), (self.alone, isolated)):
                if port[index].shape == truth[index].shape:  # float64 (A) has found others
                    self._pair(errors, name).add(port[index], reference[index], truth[index])

    def add_isolated(self, name: str, port: Array, reference: Array, truth: Array) -> None:
        """Add an output of the network with every tap isolated."""
        self._pair(self.alone, name).add(port, reference, truth)

    def add_tap(self, tap: Tap, port_call: Call, reference: Expected, truth: Expected, arranged: bool) -> bool:
        """Add one tap; returns whether it could be compared. Inputs of a reordered (``arranged``) tap are ignored."""
        inputs, outputs = fed(port_call, truth), made(tap, port_call, truth)
        if arranged:
            inputs = []
        if outputs is None or inputs is None or any(c.shape != r.shape for c, r in (*inputs, *outputs)):
            return False
        theirs = made(tap, Call((), reference.outputs), truth) or []
        pair = self._pair(self.alone, tap.reference)
        for (c, t), (r, _) in zip(outputs, theirs, strict=True):
            pair.add(c, r, t)
        for (c, t), r in zip(inputs, reference.inputs.values(), strict=False):
            self._pair(self.inputs, tap.reference).add(c, r, t)
        return True

    def _pair(self, errors: dict[str, ErrorPair], name: str) -> ErrorPair:
        return errors.setdefault(name, ErrorPair(unit=self._unit))

    def add_time(self, name: str, port: Array, reference: Array, truth: Array) -> None:
        """Add a tap at every value of its input."""
        self._pair(self.times, name).add(port, reference, truth)

    def beyond(self, parts: OutputParts | None) -> bool:
        """Whether any error exceeds the bound."""
        more = parts.errors.values() if parts is not None else ()
        pairs = [*self.alone.values(), *self.inputs.values(), *more, *self.whole.values()]
        return not all(max(pair.rms_ratio, pair.max_ratio) <= NUMERICS for pair in pairs)

    def allow(self, conditioning: Conditioning, outputs: Sequence[str]) -> None:
        """Compare the errors with the effect of one rounding as well."""
        for name, spread in conditioning.taps.items():
            for errors, pair in ((self.alone, spread.made), (self.inputs, spread.fed)):
                if name in errors:
                    errors[name].allow(*pair)
        for name, moves in zip(outputs, conditioning.outputs, strict=True):
            if name in self.whole:
                self.whole[name].allow(float(np.sum(moves**2)), float(np.max(moves, initial=0.0)))
