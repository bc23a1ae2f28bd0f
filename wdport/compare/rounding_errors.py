"""Float32 errors of one case: those of the port beside the reference's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wdport.compare.calls import Call, ExpectedCall, Outputs
from wdport.compare.gate_bounds import NUMERICS, UNIT_ROUNDOFF
from wdport.compare.layer_errors import fed, made
from wdport.compare.measure import ErrorPair
from wdport.compare.taps import Tap
from wdport.models.interface import Array, Port
from wdport.recording.conditioning import Conditioning

FED_INPUTS, WHOLE, PARTS = " inputs", ", whole network", " parts"
"""Groups of float32 errors besides those of isolated layers and outputs."""


class RoundingErrors:
    """Error pairs of one case by the reference's names: ``alone`` of every isolated tap and output, ``inputs`` of the
    taps' inputs, ``whole`` of the outputs of the running network, and ``parts`` of those by part and channel.
    ``unit`` is the dtype's rounding error.

    Cases are not added up: in the one with the largest values, absolute errors are the largest too, and would hide
    what only the others show.
    """

    def __init__(self, unit: float = UNIT_ROUNDOFF) -> None:
        self._unit = unit
        self.alone: dict[str, ErrorPair] = {}
        self.inputs: dict[str, ErrorPair] = {}
        self.whole: dict[str, ErrorPair] = {}
        self.parts: dict[tuple[str, int], ErrorPair] = {}

    def add_outputs(self, names: Sequence[str], running: Sequence[Outputs], isolated: Sequence[Outputs] | None) -> None:
        """Add the network's outputs, running and, if given, isolated: of the port, the reference and the truth."""
        kinds = [(self.whole, running), *([] if isolated is None else [(self.alone, isolated)])]
        for index, name in enumerate(names):
            for errors, (port, reference, truth) in kinds:
                if port[index].shape == truth[index].shape:  # float64 (A) has found others
                    self._pair(errors, name).add(port[index], reference[index], truth[index])

    def add_isolated(self, name: str, port: Array, reference: Array, truth: Array) -> None:
        """Add an output of the network with every tap isolated."""
        self._pair(self.alone, name).add(port, reference, truth)

    def add_tap(self, tap: Tap, port_call: Call, reference: ExpectedCall, truth: ExpectedCall, arranged: bool) -> bool:
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
        # Not strict: the inputs of a reordered tap are left out.
        for (c, t), r in zip(inputs, reference.inputs.values(), strict=False):
            self._pair(self.inputs, tap.reference).add(c, r, t)
        return True

    def _pair(self, errors: dict[str, ErrorPair], name: str) -> ErrorPair:
        return errors.setdefault(name, ErrorPair(unit=self._unit))

    def add_parts(self, port: Port, candidate: Array, reference: Array, truth: Array) -> None:
        """Add the parts of an output that is divided as ``port`` specifies."""
        for name, part in port.parts.items():
            for channel in range(truth.shape[-1]):
                index = (slice(None), part, channel)
                pair = self.parts.setdefault((name, channel), ErrorPair(unit=self._unit))
                pair.add(candidate[index], reference[index], truth[index])

    @property
    def groups(self) -> Mapping[str, Mapping[Any, ErrorPair]]:
        """All error pairs, by what a report appends to a name."""
        return {"": self.alone, FED_INPUTS: self.inputs, WHOLE: self.whole, PARTS: self.parts}

    def exceeding(self) -> list[tuple[str, Any]]:
        """The group and the name of every error beyond the bound."""
        # Negated, so that NaN exceeds it.
        return [(group, name) for group, pairs in self.groups.items() for name, pair in pairs.items()
                if not pair.ratio <= NUMERICS]  # fmt: skip

    def allow(self, errors: Conditioning, outputs: Sequence[str], divided: Port | None) -> None:
        """Compare the errors with these of the reference as well; ``outputs`` are the names of the network's, the
        first of which is ``divided`` into parts, if given."""
        for name, spread in errors.taps.items():
            for pairs, (square, largest) in ((self.alone, spread.made), (self.inputs, spread.fed)):
                if name in pairs:
                    pairs[name].allow(square, largest)
        for name, moves in zip(outputs, errors.outputs, strict=True):
            if name in self.whole:
                self.whole[name].allow_values(moves)
        if divided is not None:
            for (name, channel), pair in self.parts.items():
                pair.allow_values(errors.outputs[0][:, divided.parts[name], channel])
