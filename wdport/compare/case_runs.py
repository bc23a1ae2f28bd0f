"""Run both sides of a comparison on its cases.

The reference runs in this thread, one module at a time. Two further threads compile and run Keras's programs, one case
behind, since compiling takes most of a run. The reference's results are converted to the port's layout immediately, so
that all later code compares arrays of one layout.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from wdport.base.errors import WdportError
from wdport.compare.activities import Clock, spent_on
from wdport.compare.calls import Calls, Case, ExpectedCall, Outputs, leaves
from wdport.compare.candidate import PlainUse, Ran
from wdport.compare.layer_errors import output_names
from wdport.compare.programs import Deferred, Pending, trim_memory
from wdport.compare.results import TapResult
from wdport.compare.sides import Companion, ComparedSides, Expected
from wdport.models.interface import Array
from wdport.recording.errors import one_line
from wdport.recording.observation import Observation

CASES_AT_ONCE = 1
"""Cases that the port computes while the reference runs the next: each holds several copies of every layer's arrays."""

LARGE = 1 << 27
"""Recorded bytes of a case from which it is compared before the next one runs."""


@dataclass
class CaseRun:
    """Both sides' results in one case; those of the port may still be computed.

    Attributes:
        expected: the reference's results.
        taps: empty results of the layers that no case before this one calls.
    """

    expected: Expected
    taps: Mapping[str, TapResult]
    _recorded: Pending
    _running: Pending | None = None
    _isolated: Pending | None = None
    _companion: Mapping[str, Pending] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        return self.expected.case

    @property
    def recorded(self) -> Ran:
        """The port's outputs and calls in float64."""
        recorded: Ran = _awaited(self._recorded)
        return recorded

    @property
    def running(self) -> Outputs | None:
        """The port's outputs in float32; ``None`` if the case has none."""
        return None if self._running is None else _awaited(self._running)

    @property
    def isolated(self) -> Ran | None:
        """The port's outputs and calls in float32, with every layer isolated; ``None`` with extreme values."""
        return None if self._isolated is None else _awaited(self._isolated)

    @property
    def companion(self) -> dict[str, Array]:
        """The companion's outputs by dtype."""
        return {dtype: future.result() for dtype, future in self._companion.items()}


def _awaited(pending: Pending) -> Any:
    with spent_on("waiting"):
        return pending.result()


