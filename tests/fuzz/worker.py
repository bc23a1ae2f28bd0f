"""A process that reads mutants of one target until it is told to stop: it may hang or crash, and the parent sees it.

It tells the parent every mutant before it reads it, so that the parent knows which one it was.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("KERAS_BACKEND", "jax")


def work(
    name: str, seed: int, start: int, count: int, seconds: float, progress: Path, limited: bool = True
) -> dict[str, object]:
    """Read mutants ``start`` to ``start + count`` of ``name``, or as many as there is time for.

    ``limited`` caps the memory of this process.
    """
    from tests.fuzz.mutators import mutant
    from tests.fuzz.targets import TARGETS
    from tests.fuzz.trial import Trials, limit

    kinds: Counter[str] = Counter()
    findings: list[tuple[int, str]] = []
    with TemporaryDirectory(prefix="wdport-fuzz-", dir=_memory()) as folder, progress.open("r+b", buffering=0) as told:
        for path in progress.parent.glob("*.*"):
            if path.suffix in (".ckpt", ".safetensors"):
                (Path(folder) / path.name).write_bytes(path.read_bytes())
        trials = Trials(TARGETS[name], Path(folder), seeds_in(progress.parent, name))
        if limited:
            limit()
        index, began = start, time.monotonic()
        while index < start + count and time.monotonic() - began < seconds:
            os.pwrite(told.fileno(), struct.pack("<Qd", index + 1, time.monotonic()), 0)
            ended = trials.run(*mutant(trials.seeds, seed, index))
            kinds[ended.kind] += 1
            if ended.finding:
                findings.append((index, ended.finding))
            index += 1
            if index % 64 == 0:
                _save(progress, index, kinds, findings, time.monotonic() - began)
        return _save(progress, index, kinds, findings, time.monotonic() - began)


def seeds_in(folder: Path, name: str) -> list[bytes]:
    """The good files of a reader, in order."""
    return [path.read_bytes() for path in sorted(folder.glob(f"{name}.[0-9]"))]


def _save(
    progress: Path, index: int, kinds: Counter[str], findings: list[tuple[int, str]], seconds: float
) -> dict[str, object]:
    state = {"index": index, "kinds": dict(kinds), "findings": findings, "seconds": seconds}
    new = progress.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(progress.with_suffix(".json"))
    return state


def _memory() -> str | None:
    """Files in memory, where the machine has it."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    asked, series, first, most, longest, place = sys.argv[1:]
    work(asked, int(series), int(first), int(most), float(longest), Path(place))
