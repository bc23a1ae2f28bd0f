"""Read the names, shapes and calls of a recorded PyTorch model from its recording, without torch.

The file is untrusted: nothing in it is executed, and every value has its type checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wdport.base.errors import IncompleteError, InputError
from wdport.compare.calls import Call, Case, layer_of
from wdport.models.interface import Array, Signature
from wdport.parity import recording_file as form
from wdport.parity.recording_file import AGAIN, RecordingFile, reading
from wdport.recording.cases import EXTREMES, HIDDEN, UNUSUAL
from wdport.recording.code_constants import marks_of
from wdport.recording.conditioning import Conditioning, Spread
from wdport.recording.fitted_inputs import unbatched
from wdport.recording.inputs import given
from wdport.recording.observation import Observation, Single
from wdport.recording.recording_writer import SCHEMA
from wdport.recording.repeatability import FAST
from wdport.recording.runs import CaseSweep

Known = dict[str, Array]
"""Arrays by reference, so that none is read twice within a case."""


class Recording:
    """An open recording. ``tensors`` describe its state_dict, ``values`` are those tensors whose values it holds."""

    def __init__(self, path: Path, file: RecordingFile) -> None:
        self.path = path
        self._file = file
        self.index = file.index()
        schema = self.index["schema"]
        if type(schema) is not int or schema != SCHEMA:
            raise InputError(path, f"has the format {schema!r}, this wdport reads {SCHEMA}", AGAIN)
        self.tensors = {name: form.tensors(facts) for name, facts in form.table(self.index["tensors"]).items()}
        values = form.table(self.index.get("values", {}))
        self.values: dict[str, Array] = {name: self.array(form.text(reference)) for name, reference in values.items()}
        self.names = form.texts(self.index["names"])
        self.cases: dict[Case, dict[str, object]] = {}
        for value in form.items(self.index["cases"]):
            facts = form.table(value)
            if (case := _case(facts)) in self.cases:
                raise ValueError(f"duplicate case {case.describe()}")
            self.cases[case] = facts

    def array(self, reference: object) -> Array:
        with reading(self.path):
            return self._file.array(reference, {})

    def observation(self, case: Case) -> Observation:
        """The observation recorded for ``case``; raises :class:`IncompleteError` if there is none."""
        facts = self._facts(case)
        with reading(self.path):
            cache = Known()
            names = tuple(form.texts(facts["names"]))
            inputs, outputs = (self._flat(facts[name], cache) for name in ("inputs", "outputs"))
            calls = self._calls(facts["calls"], cache)
            single = None if facts["single"] is None else self._single(form.table(facts["single"]), cache, case)
            return Observation(inputs, outputs, calls, single, names)

    def inputs(self, case: Case) -> tuple[Array, ...]:
        """The inputs recorded for ``case``; raises as :meth:`observation`."""
        facts = self._facts(case)
        with reading(self.path):
            return self._flat(facts["inputs"], {})

    def _facts(self, case: Case) -> Mapping[str, object]:
        if case not in self.cases:
            raise IncompleteError(self.path, f"has no {case.describe()}", AGAIN)
        return self.cases[case]

    def conditioning(self, case: Case, dtype: str) -> Conditioning:
        """The conditioning recorded for ``case``; raises :class:`InputError` if there is none."""
        with reading(self.path):
            taps, outputs = form.items(form.table(self.cases[case]["conditioning"])[dtype], 2)
            spreads = {name: _spread(form.table(parts)) for name, parts in form.table(taps).items()}
            return Conditioning(spreads, self._flat(outputs, {}))

    def sweeps(self) -> dict[str, CaseSweep]:
        with reading(self.path):
            by_name = form.table(self.index["sweeps"])
            return {name: CaseSweep(*self._flat(form.items(arrays, 3), {})) for name, arrays in by_name.items()}

    def _single(self, facts: Mapping[str, object], cache: Known, case: Case) -> Single:
        inputs = self._flat(facts["inputs"], cache)
        reference, truth = (self._flat(side, cache) for side in form.items(facts["outputs"], 2))
        if facts["isolated"] is None and case.extreme:
            return Single(inputs, (reference, truth), None)
        first, second = (form.items(side, 2) for side in form.items(facts["isolated"], 2))
        isolated = tuple((self._flat(outputs, cache), self._calls(calls, cache)) for outputs, calls in (first, second))
        return Single(inputs, (reference, truth), (isolated[0], isolated[1]))

    def _calls(self, document: object, cache: Known) -> dict[str, Call]:
        calls = {}
        for name, record in form.table(document).items():
            input_refs, output_refs, caller, names = form.items(record, 4)
            inputs = tuple(self._nested(one, cache) for one in form.items(input_refs))
            calls[name] = Call(inputs, self._flat(output_refs, cache), form.text(caller), tuple(form.texts(names)))
        return calls

    def _flat(self, references: object, cache: Known) -> tuple[Array, ...]:
        return tuple(self._file.array(reference, cache) for reference in form.items(references))

    def _nested(self, reference: object, cache: Known) -> Any:
        """The array, or the nested list of arrays."""
        if isinstance(reference, list):
            return [self._nested(element, cache) for element in reference]
        return self._file.array(reference, cache)


class Replay:
    """A recorded reference: see :class:`wdport.compare.reference.Reference`."""

    framework = "torch"
    recorded = True

    def __init__(self, recording: Recording) -> None:
        self.modules: dict[str, Any] = {}
        with reading(recording.path):
            index = recording.index
            self._recording = recording
            self.names = recording.names
            self.code = form.text(index["reference"])
            self.shifts = {name: recording.array(reference) for name, reference in form.table(index["shifts"]).items()}
            self.evaluating = form.boolean(index["evaluating"])
            environment = {name: form.text(value) for name, value in form.table(index["environment"]).items()}
            self.environment = {f"recorded_{name}": value for name, value in environment.items() if "torch" not in name}
            self.environment |= {name: environment[name] for name in ("torch", "torch_matmul")}
            self.notes = form.texts(index["notes"])
            self.findings = [note for note in self.notes if FAST in note]
            if not form.boolean(index["repeats"]):
                self.findings.insert(0, "the reference does not repeat itself bit for bit")

    def cases(self, battery: Sequence[Case]) -> Sequence[Case]:
        """The recorded ones, in which extreme values are those that the reference has a meaning for."""
        # The recorder may have replaced extreme values that made the reference infinite; the seed still names the case.
        by_seed = {case.seed: case for case in self._recording.cases}
        battery = battery if all(case.batched for case in self._recording.cases) else unbatched(battery)
        matches = [by_seed.get(case.seed) if case.extremes else self._recorded(case) for case in battery]
        if any(case.extremes and not (here and here.extremes) for case, here in zip(battery, matches, strict=True)):
            values = ", ".join((*EXTREMES, *UNUSUAL))
            self.notes = [*self.notes, f"the recording has no extreme values ({values}): record it again"]
        return [case for case in matches if case is not None]

    def _recorded(self, case: Case) -> Case:
        """The recorded case, which may have another gain."""
        # The gain is a setting of isolation in float32, and not of the inputs.
        same = (recorded for recorded in self._recording.cases if replace(recorded, gain=case.gain) == case)
        return next(same, case)

    def include(self, numbers: Sequence[float]) -> None:
        """Note the numbers that the recorded inputs do not have."""
        held = [array for case in self._recording.cases for array in self._recording.inputs(case)]
        missing = [number for number in marks_of(numbers) if not any(_holds(array, number) for array in held)]
        if missing:
            text = ", ".join(f"{number:g}" for number in missing)
            self.notes = [*self.notes, f"the recorded inputs do not have {text}, which the port compares with"]

    def compare_sizes(self, signature: Signature) -> None:
        """Note the axes that the port leaves open and of which the recording has one size; raises
        :class:`IncompleteError` if the table states one that it lacks."""
        several = [self._recording.inputs(case) for case in self._recording.cases]
        pairs = [(spec.name, array.shape) for arrays in several
                 for spec, array in zip(given(signature.inputs, len(arrays)), arrays, strict=False)]  # fmt: skip
        for spec in signature.inputs:
            if spec.optional:  # a batch of one, which has the other size, leaves it out
                continue
            shapes = [shape for name, shape in pairs if name == spec.name]
            for place, axis in enumerate(spec.axes):
                sizes = {shape[place] for shape in shapes if place < len(shape)}
                name = f"axis {place}" if axis.startswith("_") else axis
                if (stated := spec.alone.get(axis)) is not None and stated not in sizes:
                    what = f"has no {spec.name} with {name} = {stated}, which the table states"
                    raise IncompleteError(self._recording.path, what, AGAIN)
                if axis in {**signature.longer, **signature.free} and len(sizes) == 1:
                    what = f"the port takes other sizes of {name} of {spec.name} than the recorded {min(sizes)}"
                    fix = f"to record two, state a range in the table, such as n={min(sizes)}..{2 * min(sizes)}"
                    self.notes = [*self.notes, f"{what}, which are not compared; {fix}"]

    def inputs(self, case: Case) -> tuple[Array, ...]:
        return self._recording.inputs(self._recorded(case))

    def use(self, random_biases: bool) -> None:
        """Do nothing: every case was recorded with its own weights."""

    def observe(self, case: Case, taps: Collection[str]) -> Observation:
        recorded = self._recorded(case)
        observation = self._recording.observation(recorded)
        # The recorded float32 half was computed with another gain, so only float64 is compared.
        if recorded.gain != case.gain:
            observation = replace(observation, single=None)
        elif observation.single is None and case.numerics:
            raise IncompleteError(self._recording.path, f"has no float32 of {case.describe()}", AGAIN)
        # The recorder isolated each of them, so the float32 of their neighbours is not comparable with the port.
        layers = set(map(layer_of, taps))
        if untapped := [name for name in observation.calls if layer_of(name) not in layers]:
            more = f" and {len(untapped) - 1} more" if len(untapped) > 1 else ""
            what = f"float32 is not compared, since the table has no row for the recorded {untapped[0]}{more}"
            self.notes = list(dict.fromkeys([*self.notes, f"{what}: add rows, or record with --leave-out"]))
            observation = replace(observation, single=None)
        return observation

    def conditioning(self, case: Case, dtype: str, taps: Collection[str]) -> Conditioning:
        return self._recording.conditioning(self._recorded(case), dtype)

    def unused_calls(self, observation: Observation, names: Collection[str]) -> Sequence[str]:
        return ()

    def sweep(self, names: Collection[str], times: Array) -> Mapping[str, CaseSweep]:
        sweeps = self._recording.sweeps()
        return {name: sweeps[name] for name in names if name in sweeps and len(sweeps[name].exact) == len(times)}


@contextmanager
def open_recording(path: Path) -> Iterator[Recording]:
    """Open a file written by `wdport record`; raises :class:`InputError` if it is not one, or damaged."""
    with reading(path):
        file = RecordingFile(path)
    try:
        with reading(path):
            recording = Recording(path, file)
        yield recording
    finally:
        file.close()


def _holds(array: Array, number: float) -> bool:
    """Whether an input is ``number`` somewhere; one of floating-point numbers, at all places of one position."""
    equal = array == number
    rest = [tuple(other for other in range(1, array.ndim) if other != axis) for axis in range(1, array.ndim)]
    if not rest or array.dtype.kind != "f":
        return bool(np.any(equal))
    return any(bool(np.any(np.all(equal, axes))) for axes in rest)


def _spread(facts: Mapping[str, object]) -> Spread:
    by_part = form.table(facts.get("samples", {}))
    samples = {part: list(map(form.number, form.items(values))) for part, values in by_part.items()}
    if any(square < 0 for squares in samples.values() for square in squares):
        raise ValueError("a sum of squares is negative")
    return Spread(form.pair(facts["fed"]), form.pair(facts["made"]), form.pair(facts["running"]), samples)


def _case(facts: Mapping[str, object]) -> Case:
    seed, batch = form.count(facts["seed"]), form.count(facts["batch"])
    extremes = tuple(form.texts(facts.get("extremes", [])))
    batched = form.boolean(facts.get("batched", True))
    kinds, samples = {"", HIDDEN, *EXTREMES, *UNUSUAL}, batch if batched else 1
    if extremes and (len(extremes) != samples or not kinds.issuperset(extremes)):
        raise ValueError("extremes are not one for every sample")
    return Case(seed, batch, form.number(facts["scale"]), form.boolean(facts["random_biases"]), extremes,
                form.number(facts.get("gain", 1.0)), batched)  # fmt: skip
