"""The reference's two forms: what runs here and what was recorded are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.make import TWO_LEVELS, make_state, record_small, save
from wdport.base.errors import IncompleteError, InputError, MisfitError, error_of
from wdport.compare.calls import CASES, Call, leaves
from wdport.compare.reference import Live, Reference
from wdport.parity.recorded_reference import Replay, open_recording
from wdport.recording.observation import Observation
from wdport.recording.user_model import build
from wdport.uses.waveletdiff.family import FAMILY


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint and its recording."""
    folder = tmp_path_factory.mktemp("reference")
    checkpoint = save(folder / "small.ckpt", make_state(TWO_LEVELS))
    record_small("tests.user_model:two_levels", checkpoint, folder / "run.npz", TWO_LEVELS)
    return checkpoint, folder / "run.npz"


def live(checkpoint: Path) -> Live:
    subject = build("tests.user_model:two_levels", str(checkpoint))
    return Live(subject.modules, drawn=FAMILY.signature(TWO_LEVELS).inputs)


def arrays(seen: Observation) -> list[Any]:
    """Everything in an observation, in one order."""

    def of(calls: Any) -> list[Any]:
        assert all(isinstance(call, Call) for call in calls.values())
        return [leaf for name in calls for leaf in leaves([*calls[name].inputs, *calls[name].outputs])]

    found = [*seen.inputs, *seen.outputs, *of(seen.calls)]
    if seen.single is not None:
        found += [*seen.single.inputs, *leaves(list(seen.single.outputs))]
        for outputs, calls in seen.single.isolated or ():
            found += [*outputs, *of(calls)]
    return found


def test_a_replay_is_the_run_bit_for_bit(recorded: tuple[Path, Path]) -> None:
    here = live(recorded[0])
    with open_recording(recorded[1]) as recording:
        there: Reference = Replay(recording)
        assert list(there.names) == list(here.names)
        assert there.evaluating
        assert there.findings == []
        cases = here.cases(CASES)
        extremes = [case.extremes for case in cases if case.extremes]
        assert extremes == [("zeros", "constant", "large", ""), ("whole", "sparse", "small", "far")]
        assert set(there.cases(CASES)) == set(cases)
        assert there.notes == here.notes
        for case in cases:
            ours, theirs = here.observe(case, here.names), there.observe(case, here.names)
            assert list(ours.calls) == list(theirs.calls)
            pairs = list(zip(arrays(ours), arrays(theirs), strict=True))
            assert len(pairs) > 200
            assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
        assert there.environment["torch"] == here.environment["torch"]
        assert set(there.shifts) == set(here.shifts)
        assert all(np.array_equal(there.shifts[name], shift) for name, shift in here.shifts.items())


def test_live_weights_move_with_the_case(recorded: tuple[Path, Path]) -> None:
    here = live(recorded[0])
    first, moved = CASES[0], CASES[-1]
    outputs = [here.observe(case, ()).outputs[0] for case in (first, moved, first)]
    assert np.array_equal(outputs[0], outputs[2])
    assert not np.array_equal(outputs[0], outputs[1])


def test_training_mode_is_seen(recorded: tuple[Path, Path]) -> None:
    here = live(recorded[0])
    assert here.evaluating
    here.modules["float32"].time_embedding.train()
    assert not here.evaluating


def test_errors_by_exit_code() -> None:
    assert type(error_of(3, "a", "b", "c")) is InputError
    assert type(error_of(4, "a", "b", "c")) is MisfitError
    assert str(error_of(6, "a", "b", "c")) == "a: b; c"
    assert type(error_of(6, "a", "b", "c")) is IncompleteError


def test_a_recording_without_extreme_values_says_so(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    """As recorders wrote them before: the other cases are read."""
    arrays = dict(np.load(recorded[1]))
    index = json.loads(arrays.pop("index").tobytes())
    index["cases"] = [case for case in index["cases"] if not any(case.pop("extremes"))]
    np.savez(tmp_path / "old.npz", index=np.frombuffer(json.dumps(index).encode(), np.uint8), **arrays)
    with open_recording(tmp_path / "old.npz") as recording:
        there = Replay(recording)
        assert there.cases(CASES) == [case for case in CASES if not case.extremes]
        assert any(note.startswith("the recording has no extreme values (zeros, ") for note in there.notes)
