"""Signals at random instants of `wdport train`, in processes forked from this one: ``python -m tests.faults.training
FOLDER``.

Prints a line of JSON for each kind of fault, as :mod:`tests.faults.campaign` does. A run that was interrupted, several
times perhaps, has the metrics and the weights of an uninterrupted one; a command that differs in anything is refused,
and two at once end with one whole run and one refusal.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from tests.faults.campaign import SIGNALS, Tally, arguments, report
from tests.faults.weather import PAGE, Fault, FullDisk, Outcome, SignalAfter, SizeLimit, forked
from wdport.cli.main import main as wdport

POINTS = Path(__file__).parents[2] / "examples" / "points"
PREPARE = """
import numpy as np, torch, wdport
from net import MLP
for seed, name in enumerate("ab"):
    torch.manual_seed(seed)
    torch.save(MLP().state_dict(), f"{name}.pt")
    wdport.convert(f"{name}.pt", f"{name}.keras", mapping="flow.yaml")
    np.save(f"{name}.npy", np.random.default_rng(seed).normal([4.0, -3.0], 0.1, size=(3000, 2)).astype(np.float32))
"""
WORDS = ("train", "a.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "out", "--epochs", "6",
         "--batch-size", "64", "--save-every", "10", "--ema", "0.9", "--lr", "0.001")  # fmt: skip
OTHERS = (("a.npy", "b.npy"), ("a.keras", "b.keras"), ("64", "32"), ("0.9", "0.8"), ("0.001", "0.002"),
          ("--ema", "--energy"), ("--lr", "--clip"))  # fmt: skip
"""Words of which one stands for another in a command that is refused."""

FINISHED = ("state.npz", "run.json", "metrics.csv", "model.keras", "model.ema.keras")


def run(words: tuple[str, ...], fault: Fault) -> Outcome:
    with fault.around(Path()):
        return forked(partial(wdport, list(words)), fault, 300.0)


def result(folder: Path) -> tuple[str, ...]:
    """The metrics without times, and the digests of all weights of a finished run."""
    with (folder / "metrics.csv").open(newline="") as file:
        rows = [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]
    return (str(rows), *(weights(folder / name) for name in FINISHED if name.endswith(".keras")))


def weights(path: Path) -> str:
    """A digest of every variable of a model that Keras saved, which adds a date to the file."""
    found: dict[str, str] = {}

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = hashlib.sha256(np.asarray(item[()]).tobytes()).hexdigest()

    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        file.visititems(add)
    if not found:
        raise ValueError(f"{path} has no variables")
    return str(sorted(found.items()))


def strangers() -> list[str]:
    """What a finished run does not leave."""
    return sorted(set(os.listdir("out")) - set(FINISHED)) + [name for name in os.listdir() if name.startswith(".")]


def wrong_endings(fault: Fault, outcome: Outcome) -> Iterator[str]:
    said = outcome.said.strip()
    if outcome.code not in (0, 5, 130, 143, -signal.SIGKILL):
        yield f"{fault}: it ended with {outcome.code}: {said[-300:]}"
    if outcome.code > 0 and len([line for line in said.splitlines() if line.startswith("error: ")]) != 1:
        yield f"{fault}: it said {said[-300:]!r}"


def kills(truth: tuple[str, ...], seconds: float, chance: random.Random, count: int) -> Tally:
    """Runs that are interrupted until they end, with a command that is refused in between."""
    tally = Tally("signals, train")
    while tally.times < count:
        shutil.rmtree("out", ignore_errors=True)
        for _ in range(30):
            fault = SignalAfter(SIGNALS[tally.times % 3], chance.uniform(0.0, 1.1) * seconds)
            ended = run(WORDS, fault)
            tally.add(ended.code)
            tally.wrong += wrong_endings(fault, ended)
            if ended.code == 0:
                break
            if Path("out/state.npz").exists() and tally.times % 2:
                tally.wrong += refused(chance)
        else:
            tally.wrong += [f"the last run: {each}" for each in wrong_endings(Fault(), run(WORDS, Fault()))]
        if result(Path("out")) != truth:
            tally.wrong.append("the resumed run differs from the uninterrupted one")
        tally.wrong += [f"{each} is left" for each in strangers()]
    return tally


def refused(chance: random.Random) -> Iterator[str]:
    """A command that differs in one word leaves the run as it is."""
    old, new = chance.choice(OTHERS)
    words = tuple(new if word == old else word for word in WORDS)
    before = {path.name: path.read_bytes() for path in Path("out").iterdir() if path.name in FINISHED}
    ended = run(words, Fault())
    if ended.code != 2:
        yield f"with {new} in place of {old} it ended with {ended.code}: {ended.said[-300:]}"
    if {path.name: path.read_bytes() for path in Path("out").iterdir() if path.name in FINISHED} != before:
        yield f"with {new} in place of {old} it changed the run"


def races(truth: tuple[str, ...], seconds: float, chance: random.Random, count: int) -> Tally:
    """Two processes of one run, begun at about one time."""
    tally = Tally("races, train")
    for _ in range(count):
        shutil.rmtree("out", ignore_errors=True)
        process = os.fork()
        if not process:
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            os._exit(wdport(list(WORDS)))
        time.sleep(chance.uniform(0.0, 0.3) * seconds)
        one = run(WORDS, Fault())
        other = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        tally.add(one.code)
        if sorted((one.code, other)) not in ([0, 5], [0, 0]):
            tally.wrong.append(f"they ended with {one.code} and {other}: {one.said[-300:]}")
        if result(Path("out")) != truth or strangers():
            tally.wrong.append(f"the run differs, or leaves {strangers()}")
    return tally


def refusals(kind: str, fault: Callable[[int], Fault], largest: int, truth: tuple[str, ...], stride: int) -> Tally:
    """A fault of every size up to the largest; without it, the same command then ends the run."""
    tally = Tally(f"{kind}, train")
    for each in map(fault, range(0, largest, stride)):
        shutil.rmtree("out", ignore_errors=True)
        ended = run(WORDS, each)
        tally.add(ended.code)
        tally.wrong += wrong_endings(each, ended)
        if kind == "file size limits" and not ended.code:
            tally.wrong.append(f"{each}: it does not meet the limit")
        if run(WORDS, Fault()).code or result(Path("out")) != truth or strangers():
            tally.wrong.append(f"{each}: the next run differs, or leaves {strangers()}")
    return tally


def main() -> None:
    """One campaign."""
    given = arguments("kills", "races", "size-limits", "full-disks").parse_args()
    root = str(Path(__file__).parents[2])
    shutil.copytree(POINTS, given.folder, dirs_exist_ok=True)
    os.chdir(given.folder)
    sys.path[:0] = [os.getcwd(), root]
    subprocess.run([sys.executable, "-c", PREPARE], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), root])})  # fmt: skip

    for _ in range(2):  # the second one finds compiled programs
        shutil.rmtree("out", ignore_errors=True)
        began = time.monotonic()
        whole = run(WORDS, Fault())
        seconds = time.monotonic() - began
        if whole.code:
            raise RuntimeError(f"train does not even run: {whole}")
    truth, chance = result(Path("out")), random.Random(given.seed)
    sizes = [path.stat().st_size for path in Path("out").iterdir()]
    report(given, {
        "size_limits": partial(refusals, "file size limits", SizeLimit, max(sizes), truth),
        "full_disks": partial(refusals, "full disks", FullDisk, 2 * sum(sizes) // PAGE + 20, truth),
        "kills": partial(kills, truth, seconds, chance), "races": partial(races, truth, seconds, chance),
    })  # fmt: skip


if __name__ == "__main__":
    main()