class CaseRuns:
    """Runs cases with the current weights; with ``brief``, each one is compared before the next one runs.

    ``plain`` is the port called as users call it, traced before all other calls.
    """

    def __init__(self, sides: ComparedSides, companion: Companion | None, clock: Clock, brief: bool) -> None:
        self._sides, self._companion, self._clock, self._brief = sides, companion, clock, brief
        self.plain: PlainUse | None = None
        # The most values in the inputs of a case so far: before a larger one, the arrays of others are released.
        self._largest = 0
        self._own_values = False  # whether isolated sides get other values, such as an input of another size
        self._taps: dict[str, TapResult] = {}  # of no run so far

    def of(self, cases: Sequence[Case]) -> Generator[CaseRun]:
        """The runs, in order; a case whose inputs the port does not accept has none, but a finding."""
        with ThreadPoolExecutor(2) as pool:
            under_way: list[CaseRun] = []
            for case in cases:
                # The peak of memory is one large case, not a large one and the one before it.
                if under_way and _values(self._sides.reference.inputs(case)) > self._largest:
                    yield from _released(under_way)
                with self._clock.gate("0"):
                    if self._own_values:
                        # Values that only the port has, such as zeros around an input, do not grow with the gain, so
                        # the sides would differ.
                        case = replace(case, gain=1.0)
                    observation = self._sides.observe(case)
                    self._largest = max(self._largest, _values(observation.inputs))
                    if not self._sides.outputs:
                        self._settle(observation)
                    # An eager port's code may be patched during its run, which no other thread may see.
                    submit = Deferred if self._sides.candidate.eager else pool.submit
                    under_way += self._started(submit, case, observation)
                ahead = 0 if self._brief or _size(observation) > LARGE else CASES_AT_ONCE
                del observation  # what is under way holds it
                # The port's threads work on the newest case while this thread runs the reference on the next one.
                yield from _released(under_way, ahead)
            yield from _released(under_way)

    def _settle(self, observation: Observation) -> None:
        """Determine which calls are compared, before the port computes anything."""
        sides, inputs = self._sides, self._sides.signature.in_port(observation.inputs)
        # Before the port runs: the error of a port that cannot run then names the settings that differ.
        sides.alignment.compare_settings(observation, {})
        outputs, shapes = sides.port.shapes(inputs)
        stated = [port.name for port in sides.signature.outputs]
        sides.outputs = output_names((sides.port.output_names, observation.names, stated), len(outputs))
        self._taps, findings = sides.alignment.settle(observation, shapes)
        sides.findings |= dict.fromkeys(findings)
        # The reference isolates a module that is compared only by its parts, and the port does not: with a gain, the
        # first of the parts would get values of another size.
        self._own_values = any(tap.reference in observation.calls for tap in sides.alignment.left_out)
        self.plain = PlainUse(sides.candidate.models["float64"], inputs)
        sides.reference.include(self.plain.numbers)

    def _started(self, submit: Callable[..., Pending], case: Case, observation: Observation) -> list[CaseRun]:
        """Start one case; nothing, with a finding, if the port does not accept its inputs."""
        sides = self._sides
        try:
            inputs = sides.signature.in_port(observation.inputs)
            output_shapes, shapes = sides.port.shapes(inputs)
        except WdportError:
            raise
        except Exception as error:  # of the user's code
            text = ", ".join(str(array.shape) for array in observation.inputs)
            sides.find(f"the port raises {one_line(error)} on inputs of {text}, which the reference accepts")
            return []
        further, findings = sides.alignment.extend(observation, shapes)
        sides.findings |= dict.fromkeys(findings)
        taps, self._taps = {**self._taps, **further}, {}
        expected = sides.expected(case, observation, inputs, output_shapes, shapes)
        self._own_values |= self._has_own_values(expected, shapes)
        return [self._start(submit, expected, taps)]

    def _has_own_values(self, expected: Expected, shapes: Calls) -> bool:
        """Whether isolated sides get other values: an input of another size, or a call that only one side makes, or
        that a recording lacks."""
        if expected.into.misfits or _keeps_own_values(expected.calls, shapes, 3 if expected.case.batched else 2):
            return True
        calls = expected.observation.calls
        return any((tap.reference in calls) != (tap.candidate in shapes) for tap in expected.taps)

    def _start(self, submit: Callable[..., Pending], expected: Expected, taps: Mapping[str, TapResult]) -> CaseRun:
        """Start all of Keras's programs for one case."""
        port, single = self._sides.port, expected.observation.single
        recorded, by_dtype = submit(port.record, expected.inputs), {"float64": expected.inputs}
        running = isolated = None
        if single is not None:
            by_dtype["float32"] = expected.single_inputs
            running = submit(port.run, "float32", "whole", expected.single_inputs)
            if single.isolated is not None:
                isolated = submit(port.isolate, *expected.single_isolation)
        dtypes = self._companion.dtypes(expected.case) if self._companion is not None else ()
        companion = {dtype: submit(self._accompany, dtype, by_dtype[dtype]) for dtype in dtypes if dtype in by_dtype}
        return CaseRun(expected, taps, recorded, running, isolated, companion)

    def _accompany(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        assert self._companion is not None
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            return self._companion.predict(dtype, inputs)


def _released(under_way: list[CaseRun], ahead: int = 0) -> Iterator[CaseRun]:
    """The cases under way, the first ones first, but for ``ahead`` of them; their arrays are released in between."""
    while len(under_way) > ahead:
        yield under_way.pop(0)
        trim_memory()


def _values(inputs: Sequence[Array]) -> int:
    return sum(array.size for array in inputs)


def _size(observation: Observation) -> int:
    """The bytes of a case's recorded arrays; calls share some."""
    single = observation.single
    runs = [observation.calls, *(calls for _, calls in (single.isolated or () if single else ()))]
    arrays = (leaf for run in runs for call in run.values() for leaf in leaves([*call.inputs, *call.outputs]))
    # A layer's output is the next one's input: one array, counted once.
    return sum({id(array): array.nbytes for array in arrays}.values())


def _keeps_own_values(calls: Mapping[str, ExpectedCall], shapes: Calls, axes: int) -> bool:
    """Whether the reference has no counterpart of an input with at least this number of axes, or of a part of an
    output."""
    further = (index not in call.inputs and len(leaf.shape) >= axes
               for name, call in calls.items() if len(call.inputs) < call.count
               for index, leaf in enumerate(leaves(list(shapes[name].inputs))))  # fmt: skip
    return any(call.window for call in calls.values()) or any(further)
