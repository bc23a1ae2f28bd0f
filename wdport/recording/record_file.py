"""Record a model with its checkpoint to one file."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
from dataclasses import asdict
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Collection, Mapping, Sequence

import numpy as np

from .bias_shifts import moved_biases
from .calls import Calls, Note, silent
from .cases import CASES, Case
from .code_constants import compared_numbers, with_numbers
from .conditioning import Conditioning, conditioning, float32_errors
from .errors import Refusal, one_line
from .fitted_inputs import call_by_name, cases_of, checked_inputs, finite_case, mask_notes, with_ids, with_keys
from .inputs import Input
from .nested import to_array
from .observation import Observation, observe
from .recording_writer import SCHEMA, RecordingWriter
from .repeatability import FAST, fast_path_error, is_repeatable
from .runs import CaseSweep, module_names, scalar_fed, sweep
from .torch_functions import highest_precision
from .user_model import Subject, build

if TYPE_CHECKING:
    from .shared_types import Array, Index


def _described(
    observation: Observation, moves: Mapping[str, Conditioning], case: Case, put: Callable[[Array], str]
) -> dict[str, object]:
    """One case as JSON; writes its arrays to the file."""

    def refer(value: Any) -> object:
        return [refer(item) for item in value] if isinstance(value, (list, tuple)) else put(value)

    def listed(calls: Calls) -> dict[str, object]:
        return {name: [refer(call.inputs), refer(call.outputs), call.caller, list(call.names)]
                for name, call in calls.items()}  # fmt: skip

    document = {**asdict(case), "inputs": refer(observation.inputs), "outputs": refer(observation.outputs),
                "names": list(observation.names), "calls": listed(observation.calls), "single": None}  # fmt: skip
    document["conditioning"] = {
        dtype: [{name: asdict(spread) for name, spread in measured.taps.items()}, refer(measured.outputs)]
        for dtype, measured in moves.items()
    }
    single = observation.single
    if single:
        # Float64 first: where float32 is exact, it is then found to be its rounding.
        isolated = single.isolated and [[refer(ends), listed(calls)] for ends, calls in reversed(single.isolated)][::-1]
        outputs = [refer(arrays) for arrays in reversed(single.outputs)]
        document["single"] = {"inputs": refer(single.inputs), "outputs": outputs[::-1], "isolated": isolated}
    return document


def record_file(
    target: str,
    checkpoint: str,
    output: str,
    key: str | None = None,
    leave_out: Sequence[str] = (),
    say: Note = silent,
    inputs: Sequence[Input] = (),
    keep: Sequence[str] = (),
    tensors: Mapping[str, Array] | None = None,
    arguments: Mapping[str, object] | None = None,
    only: Callable[[str], bool] | None = None,
    spare: Collection[str] = (),
    carried: Mapping[str, str] = MappingProxyType({}),
) -> Index:
    """Record ``module:factory`` with this checkpoint to ``output``; returns the file's index without its cases.

    ``key`` is the dotted key of the state_dict if the file holds several; ``leave_out`` are patterns of modules not to
    record, ``only`` selects those to record; ``inputs`` are the model's, unless its factory returns ``make_inputs``;
    ``keep`` are patterns of tensors whose values are stored as well as their hashes; ``tensors``, ``arguments``,
    ``spare`` and ``carried`` are as for :func:`build`. Raises :class:`Refusal`.
    """
    digest = _file_digest(checkpoint)
    say("building the model in float32 and in float64")
    subject = build(target, checkpoint, key, tensors, arguments, spare, carried)
    names = [n for n in module_names(subject.modules["float64"])
             if not any(fnmatchcase(n, p) for p in leave_out) and (only is None or only(n))]  # fmt: skip
    index = {
        "schema": SCHEMA,
        "reference": target,
        "checkpoint": {"name": os.path.basename(checkpoint), "sha256": digest},
        "environment": _environment(),
        "evaluating": subject.evaluating,
        "names": names,
        "tensors": {name: asdict(tensor) for name, tensor in subject.tensors.items()},
    }
    try:
        writer = RecordingWriter(output)
        try:
            contents = _record_cases(subject, inputs, names, target, writer, say)
            state = subject.modules["float32"].state_dict()
            contents["values"] = {name: writer.put(to_array(tensor)) for name, tensor in state.items()
                                  if any(fnmatchcase(name, p) for p in keep)}  # fmt: skip
            writer.close({**index, **contents})
        except BaseException:
            writer.abandon()
            raise
    except OSError as error:
        fix = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the folder and its disk"
        raise Refusal(5, output, f"could not be written ({error.strerror or error})", fix) from error
    return {**index, **{name: value for name, value in contents.items() if name != "cases"}}


def _record_cases(
    subject: Subject, drawn: Sequence[Input], names: list[str], target: str, writer: RecordingWriter, say: Note
) -> Index:
    """Run the battery; returns its entries of the index."""
    make_inputs, double = subject.make_inputs, subject.modules["float64"]
    for module in subject.modules.values() if make_inputs is None else ():
        call_by_name(module, drawn)
    stated = with_ids(drawn, double)
    tried = cases_of(CASES, make_inputs, drawn)
    stated = with_keys(stated, double, tried, lambda case, inputs: checked_inputs(make_inputs, case, target, inputs))
    if make_inputs is None:
        stated = with_numbers(stated, compared_numbers(double, checked_inputs(None, tried[0], target, stated)))
    every = {index: spec.every for index, spec in enumerate(drawn) if spec.every is not None}
    shifts = subject.shifts
    notes, repeats = dict.fromkeys([*subject.notes, *mask_notes(stated)]), True
    cases: list[Index] = []
    sweeps: dict[str, CaseSweep] = {}
    for case in tried:
        case = finite_case(double, case, lambda case: checked_inputs(make_inputs, case, target, stated))
        say(f"running {case.describe()}")
        inputs = checked_inputs(make_inputs, case, target, stated)
        with moved_biases(subject.modules, shifts if case.random_biases else {}):
            try:
                observation = observe(
                    subject.modules, case, inputs, names, note=lambda text: notes.update({text: None})
                )
                repeats = repeats and is_repeatable(subject.modules["float64"], observation, target)
                if not cases and (deviation := fast_path_error(subject.modules["float32"], observation)):
                    notes[f"the reference {FAST} {deviation:.1e}"] = None
                moves = {"float64": conditioning(subject.modules["float64"], case, inputs, names)}
                if case.numerics:
                    moves["float32"] = float32_errors(subject.modules, case, inputs, names)
                for name, index in scalar_fed(inputs, observation.calls).items() if not sweeps else ():
                    if name in names and index in every:
                        sweeps |= sweep(subject.modules, [name], every[index])
            except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
                fix = "return a make_inputs that fits the module"
                raise Refusal(4, target, f"running it raises {one_line(error)}", fix) from error
        cases.append(_described(observation, moves, case, writer.put))
    shifted = {name: writer.put(shift) for name, shift in shifts.items()}
    swept = {name: [writer.put(curve.exact), writer.put(curve.single), writer.put(curve.truth)]
             for name, curve in sweeps.items()}  # fmt: skip
    return {"repeats": repeats, "notes": list(notes), "shifts": shifted, "sweeps": swept, "cases": cases}


def _environment() -> dict[str, str]:
    import torch

    with highest_precision() as precision:
        return {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "torch_matmul": precision,
        }


def _file_digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 22), b""):
                digest.update(chunk)
    except OSError as error:
        raise Refusal(3, path, f"cannot be read ({error.strerror or error})", "check the path") from None
    return digest.hexdigest()
