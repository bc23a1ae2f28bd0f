"""``make fuzz``: mutants of good files through every reader, for some seconds or up to a number of them.

Prints one line per reader and exits 1 if a reader did what none may: raised anything but a WdportError, took over a
second or 64 MB, crashed, or gave other weights than were written where the format has checksums. The mutant is kept.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.mutators import mutant
from tests.fuzz.targets import MUTANTS, TARGETS
from tests.fuzz.worker import seeds_in

STUCK = 20.0
"""Seconds without a new mutant after which a worker hangs."""

KEPT = 20
"""Findings of one reader that are kept as files."""


@dataclass
class Tally:
    """What was seen of one reader."""

    name: str
    done: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)

    def row(self) -> str:
        """One line of the table."""
        wrong = self.kinds["unnoticed"]
        errors = ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common() if kind not in ("read", "unnoticed"))
        rate = self.done / max(self.seconds, 1e-9)
        told = (
            f"{self.name:<22} {self.done:>6} {rate:>7.0f}/s {self.kinds['read']:>6} {wrong:>6} {len(self.findings):>5}"
        )
        return f"{told}  {errors}"


HEAD = f"{'reader':<22} {'read':>6} {'rate':>9} {'same':>6} {'other':>6} {'found':>5}  refused as"


def fuzz(name: str, seed: int, count: int, seconds: float, folder: Path) -> Tally:
    """Run workers for one reader; one that hangs or dies is replaced, and the mutant that it was at is a finding."""
    tally, start, left = Tally(name), 0, seconds
    while start < count and left > 0:
        progress = folder / f"{name.replace(' ', '-')}-{start}"
        progress.write_bytes(bytes(16))
        began = time.monotonic()
        with progress.with_suffix(".err").open("wb") as err:
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker", name,
                 *map(str, (seed, start, count - start, left, progress))],
                stderr=err, stdout=err,
            )  # fmt: skip
            how = _watch(worker, progress)
        state = _state(progress)
        tally.done += sum(state["kinds"].values())
        tally.kinds.update(state["kinds"])
        tally.findings += [(index, what) for index, what in state["findings"]]
        tally.seconds += state["seconds"]
        if not how:
            break
        last = struct.unpack("<Qd", progress.read_bytes())[0]
        if not last:
            raise SystemExit(f"{name}: no worker starts:\n{progress.with_suffix('.err').read_text()[-2000:]}")
        tally.findings.append((last - 1, how))
        start, left = last, left - (time.monotonic() - began)
    return tally


def _watch(worker: subprocess.Popen[bytes], progress: Path) -> str:
    """Wait for a worker's end; what it did wrong, if it did."""
    seen, since = b"", time.monotonic()
    while worker.poll() is None:
        time.sleep(0.05)
        now = progress.read_bytes()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > STUCK * (1 if struct.unpack("<Qd", now)[0] else 6):
            worker.kill()
            worker.wait()
            return f"hangs for {STUCK:.0f} s"
    return "" if worker.returncode == 0 else f"ends its process with {worker.returncode}"


def _state(progress: Path) -> dict[str, object]:
    saved = progress.with_suffix(".json")
    return json.loads(saved.read_text()) if saved.exists() else {"kinds": {}, "findings": [], "seconds": 0.0}


def keep(tally: Tally, seed: int, good: Path, folder: Path) -> None:
    """Write the mutants that were findings, and what each did."""
    if not tally.findings:
        return
    seeds = seeds_in(good, tally.name)
    folder.mkdir(parents=True, exist_ok=True)
    for index, what in tally.findings[:KEPT]:
        path = folder / f"{tally.name.replace(' ', '-')}-{seed}-{index}-{TARGETS[tally.name].name}"
        path.write_bytes(mutant(seeds, seed, index)[1])
        print(f"  {tally.name} {seed}:{index}: {what}\n    {path}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all readers together")
    parser.add_argument("--count", type=int, help="so many mutants over the formats of weights and recordings instead")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="only this reader; repeatable")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="folder for findings")
    given = parser.parse_args()
    names = given.target or list(MUTANTS if given.count else TARGETS)
    each = -(-given.count // len(names)) if given.count else 1 << 40
    seconds = 1e9 if given.count else given.seconds / len(names)
    from tests.fuzz.seeds import write_seeds

    tallies = []
    print(HEAD, flush=True)
    with TemporaryDirectory(prefix="wdport-fuzz-") as folder:
        write_seeds(Path(folder), names)
        for name in names:
            tallies.append(fuzz(name, given.seed, each, seconds, Path(folder)))
            print(tallies[-1].row(), flush=True)
            keep(tallies[-1], given.seed, Path(folder), given.keep)
    done, found = sum(t.done for t in tallies), sum(len(t.findings) for t in tallies)
    wrong = sum(t.kinds["unnoticed"] for t in tallies if TARGETS[t.name].summed)
    rate = done / max(sum(t.seconds for t in tallies), 1e-9)
    print(f"{done} mutants, {rate:.0f}/s; {found} findings; other weights unsaid, in formats with checksums: {wrong}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
