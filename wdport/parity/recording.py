"""A recording's path in; the names, shapes and calls of the PyTorch model that was recorded out, without torch.

The file may come from anywhere: nothing in it is run, and it is never unpacked beyond its own size.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from wdport.compare.calls import Case
from wdport.errors import IncompleteError, InputError
from wdport.model import Array
from wdport.recorder import SCHEMA, Call, Conditioning, Observation, Single, Spread, Sweep, Tensors, layer_of

_AGAIN = "record it again with wdport record"
_FAULTS = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, zipfile.BadZipFile, OSError,
           NotImplementedError, RuntimeError)  # fmt: skip
"""What zipfile, numpy and our own reading raise at a damaged file."""


class Recording:
    """An open recording. ``tensors`` are those of its state_dict, ``values`` those of them that it holds."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self.index = json.loads(self._member("index").tobytes())
        schema = self.index["schema"]
        if schema != SCHEMA:
            raise InputError(path, f"has the format {schema!r}, this wdport reads {SCHEMA}", _AGAIN)
        self.tensors = {
            str(name): Tensors(tuple(int(size) for size in each["shape"]), str(each["dtype"]), each["sha256"])
            for name, each in self.index["tensors"].items()
        }
        told = self.index.get("values", {}).items()
        self.values: dict[str, Array] = {str(name): self._arrays(str(each), {}) for name, each in told}
        self.names = [str(name) for name in self.index["names"]]
        self.cases = {_case(each): each for each in self.index["cases"]}

    def arrays(self, reference: object) -> Any:
        """The array, or the nested list of arrays, that the index refers to."""
        with _reading(self.path):
            return self._arrays(reference, {})

    def observation(self, case: Case) -> Observation:
        """What was recorded in ``case``; raises :class:`IncompleteError` if nothing was."""
        if case not in self.cases:
            raise IncompleteError(self.path, f"has no {case.describe()}", _AGAIN)
        with _reading(self.path):
            told, known = self.cases[case], dict[object, Array]()

            def get(reference: object) -> Any:
                return self._arrays(reference, known)

            def calls(listed: Mapping[str, tuple[object, object, str, list[str]]]) -> dict[str, Call]:
                return {
                    name: Call(tuple(get(given)), tuple(get(made)), str(caller), tuple(map(str, names)))
                    for name, (given, made, caller, names) in listed.items()
                }

            names = tuple(map(str, told["names"]))
            seen = Observation(
                tuple(get(told["inputs"])), tuple(get(told["outputs"])), calls(told["calls"]), None, names
            )
            if told["single"] is None:
                return seen
            single = told["single"]
            first, second = ((tuple(get(outputs)), calls(listed)) for outputs, listed in single["isolated"])
            reference, truth = map(tuple, get(single["outputs"]))
            found = Single(tuple(get(single["inputs"])), (reference, truth), (first, second))
            return Observation(seen.inputs, seen.outputs, seen.calls, found, names)

    def conditioning(self, case: Case, dtype: str) -> Conditioning:
        """What was recorded of it in ``case``; raises :class:`InputError` if nothing was."""
        with _reading(self.path):
            taps, outputs = self.cases[case]["conditioning"][dtype]
            spreads = {
                str(name): Spread(**{part: _pair(pair) for part, pair in each.items()}) for name, each in taps.items()
            }
            return Conditioning(spreads, tuple(self._arrays(outputs, {})))

    def sweeps(self) -> dict[str, Sweep]:
        """What was recorded at every time."""
        with _reading(self.path):
            told = self.index["sweeps"]
            return {str(name): Sweep(*self._arrays(list(each), {})) for name, each in told.items()}

    def _arrays(self, reference: object, known: dict[object, Array]) -> Any:
        if isinstance(reference, list):
            return [self._arrays(each, known) for each in reference]
        if reference not in known:
            number, _, rounded = str(reference).partition(":")
            if number not in known:
                known[number] = self._member(str(int(number)))
            if rounded:
                known[reference] = known[number].astype(np.float32) if rounded == "s" else _rounded(known[number])
        return known[reference]

    def _member(self, name: str) -> Array:
        info = self._archive.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{info.filename} is compressed")
        data = self._archive.read(info)
        stream = BytesIO(data)
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError(f"{info.filename} is no array of numpy's first format")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.kind not in "fiub" or fortran:
            raise ValueError(f"{info.filename} holds {dtype}")
        return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape)


class Replay:
    """A recorded reference: see :class:`wdport.parity.reference.Reference`."""

    framework = "torch"

    def __init__(self, recording: Recording) -> None:
        with _reading(recording.path):
            index = recording.index
            self._recording = recording
            self.names = recording.names
            self.told = f"{index['reference']}, recorded"
            self.shifts: dict[str, Array] = {name: recording.arrays(at) for name, at in index["shifts"].items()}
            self.evaluating = index["evaluating"] is True
            own = {str(name): str(value) for name, value in index["environment"].items()}
            self.environment = {f"recorded_{name}": value for name, value in own.items() if "torch" not in name}
            self.environment |= {name: own[name] for name in ("torch", "torch_matmul")}
            self.notes = [str(note) for note in index["notes"]]
            self.findings = [] if index["repeats"] is True else ["the reference does not repeat itself bit for bit"]

    def use(self, random_biases: bool) -> None:
        """Nothing to do: every case was recorded with its own weights."""

    def observe(self, case: Case, taps: Collection[str]) -> Observation:
        seen = self._recording.observation(case)
        if seen.single is None and case.numerics:
            raise IncompleteError(self._recording.path, f"has no float32 of {case.describe()}", _AGAIN)
        # Each of them was answered for: what its neighbours make in float32 is then not what they make in the port.
        layers = set(map(layer_of, taps))
        if untapped := [name for name in seen.calls if layer_of(name) not in layers]:
            more = f" and {len(untapped) - 1} more" if len(untapped) > 1 else ""
            finding = f"no tap has the recorded {untapped[0]}{more}: add taps, or record with --leave-out"
            self.findings = list(dict.fromkeys([*self.findings, finding]))
        return seen

    def conditioning(self, case: Case, dtype: str) -> Conditioning:
        return self._recording.conditioning(case, dtype)

    def sweep(self, names: Collection[str], times: Array) -> Mapping[str, Sweep]:
        found = self._recording.sweeps()
        return {name: found[name] for name in names if name in found and len(found[name].exact) == len(times)}


@contextmanager
def open_recording(path: Path) -> Iterator[Recording]:
    """Open a file of `wdport record`; raises :class:`InputError` if it is none, or damaged."""
    with _reading(path):
        archive = zipfile.ZipFile(path)
    with archive:
        with _reading(path):
            recording = Recording(path, archive)
        yield recording


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(path, "no such file", "check the path") from None
    except _FAULTS as error:
        text = f"{type(error).__name__}: {error}" if isinstance(error, (KeyError, TypeError)) else str(error)
        raise InputError(path, f"is no sound recording ({text})", _AGAIN) from None


def _rounded(array: Array) -> Array:
    return array.astype(np.float32).astype(np.float64)


def _pair(told: Sequence[float]) -> tuple[float, float]:
    square, largest = told
    return float(square), float(largest)


def _case(told: Mapping[str, float]) -> Case:
    return Case(int(told["seed"]), int(told["batch"]), float(told["scale"]), bool(told["random_biases"]))
