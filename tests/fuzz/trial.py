"""One mutant, read once: how it ended, how long it took, how much memory it wanted."""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.targets import Found, Target
from wdport.base.errors import WdportError

LONGEST = 1.0
"""Seconds of computing that a reader may take for a small file."""

ABOVE = 64 << 20
"""Bytes of memory that a reader may take above the file's size."""

ADDRESSES = 6 << 30
"""Address space of a worker, so that a bomb fills no machine."""


@dataclass(frozen=True)
class Ended:
    """``kind`` is ``read``, ``unnoticed`` (read, and not what was written) or a class of error; ``finding`` says what
    a reader must not do, and is empty where it did not."""

    kind: str
    finding: str = ""


class Trials:
    """A reader, held against what it reads from the good files."""

    def __init__(self, target: Target, folder: Path, seeds: Sequence[bytes]) -> None:
        self.target, self.path = target, folder / target.name
        self.seeds = seeds
        self.clean: list[Found] = []
        for seed in self.seeds:
            self.path.write_bytes(seed)
            self.clean.append(target.read(self.path))

    def run(self, origin: int, data: bytes) -> Ended:
        """Read ``data``, which was made from the good file of that number."""
        self.path.write_bytes(data)
        before, began = _reset_peak(), time.process_time()
        kind, finding = self._read(origin)
        seconds, used = time.process_time() - began, _peak() - before
        if not finding and seconds > LONGEST:
            finding = f"took {seconds:.1f} s"
        if not finding and used > ABOVE + len(data):
            finding = f"took {used >> 20} MB for {len(data)} bytes"
        return Ended(kind, finding)

    def _read(self, origin: int) -> tuple[str, str]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self.target.read(self.path)
        except WdportError as error:
            line = str(error)
            odd = "" if line.isprintable() and error.exit_code < 70 else f"says {line!r}"
            return type(error).__name__, odd
        except Exception as error:
            return type(error).__name__, f"raises {type(error).__name__}: {str(error)[:200]}"
        if found == self.clean[origin]:
            return "read", ""
        return "unnoticed", "reads other values than were written" if self.target.summed else ""


def limit() -> None:
    """Cap this process's memory."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def _reset_peak() -> int:
    """Forget the highest memory so far; what is used now, in bytes."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """The highest resident memory since then."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
