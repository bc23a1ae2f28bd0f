"""A run's facts and its finished blocks in, a folder beside the output that an interrupted run goes on from.

Every block is written under a temporary name, synced and renamed, so what is there is complete. The folder goes
when the output is written.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from wdport.data.arrays import opened_npz
from wdport.data.files import data_file
from wdport.errors import InputError, MachineError, UsageError
from wdport.files.atomic import machine_error, whole_file, write_text
from wdport.files.temporary import is_temporary
from wdport.model import Array

LOCK = "lock"
RUN = "run.json"
_NAME = re.compile(r"(\d{9,})-(\d{9,})\.npz")
_FINISHED = re.compile(r"\d{9,}-\d{9,}\.npz|run\.json")


class Parts:
    """The folder ``NAME.parts`` of the output ``NAME``, held by one process at a time.

    ``facts`` say what decides the samples; a folder with other facts is another run's. ``settled`` names the
    facts that the first run settles by itself: they are taken over. ``anew`` forgets what is another run's, or
    damaged; what this run would draw again, bit for bit, stays. Files that are none of ours stay in any case.

    Raises:
        UsageError: the folder holds parts of another run. InputError: they are damaged. MachineError: another
        process holds it, or the machine refuses.
    """

    def __init__(
        self, output: Path, facts: Mapping[str, object], settled: tuple[str, ...] = (), anew: bool = False
    ) -> None:
        self.folder = output.with_name(f"{output.name}.parts")
        with _refusals(self.folder):
            self.folder.mkdir(exist_ok=True)
            self._lock = _locked(self.folder)
            try:
                self._clear(_is_unfinished)
                try:
                    self.facts = self._agreed(dict(facts), settled)
                except (InputError, UsageError):
                    if not anew:
                        raise
                    self._clear(_FINISHED.fullmatch)
                    self.facts = self._agreed(dict(facts), settled)
            except BaseException:
                os.close(self._lock)
                raise

    def _agreed(self, facts: dict[str, object], settled: tuple[str, ...]) -> dict[str, object]:
        file = self.folder / RUN
        if not any(map(_NAME.fullmatch, os.listdir(self.folder))):
            write_text(file, json.dumps(facts, indent=1))
            return facts
        try:
            held = json.loads(file.read_bytes())
            facts |= {name: held[name] for name in settled}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            raise InputError(file, "is damaged", "remove the folder, or begin anew with --force") from None
        for name in [*facts, *held]:
            if facts.get(name) != held.get(name):
                what = f"holds parts of another run, with {name} {held.get(name)} instead of {facts.get(name)}"
                raise UsageError(self.folder, what, "remove the folder, or begin anew with --force")
        for _ in self.blocks():
            pass
        return facts

    @property
    def batch(self) -> int:
        """The size of a batch of the run that began it."""
        batch = self.facts["batch"]
        if not isinstance(batch, int):
            raise InputError(self.folder / RUN, "is damaged", "remove the folder, or begin anew with --force")
        return batch

    @property
    def done(self) -> int:
        """Samples that are there, from the first without a gap."""
        sound = self._sound()
        return sound[-1][1] if sound else 0

    def save(self, start: int, block: Mapping[str, Array]) -> None:
        """Keep a block of samples whose first has the number ``start``."""
        stop = start + len(next(iter(block.values())))
        with whole_file(self.folder / f"{start:09d}-{stop:09d}.npz") as opened:
            np.savez(opened, **block)  # type: ignore[arg-type, unused-ignore]

    def blocks(self) -> Iterator[dict[str, Array]]:
        """Every block, from the first; raises :class:`InputError` for a damaged one."""
        for _, _, file in self._sound():
            try:
                with data_file(file), opened_npz(file) as archive:
                    block = {name: archive[name] for name in archive.files}
            except InputError as error:
                raise InputError(file, error.what, "remove it, or begin anew with --force") from None
            yield block

    def _sound(self) -> list[tuple[int, int, Path]]:
        """(start, stop, file) of the blocks that follow one another from 0."""
        found = [(int(m[1]), int(m[2]), self.folder / m[0]) for name in os.listdir(self.folder)
                 if (m := _NAME.fullmatch(name))]  # fmt: skip
        sound: list[tuple[int, int, Path]] = []
        for part in sorted(found):
            if part[0] == (sound[-1][1] if sound else 0):
                sound.append(part)
        return sound

    def remove(self) -> None:
        """The run is over and its output written, or it has not begun."""
        with suppress(OSError):
            self._clear(_is_unfinished)
            self._clear(_FINISHED.fullmatch)
            (self.folder / LOCK).unlink()
            self.folder.rmdir()

    def _clear(self, wanted: Callable[[str], object]) -> None:
        for name in os.listdir(self.folder):
            if wanted(name):
                (self.folder / name).unlink()

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self._lock)


def _is_unfinished(name: str) -> bool:
    """Whoever began it is gone: it would hold the lock."""
    return is_temporary(name, _FINISHED)


def _locked(folder: Path) -> int:
    """A file descriptor that holds the folder until it is closed."""
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        fix = "wait for it, or give another name with -o"
        raise MachineError(folder, "another process is sampling into it", fix) from None
    return lock


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise machine_error(path, error) from error
