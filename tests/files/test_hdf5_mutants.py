"""Damaged HDF5 files: refused, read as if sound, or with a damage that the variables' names, shapes or digests show.

HDF5 files of version 0 have no checksums. What cannot be seen in one: a name or a text that became another, two arrays
of one shape that changed places, and the values themselves. The long form reads the same files with h5py too.
"""

from __future__ import annotations

import json
import resource
import select
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.files.hdf5_mutants import mutate, offsets, outcome, structure
from tests.files.hdf5_reference import by_h5py, by_us, tree
from wdport.checkpoint.faults import Fault
from wdport.files.keras_file import WeightsWriter

LIMIT_S = 1.0
LOOKS_SOUND = {"other names, shapes or dtypes", "other attributes", "other values", "arrays from elsewhere"}


@pytest.fixture(scope="session")
def victims(saved_models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of Keras, of our writer, and one with names beyond ASCII."""
    folder = tmp_path_factory.mktemp("victims")
    shapes = {f"blocks/{number}/kernel": (3, 2) for number in range(40)}
    writer = WeightsWriter(folder / "ours.weights.h5", shapes)
    for name in shapes:
        writer.write(name, np.ones((3, 2), np.float32))
    writer.finish("facts " * 1000)
    layers = {"größe": None, "größe/vars/0": np.ones(2), "größe/vars/1": np.arange(2.0)}
    (folder / "names.weights.h5").write_bytes(tree(layers, {"größe": {"name": "größe", "age": 3}}))
    return [path for path in saved_models if path.suffix == ".h5"] + sorted(folder.iterdir())


def check(raw: bytes, count: int) -> Counter[str]:
    """Read ``count`` damaged copies; any exception but a fault, or a second of work, fails."""
    words, good, places = structure(raw), by_h5py(raw), offsets(raw)
    found: Counter[str] = Counter()
    for seed in range(count):
        damaged = mutate(raw, words, seed)
        start = time.process_time()
        found[outcome(damaged, good, places)] += 1
        assert time.process_time() - start < LIMIT_S, seed
    return found


@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.full)])
def test_mutants(victims: list[Path], count: int) -> None:
    found: Counter[str] = Counter()
    for path in victims:
        found += check(path.read_bytes(), count)
    assert found.total() >= count * 6
    assert found["refused"] > found.total() / 2
    assert sum(found[kind] for kind in LOOKS_SOUND) < found.total() / 50, found
    assert found["arrays from elsewhere"] < found.total() / 1000, found


def test_memory() -> None:
    """Whatever size a word declares, no memory is taken for it."""
    raw = tree({"a/vars/0": np.ones(3), "b/vars/0": np.ones((2, 2))}, {"a": {"name": "a"}})
    good = by_us(raw)
    tracemalloc.start()
    for at in structure(raw)[::4]:
        for size in (len(raw) - 96, 2**31, 2**62):
            tracemalloc.reset_peak()
            outcome(raw[:at] + size.to_bytes(8, "little") + raw[at + 8 :], good, {})
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_every_address_led_to_each_other() -> None:
    """Nothing hangs, only faults are raised, and no array, of which each has a size of its own, is another's."""
    raw = tree({"a/vars/0": np.ones(3), "a/vars/1": np.ones(4), "b/vars/0": np.ones(5)}, {"a": {"name": "a"}})
    good, places = by_us(raw), offsets(raw)
    at = [place for place in structure(raw) if 96 <= int.from_bytes(raw[place : place + 8], "little") < len(raw)]
    found = Counter(
        outcome(raw[:first] + raw[second : second + 8] + raw[first + 8 :], good, places)
        for first in at
        for second in at
        if raw[first : first + 8] != raw[second : second + 8]
    )
    assert not {"arrays from elsewhere", "other values"} & set(found)
    assert found["refused"] > 200


def child(path: Path, first: int, last: int) -> None:
    """Print what h5py makes of each damaged copy that our reader takes."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    raw = path.read_bytes()
    words, good = structure(raw), by_h5py(raw)
    for seed in range(first, last):
        damaged = mutate(raw, words, seed)
        try:
            ours = by_us(damaged)
        except Fault:
            ours = None
        try:
            theirs = by_h5py(damaged)
        except Exception as error:
            answer = type(error).__name__
        else:
            answer = "agrees" if theirs == ours else "sound" if theirs == good else "other"
        print(json.dumps([seed, ours is not None, answer]), flush=True)  # noqa: T201


def answers(path: Path, count: int) -> Iterator[tuple[bool, str]]:
    """Whether our reader takes each copy, and what h5py answers, in a child that is ended where it hangs."""
    seed = 0
    while seed < count:
        command = [sys.executable, "-m", "tests.files.test_hdf5_mutants", str(path), str(seed), str(count)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            limit = 60.0  # it has to import
            while seed < count:
                ready = select.select([process.stdout], [], [], limit)[0]
                line = process.stdout.readline() if ready else b""
                if not line:
                    yield False, "crashes" if ready else "hangs"
                    seed += 1
                    break
                seed, accepted, answer = json.loads(line)
                yield accepted, answer
                seed, limit = seed + 1, 3.0
            process.kill()


@pytest.mark.full
def test_h5py_reads_the_same_of_what_is_taken(victims: list[Path]) -> None:
    """Of a damaged copy that our reader takes, h5py reads the same or nothing; it hangs on others."""
    found = Counter(answer for path in victims for answer in answers(path, 60))
    assert found[True, "agrees"] > 50
    assert not {answer for accepted, answer in found if accepted} & {"sound", "other", "hangs", "crashes"}, found


def test_free_space_of_a_heap() -> None:
    """Free space among the names that leads round in a circle, or beyond its block."""
    raw = tree({"a": np.ones(2), "b": np.ones(2)}, {"a": {"name": "text"}})
    heap = raw.index(b"HEAP")
    free = heap + 16
    start = int.from_bytes(raw[heap + 24 : heap + 32], "little")
    block = start + int.from_bytes(raw[free : free + 8], "little")
    for at, value in ((free, 8), (free, 3), (block, 24), (block + 8, 2**40), (block + 8, 0)):
        with pytest.raises(Fault, match="HDF5 group"):
            by_us(raw[:at] + value.to_bytes(8, "little") + raw[at + 8 :])


if __name__ == "__main__":
    child(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
