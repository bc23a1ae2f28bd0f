"""Recordings of a user's own PyTorch code, compared with where torch is not installed.

The code (`tests/user_model.py`) computes its tables in float32; lifted, it is within 1e-10 of the public
implementation's true float64 at every layer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import wdport
from conftest import ROOT
from parity_tests.test_golden import NAMES, read_arrays
from parity_tests.test_verdicts import failed
from tests.make import SETTINGS, SMALL, TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, record_small, save
from wdport.base.errors import IncompleteError, InputError, MisfitError
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.measure import relative_l2
from wdport.parity.verdict import Verdict
from wdport.parity.verify import verify_recording
from wdport.recording.float64 import lifted
from wdport.recording.runs import record, run
from wdport.recording.user_model import build
from wdport.uses.waveletdiff import layers
from wdport.uses.waveletdiff.config import Config

FACTORIES = {"etth1-seq24-db2": "etth1", "stocks-seq64-db4": "stocks", "exchange-seq24-qknorm": "exchange"}

REPLAY = """
import importlib.util, json, sys
sys.path.insert(0, sys.argv[1])
found = importlib.util.find_spec("torch")
import wdport
from wdport.parity.verify import verify_recording
verdict = verify_recording(*sys.argv[2:]).to_json()
loaded = [name for name in sys.modules if name.split(".")[0] == "torch"]
print(json.dumps({"torch": found is not None or bool(loaded), "verdict": verdict}))
"""


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import from that has everything but torch."""
    folder = tmp_path_factory.mktemp("without-torch")
    for entry in Path(np.__file__).parents[1].iterdir():
        if not entry.name.startswith(("torch", "functorch", "wdport", "_editable", "__")):
            (folder / entry.name).symlink_to(entry)
    for name in ("wdport", "mappings"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def replay(folder: Path, converted: Path, recording: Path) -> dict[str, Any]:
    """The verdict of a process that has no torch."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
    command = [sys.executable, "-I", "-S", "-c", REPLAY, str(folder), str(converted), str(recording)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **cache})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["torch"] is False
    return dict(told["verdict"])


@pytest.mark.full
@pytest.mark.parametrize("name", list(FACTORIES))
def test_the_goldens_replay_without_torch(golden: Path, without_torch: Path, tmp_path: Path, name: str) -> None:
    recording = tmp_path / "run.npz"
    config = golden / f"{name}.config.yaml"
    conversion = wdport.convert(golden / NAMES[name], tmp_path / "port.keras", config=config)
    target, converted = f"tests.user_model:{FACTORIES[name]}", conversion.output
    index = record_small(target, golden / NAMES[name], recording, conversion.config)
    assert index["notes"] == []
    verdict = replay(without_torch, converted, recording)
    assert [gate for gate in verdict["gates"] if not gate["passed"]] == []
    assert verdict["exit_code"] == 0
    assert len(verdict["taps"]) > 200
    assert all(tap["isolated"] <= 1e-12 and tap["cumulative"] <= 1e-12 for tap in verdict["taps"])
    assert verdict["environment"]["torch_matmul"] == "highest"


@pytest.mark.parametrize("name", NAMES)
def test_the_lift_is_true_float64(golden: Path, name: str) -> None:
    """The user's code, lifted, against the public code's true float64; `.double()` alone does not get there."""
    subject = build(f"tests.user_model:{FACTORIES[name]}", str(golden / NAMES[name]))
    exact, single = read_arrays(golden / f"{name}.golden64.npz"), read_arrays(golden / f"{name}.golden.npz")
    inputs = (single["x_t"].astype(np.float64), single["t"] / 1000.0)
    with lifted():
        (output,), calls = record(subject.modules["float64"], inputs)
    assert relative_l2(output, exact["output"]) <= LOGIC
    seen = {name: call.outputs[0] for name, call in calls.items()}
    errors = {n: relative_l2(seen[n].reshape(exact[f"act/{n}"].shape), exact[f"act/{n}"])
              for n in seen if f"act/{n}" in exact}  # fmt: skip
    assert len(errors) > 150
    assert {n: error for n, error in errors.items() if not error <= LOGIC} == {}
    naive = run(subject.modules["float32"].double(), inputs)[0]
    assert relative_l2(naive, exact["output"]) > 1e3 * LOGIC


class Pair:
    """A small checkpoint, its conversion and the recording of the user's code with it."""

    def __init__(self, folder: Path, config: Config, settings: dict[str, str], target: str) -> None:
        self.checkpoint = save(folder / "small.ckpt", make_state(config))
        self.converted = wdport.convert(self.checkpoint, folder / "small.weights.h5", values=settings).output
        self.recording = folder / "small.npz"
        record_small(target, self.checkpoint, self.recording, config)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("two"), TWO_LEVELS, TWO_LEVELS_SETTINGS, "tests.user_model:two_levels")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The same with all parts of the model."""
    return Pair(tmp_path_factory.mktemp("small"), SMALL, SETTINGS, "tests.user_model:small")


@pytest.fixture(scope="module")
def replayed(pair: Pair) -> Verdict:
    return verify_recording(pair.converted, pair.recording)


def test_a_correct_port_passes_and_says_what_it_was_compared_with(pair: Pair, replayed: Verdict) -> None:
    assert replayed.exit_code == 0
    assert replayed.checkpoint == str(pair.recording)
    assert {"recorded_python", "torch", "keras"} <= set(replayed.environment)
    assert any(tap.reference.endswith("attn.query") for tap in replayed.taps)


def test_live_and_recorded_agree(pair: Pair, replayed: Verdict) -> None:
    live = wdport.verify(pair.checkpoint, pair.converted, reference="tests.user_model:two_levels")
    assert live.exit_code == 0
    assert [tap.reference for tap in replayed.taps] == [tap.reference for tap in live.taps]
    for ours, theirs in zip(replayed.taps, live.taps, strict=True):
        assert (ours.isolated, ours.cumulative) == pytest.approx((theirs.isolated, theirs.cumulative), abs=1e-17)
        assert (ours.rms_ratio, ours.inputs_ratio) == pytest.approx((theirs.rms_ratio, theirs.inputs_ratio), rel=1e-6)


@pytest.mark.full
def test_a_reference_that_loads_its_own_weights(small: Pair, tmp_path: Path) -> None:
    recording = tmp_path / "loaded.npz"
    record_small("tests.user_model:loaded", small.checkpoint, recording)
    assert verify_recording(small.converted, recording)


def test_a_fault_in_the_port_is_found_from_a_recording(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers.Standardize.__init__, "__defaults__", (1e-6,))
    verdict = verify_recording(pair.converted, pair.recording)
    assert verdict.exit_code == 1
    assert failed(verdict) >= {"A"}
    assert {fault.candidate.rpartition("/")[2] for fault in verdict.faults} == {"norm"}


@pytest.mark.full
def test_a_fault_in_the_file_is_found_from_a_recording(small: Pair, tmp_path: Path) -> None:
    """A square kernel not transposed: its hash is not the recorded one, and its layer is named."""
    broken = tmp_path / "broken.weights.h5"
    shutil.copy(small.converted, broken)
    with h5py.File(broken, "a") as file:
        place = "cross_level/projection_0/vars/0"
        file[place][...] = file[place][()].T
    verdict = verify_recording(broken, small.recording)
    assert verdict.exit_code == 1
    assert {"0", "A"} <= failed(verdict)
    assert str(verdict.gates[0].findings[0]) == "cross_level/projection_0/kernel is not bitwise equal to its tensor"
    assert {fault.candidate for fault in verdict.faults} == {"cross_level/projection_0"}


@pytest.mark.full
def test_a_fault_in_the_users_code_is_found(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is not the checkpoint's: the table in the file is not the one that the code computes, and is used."""
    from tests import user_model

    monkeypatch.setattr(user_model.Position, "forward", lambda self, x: x + self.pe[: x.size(1)] * (1 + 1e-7))
    recording = tmp_path / "other.npz"
    record_small("tests.user_model:two_levels", pair.checkpoint, recording, TWO_LEVELS)
    verdict = verify_recording(pair.converted, recording)
    assert verdict.exit_code == 1
    assert {fault.candidate.rpartition("/")[2] for fault in verdict.faults} == {"position"}


