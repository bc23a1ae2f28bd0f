"""The reference's two forms: what runs here and what was recorded are the same, and a bad recording is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.make import TWO_LEVELS, make_state, record_small, save
from wdport.compare.calls import CASES, Call, leaves
from wdport.compare.reference import Live, Reference
from wdport.errors import IncompleteError, InputError, MisfitError, error_of
from wdport.families.waveletdiff.family import FAMILY
from wdport.parity.recording import Replay, open_recording
from wdport.recorder import Observation, build


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
        for outputs, calls in seen.single.isolated:
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


Members = dict[str, bytes]
Change = Callable[[Members, dict[str, Any]], None]


def packed(array: Any) -> bytes:
    stream = BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    return stream.getvalue()


def rebuilt(source: Path, target: Path, change: Change, method: int = zipfile.ZIP_STORED) -> Path:
    """The recording with its members or its index changed."""
    with zipfile.ZipFile(source) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    index = json.loads(np.load(BytesIO(members.pop("index.npy"))).tobytes())
    change(members, index)
    members.setdefault("index.npy", packed(np.frombuffer(json.dumps(index).encode(), np.uint8)))
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target


def first(index: dict[str, Any]) -> str:
    """The member that the first case's output is in."""
    return f"{index['cases'][0]['outputs'][0]}.npy"


def lying(members: Members, index: dict[str, Any]) -> None:
    """A header that promises eight terabytes."""
    stream = BytesIO()
    told = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(stream, told)
    members[first(index)] = stream.getvalue() + bytes(80)


def index_of(text: bytes) -> Change:
    return lambda members, index: members.update({"index.npy": packed(np.frombuffer(text, np.uint8))})


def array_of(array: Any) -> Change:
    return lambda members, index: members.update({first(index): packed(array)})


def short(members: Members, index: dict[str, Any]) -> None:
    members[first(index)] = members[first(index)][:-8]


def cut_call(members: Members, index: dict[str, Any]) -> None:
    index["cases"][0]["calls"]["time_embedding"] = [["0"]]


FAULTS: dict[str, tuple[Change, str]] = {
    "an array is gone": (lambda members, index: members.pop(first(index)) and None, "has no array"),
    "an array is empty": (lambda members, index: members.update({first(index): b""}), "not a numeric array"),
    "an array is a pickle": (array_of(np.array([{}])), "not a numeric array"),
    "an array is text": (array_of(np.array(["a"])), "not a numeric array"),
    "an array is too short": (short, "does not have the size of"),
    "a header lies": (lying, "not a numeric array"),
    "no index": (lambda members, index: members.update({"index.npy": b"nothing at all"}), "not a numeric array"),
    "an index of another kind": (index_of(b"[1, 2]"), "not a JSON object"),
    "an index that is no JSON": (index_of(b"{"), "not valid JSON"),
    "an index that nests too deep": (index_of(b"[" * 100000), "not valid JSON"),
    "no schema": (lambda members, index: index.pop("schema") and None, "KeyError"),
    "tensors in a list": (lambda members, index: index.update(tensors=[]), "not an object"),
    "a reference to nothing": (
        lambda members, index: index["cases"][0].update(outputs=["x"]),
        "has the invalid array reference 'x'",
    ),
    "a call cut short": (cut_call, "not a list of 4"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_recording_is_refused(recorded: tuple[Path, Path], tmp_path: Path, fault: str) -> None:
    change, words = FAULTS[fault]
    bad = rebuilt(recorded[1], tmp_path / "bad.npz", change)
    with pytest.raises(InputError, match=words), open_recording(bad) as recording:
        Replay(recording).observe(CASES[0], ())


def test_a_compressed_recording_is_refused(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    """Nothing is unpacked beyond the size of the file."""
    bad = rebuilt(recorded[1], tmp_path / "bad.npz", lambda members, index: None, zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="is compressed"), open_recording(bad):
        pass


@pytest.mark.parametrize("path", ["README.md", "nowhere.npz", "tests"])
def test_what_is_no_recording_is_refused(path: str) -> None:
    with pytest.raises(InputError) as refusal, open_recording(Path(path)):
        pass
    assert refusal.value.exit_code == 3


def test_a_recording_that_does_not_repeat_itself_is_told(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    odd = rebuilt(
        recorded[1], tmp_path / "odd.npz", lambda members, index: index.update(repeats=False, evaluating=False)
    )
    with open_recording(odd) as recording:
        assert Replay(recording).findings == ["the reference does not repeat itself bit for bit"]
        assert not Replay(recording).evaluating


def test_a_recording_without_extreme_values_says_so(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    """As recorders wrote them before: the other cases are read."""

    def before(members: Members, index: dict[str, Any]) -> None:
        index["cases"] = [case for case in index["cases"] if not any(case.pop("extremes"))]

    old = rebuilt(recorded[1], tmp_path / "old.npz", before)
    with open_recording(old) as recording:
        there = Replay(recording)
        assert there.cases(CASES) == [case for case in CASES if not case.extremes]
        assert any(note.startswith("the recording has no extreme values (zeros, ") for note in there.notes)
