"""The tool itself: mutants are the same every time, good readers pass, and a reader at fault is found."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.checkpoint.forge import SIX_FLOATS, archive, entry, safetensors
from tests.fuzz.mutators import mutant
from tests.fuzz.seeds import write_seeds
from tests.fuzz.targets import SUMMED, TARGETS, Found, Target
from tests.fuzz.trial import Trials
from tests.fuzz.worker import work

SEEDS = [archive(), safetensors({"w": entry()})]


def test_a_mutant_is_two_numbers() -> None:
    made = [mutant(SEEDS, 3, index) for index in range(50)]
    assert made == [mutant(SEEDS, 3, index) for index in range(50)]
    assert made != [mutant(SEEDS, 4, index) for index in range(50)]
    assert {origin for origin, _ in made} == {0, 1}
    assert sum(data != SEEDS[origin] for origin, data in made) >= 45


SLOW = ("configuration", "keras", "weights.h5", "converted safetensors", "converted npz", "recording", "optimizer",
        "optimizer file", "exported", "exported, loader")  # fmt: skip
"""Readers that build or convert a model for every mutant, or whose good files take long to make: `make fuzz` alone."""


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in SLOW])
def test_a_reader_without_faults(name: str, tmp_path: Path) -> None:
    """In the words of a worker."""
    write_seeds(tmp_path, [name])
    progress = tmp_path / f"{name.replace(' ', '-')}-0"
    progress.write_bytes(bytes(16))
    ended = work(name, 0, 0, 300, 60.0, progress, limited=False)
    assert (ended["index"], ended["findings"]) == (300, [])
    assert json.loads(progress.with_suffix(".json").read_text()) == json.loads(json.dumps(ended))


def _faulty(path: Path) -> Found:
    data = path.read_bytes()
    if data[:4] != b"PK\3\4":
        raise KeyError("PK")
    if len(data) % 2:
        time.process_time()
        began = time.process_time()
        while time.process_time() - began < 1.1:
            pass
    return {"w": data.replace(SIX_FLOATS, b"") == data}


def test_a_reader_at_fault_is_found(tmp_path: Path) -> None:
    good = archive() + b"\0" * (len(archive()) % 2)
    trials = Trials(Target("x.pt", _faulty, summed=True), tmp_path, [good])
    assert not trials.run(0, good).finding
    assert trials.run(0, b"hello!").finding == "raises KeyError: 'PK'"
    assert trials.run(0, good + b"x").finding.startswith("took 1.")
    assert trials.run(0, good.replace(SIX_FLOATS, bytes(24))).finding == "reads other values than were written"


def test_memory_is_seen(tmp_path: Path) -> None:
    def greedy(path: Path) -> Found:
        return {"n": len(bytearray(200 << 20)) if path.read_bytes() == b"more" else 0}

    trials = Trials(Target("x.pt", greedy), tmp_path, [b"less"])
    assert not trials.run(0, b"less").finding
    assert "MB for 4 bytes" in trials.run(0, b"more").finding


def test_names() -> None:
    """Two readers in one folder do not get in each other's way."""
    assert len({target.name for target in TARGETS.values()}) == len(TARGETS)
    assert {name for name, target in TARGETS.items() if target.summed} == set(SUMMED)