def edited(source: Path, target: Path, change: Any) -> Path:
    """A copy of a recording with its index changed."""
    with np.load(source) as file:
        arrays = dict(file)
    index = json.loads(arrays.pop("index").tobytes())
    change(index)
    np.savez(target, index=np.frombuffer(json.dumps(index).encode(), np.uint8), **arrays)
    return target


def test_a_recording_of_another_size_is_refused(pair: Pair, tmp_path: Path) -> None:
    def drop(index: Any) -> None:
        del index["tensors"]["level_transformers.0.input_proj.bias"]

    with pytest.raises(MisfitError, match=r"missing level_transformers\.0\.input_proj\.bias"):
        verify_recording(pair.converted, edited(pair.recording, tmp_path / "a.npz", drop))


def test_another_schema_is_refused(pair: Pair, tmp_path: Path) -> None:
    newer = edited(pair.recording, tmp_path / "newer.npz", lambda index: index.update(schema=99))
    with pytest.raises(InputError, match="has the format 99, this wdport reads 4"):
        verify_recording(pair.converted, newer)


def test_a_missing_tap_is_incomplete(pair: Pair, tmp_path: Path) -> None:
    def forget(index: Any) -> None:
        index["names"] = [name for name in index["names"] if not name.endswith(".attn.value")]

    with pytest.raises(IncompleteError, match=r"the reference has no layer .*attn\.value") as refusal:
        verify_recording(pair.converted, edited(pair.recording, tmp_path / "a.npz", forget))
    assert refusal.value.exit_code == 6


@pytest.mark.full
def test_a_missing_call_and_a_missing_case_are_incomplete(small: Pair, tmp_path: Path) -> None:
    def forget(index: Any) -> None:
        for case in index["cases"]:
            del case["calls"]["level_transformers.1.blocks.0.attn.out"]

    verdict = verify_recording(small.converted, edited(small.recording, tmp_path / "a.npz", forget))
    assert verdict.exit_code == 6
    with pytest.raises(IncompleteError, match="has no seed 2"):
        verify_recording(
            small.converted, edited(small.recording, tmp_path / "b.npz", lambda index: index["cases"].pop(2))
        )


def test_modules_without_a_tap_are_told(pair: Pair, tmp_path: Path) -> None:
    """In isolation they were answered for, so what their neighbours make is not what the port's make."""

    def invent(index: Any) -> None:
        for case in index["cases"]:
            case["calls"]["extra"] = case["calls"]["time_embedding"]

    verdict = verify_recording(pair.converted, edited(pair.recording, tmp_path / "a.npz", invent))
    assert (verdict.exit_code, failed(verdict)) == (6, {"B", "E'"})
    assert any("float32 is not compared, since the table has no row for the recorded extra" in str(finding)
               for finding in verdict.gates[0].findings)  # fmt: skip
