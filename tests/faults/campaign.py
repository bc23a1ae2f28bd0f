"""Many faults over every job, in processes forked from this one: ``python -m tests.faults.campaign FOLDER``.

Prints a line of JSON for each kind of fault: how often, how the processes ended, and everything that is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import io
import json
import os
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.faults.jobs import JOBS, Job, prepare, states
from tests.faults.weather import PAGE, Fault, FullDisk, Outcome, Refused, SignalAfter, SignalAt, SizeLimit, forked
from wdport.conversion.load import open_account
from wdport.conversion.manifest_schema import contradiction_of
from wdport.files.manifest_seal import file_sha256

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass
class Tally:
    """What happened under one kind of fault."""

    kind: str
    times: int = 0
    ended: Counter[int] = field(default_factory=Counter)
    torn: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, code: int) -> None:
        self.times += 1
        self.ended[code] += 1

    def line(self) -> str:
        ended = {str(code): count for code, count in sorted(self.ended.items())}
        return json.dumps({"kind": self.kind, "times": self.times, "ended": ended, "torn": self.torn,
                           "wrong": self.wrong})  # fmt: skip


class Trial:
    """One job in a folder of its own: what it writes undisturbed, how long that takes, and in how many steps."""

    def __init__(self, job: Job, base: Path) -> None:
        self.job, self.folder = job, base / job.name.replace(" ", "-")
        self.folder.mkdir()
        self.contents: dict[str, dict[str, bytes]] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            job.act(self.folder, "old")  # in here, so that what is imported is there for all
        self._keep("old")
        done = self.run(SignalAt(signal.SIGTERM, -1))
        if done.code:
            raise RuntimeError(f"{job.name} does not even run: {done}")
        self._keep("new")
        self.steps = done.steps
        self.size = sum(map(len, self.contents["new"].values()))

    def _keep(self, edition: str) -> None:
        self.contents[edition] = {name: (self.folder / name).read_bytes() for name in self.job.outputs}

    def restore(self) -> None:
        for name, data in self.contents["old"].items():
            if (self.folder / name).read_bytes() != data:
                (self.folder / name).write_bytes(data)

    def run(self, fault: Fault, edition: str = "new") -> Outcome:
        return forked(partial(self.job.act, self.folder, edition), fault)

    def under(self, fault: Fault, tally: Tally) -> Outcome:
        """The job over the old files with ``fault``, and the next run after it."""
        self.restore()
        with fault.around(self.folder.parent):
            outcome = self.run(fault)
        tally.add(outcome.code)
        wrong = [*self._endings(fault, outcome), *self._files(fault, outcome, tally)]
        if self._strangers():
            again = self.run(Fault())
            if again.code or self._strangers() or set(states(self.job, self.folder, self.contents)) != {"new"}:
                wrong.append(f"the next run ends with {again.code}, leaves {self._strangers()}: {again.said}")
        tally.wrong += [f"{self.job.name}, {fault}: {each}" for each in wrong]
        for name in self._strangers():
            (self.folder / name).unlink()
        return outcome

    def _endings(self, fault: Fault, outcome: Outcome) -> Iterable[str]:
        """A process ends by the signal that it got, or says in a line why it ends."""
        code, said = outcome.code, outcome.said.strip()
        if code < 0 and not (fault.killed and code == -signal.SIGKILL):
            yield f"it crashed ({code}): {said[-300:]}"
        elif code not in (0, 3, 5, 130, 143, -signal.SIGKILL):
            yield f"it ended with {code}: {said[-300:]}"
        if code > 0 and not re.fullmatch(r"error: [^\n]+", said):
            yield f"it said {said[-400:]!r}"

    def _files(self, fault: Fault, outcome: Outcome, tally: Tally) -> Iterable[str]:
        """Old or new, whole and together; and what is said of them is true."""
        code, said = outcome.code, outcome.said
        found = list(states(self.job, self.folder, self.contents))
        mixed = len(set(found)) > 1
        if set(found) - {"old", "new"}:
            yield f"the outputs are {found}"
        if code == 0 and set(found) != {"new"}:
            yield f"it ended well, and the outputs are {found}"
        if code in (130, 143) and ("written" in said) != ("new" in found):
            yield f"it said {said.strip()!r}, and the outputs are {found}"
        if code == 5 and self.job.paired and ("was written" in said) != ("new" in found):
            yield f"it said {said.strip()!r}, and the outputs are {found}"
        if mixed and self.job.paired:
            tally.torn += 1
            if not fault.killed and not (fault.broken and "was written, but" in said):
                yield f"the pair is torn and it said {said.strip()!r}"
            if not self._is_told():
                yield "the pair is torn, and no reader tells"
        if not fault.killed and self._strangers() and "kept" not in said and not self.job.name.startswith("sample"):
            yield f"{self._strangers()} are left"

    def _is_told(self) -> bool:
        path = self.folder / self.job.outputs[0]
        account, _ = open_account(path)
        return account is not None and contradiction_of(path, account, file_sha256(path)) != ""

    def _strangers(self) -> list[str]:
        return sorted(set(os.listdir(self.folder)) - set(self.job.outputs))


def kills(trial: Trial, chance: random.Random, count: int) -> Tally:
    """Half of them at the last steps, where files get their names, a quarter anywhere, a quarter at any time."""
    tally = Tally(f"signals, {trial.job.name}")
    last = min(trial.steps, 60)
    for index in range(count):
        number = SIGNALS[index % 3]
        step = trial.steps - index // 2 % last if index % 2 else chance.randint(1, trial.steps)
        late = index % 4 == 2
        trial.under(SignalAfter(number, chance.uniform(0.0, 0.5)) if late else SignalAt(number, step), tally)
    return tally


def size_limits(trial: Trial, stride: int) -> Tally:
    """Every size that the largest file passes through, in steps of ``stride`` bytes."""
    tally = Tally(f"file size limits, {trial.job.name}")
    for size in range(0, max(map(len, trial.contents["new"].values())), stride):
        if not trial.under(SizeLimit(size), tally).code:
            tally.wrong.append(f"{trial.job.name}: it does not meet the limit of {size}")
    return tally


def refusals(trial: Trial, stride: int) -> Tally:
    """Each ``stride``-th of our own calls is refused, and each of the last, where files get their names: once, and
    from then on."""
    tally = Tally(f"refused calls, {trial.job.name}")
    steps = trial.run(Refused(errno.EIO, -1)).steps
    for step in sorted({*range(1, 7), *range(1, steps, stride), *range(max(1, steps - 12), steps + 1)}):
        for fault in (Refused(errno.EIO, step), Refused(errno.ENOSPC, step, lasting=True)):
            trial.under(fault, tally)
    return tally


def full_disks(trial: Trial, stride: int) -> Tally:
    """A file system of its own (the folder lies on one) with every number of free pages."""
    tally = Tally(f"full disks, {trial.job.name}")
    for free in range(0, 2 * trial.size // PAGE + 20, stride):
        trial.under(FullDisk(free), tally)
    return tally


def races(trial: Trial, count: int) -> Tally:
    """Two writers of one output, begun at nearly one time: every file is of one of them, and a pair of the same."""
    tally = Tally(f"races, {trial.job.name}")
    for _ in range(count):
        trial.restore()
        process = os.fork()
        if not process:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os._exit(trial.job.act(trial.folder, "old"))
        forked(partial(trial.job.act, trial.folder, "new"), SignalAt(signal.SIGTERM, -1))
        _, status = os.waitpid(process, 0)
        tally.add(os.waitstatus_to_exitcode(status))
        found = set(states(trial.job, trial.folder, trial.contents))
        torn = trial.job.paired and len(found) != 1
        if torn or found - {"old", "new"} or trial._strangers():
            tally.wrong.append(f"{trial.job.name}: {found}, left {trial._strangers()}")
    return tally


def main() -> None:
    """One campaign."""
    parser = arguments("kills", "races", "size-limits", "refusals", "full-disks")
    parser.add_argument("--jobs", default=",".join(JOBS))
    given = parser.parse_args()
    prepare(given.folder)
    for name in given.jobs.split(","):
        trial = Trial(JOBS[name], given.folder)
        gc.freeze()
        chance = random.Random(f"{given.seed} {trial.job.name}")
        report(given, {"kills": partial(kills, trial, chance), "races": partial(races, trial),
                       "size_limits": partial(size_limits, trial), "refusals": partial(refusals, trial),
                       "full_disks": partial(full_disks, trial)})  # fmt: skip


def arguments(*kinds: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in kinds:
        parser.add_argument(f"--{name}", type=int, default=0, help="how many; of those after the races, the stride")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def report(given: argparse.Namespace, campaigns: dict[str, Callable[[int], Tally]]) -> None:
    """Run those that are asked for, and print a line of each."""
    for name, campaign in campaigns.items():
        if count := getattr(given, name):
            sys.stdout.write(f"{campaign(count).line()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
