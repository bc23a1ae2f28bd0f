"""Under any weather an output is the old one or the new one, whole; a pair is of one edition, or it is told; nothing is
left after the next run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import make_files
from tests.faults.jobs import JOBS
from tests.make import SETTINGS

TMPFS = """
import subprocess, sys
folder, *command = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], check=True)
sys.exit(subprocess.run([sys.executable, *command, folder]).returncode)
"""


def campaign(folder: Path, *options: str, small_disk: bool = False, of: str = "campaign") -> list[dict[str, Any]]:
    """The lines of a campaign; each fails by what is wrong in it."""
    command = ["-m", f"tests.faults.{of}", *options]
    if small_disk:  # in a mount namespace of its own, where the machine allows one
        command = ["unshare", "-m", sys.executable, "-c", TMPFS, str(folder), *command]
    else:
        command = [sys.executable, *command, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        sys.stdout.write(f"{ {**line, 'wrong': len(line['wrong'])} }\n")
    assert [wrong for line in lines for wrong in line["wrong"]] == []
    return lines


def test_a_few_of_everything(tmp_path: Path) -> None:
    jobs = "convert keras,sample npz,record"
    found = campaign(tmp_path, "--jobs", jobs, "--kills", "6", "--size-limits", "250000")
    assert len(found) == 2 * len(jobs.split(","))
    assert all(line["times"] for line in found)


@pytest.mark.full
@pytest.mark.parametrize("job", JOBS)
def test_signals(tmp_path: Path, job: str) -> None:
    (found,) = campaign(tmp_path, "--jobs", job, "--kills", "100")
    assert sum(found["ended"].values()) == 100


@pytest.mark.full
@pytest.mark.parametrize("options", [("--kills", "60"), ("--races", "20"), ("--size-limits", "8192")])
def test_training(tmp_path: Path, options: tuple[str, str]) -> None:
    """However a run is interrupted, the resumed one has the losses and weights of an uninterrupted one."""
    campaign(tmp_path, *options, of="training")


@pytest.mark.full
@pytest.mark.parametrize("job", JOBS)
def test_races(tmp_path: Path, job: str) -> None:
    (found,) = campaign(tmp_path, "--jobs", job, "--races", "30")
    assert found["times"] == 30
    assert set(found["ended"]) <= ({"0", "5"} if job.startswith("sample") else {"0"})


@pytest.mark.full
@pytest.mark.parametrize("job", JOBS)
def test_refusals(tmp_path: Path, job: str) -> None:
    _, refused = campaign(tmp_path, "--jobs", job, "--size-limits", "8192", "--refusals", "40")
    assert job != "verify reports" or refused["ended"]["5"] > 20


@pytest.mark.full
@pytest.mark.parametrize("job", [*JOBS, "train"])
def test_full_disks(tmp_path: Path, job: str) -> None:
    """A real one, with every number of free pages."""
    allowed = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True)
    if allowed.returncode:
        pytest.skip("no file system can be mounted here")
    options = ("--full-disks", "4") if job == "train" else ("--jobs", job, "--full-disks", "1")
    (found,) = campaign(tmp_path, *options, small_disk=True, of="training" if job == "train" else "campaign")
    assert set(found["ended"]) == {"0", "5"}


WHOLE = {
    "convert": (["convert", "a.ckpt", "-o", "x.keras"], ["x.keras", "x.keras.wdport.json"]),
    "sample": (["sample", "a.keras", "-n", "6", "--chunk", "2", "--sampler", "ddim", "--steps", "2", "-o", "x.npz"],
               ["x.npz"]),
    "record": (["record", "tests.user_model:small", "a.ckpt", "-o", "x.npz"], ["x.npz"]),
    "export": (["export", "a.keras", "-o", "x.stablehlo"], ["x.stablehlo"]),
    "encode": (["encode", "v.keras", "video.npy", "-o", "x.npz", "--json", "x.json"], ["x.npz", "x.json"]),
    "decode": (["decode", "v.keras", "latents.npz", "-o", "x.npy"], ["x.npy"]),
    "generate": (["generate", "m.keras", "--prompt-ids", "ids.json", "-o", "x.npz"], ["x.npz"]),
    "evaluate": (["evaluate", "s.npz", "--data", "d.csv", "--metrics", "sliced-wasserstein", "--json", "x.json",
                  "--html", "x.html"], ["x.json", "x.html"]),
    "verify": (["verify", "a.ckpt", "a.keras", "--json", "x.json", "--html", "x.html"], ["x.json", "x.html"]),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("verb", WHOLE)
def test_whole_commands(tmp_path: Path, verb: str) -> None:
    """From outside, at any time: at start, while computing, while writing, at the end."""
    words, outputs = WHOLE[verb]
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    make_files(tmp_path)
    if verb == "convert":
        words = [*words, *settings]
    began = time.monotonic()
    _run(words, tmp_path)
    took = time.monotonic() - began
    whole = sorted(os.listdir(tmp_path))
    chance = random.Random(verb)
    for index in range(9):
        for name in outputs:
            (tmp_path / name).unlink(missing_ok=True)
        with subprocess.Popen(_command(words), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, env=_environment()) as process:  # fmt: skip
            time.sleep(chance.uniform(0.2, 1.0) * took)
            number = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[index % 3]
            process.send_signal(number)
            said = process.communicate(timeout=120)[1]
        assert process.returncode in (0, -number, 128 + number), said
        if number == signal.SIGKILL or "kept" in said:
            _run([*words, "--force"], tmp_path)
            assert sorted(os.listdir(tmp_path)) == whole
        assert set(os.listdir(tmp_path)) <= set(whole)


def _command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "wdport", *words]


def _environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def _run(words: list[str], folder: Path) -> None:
    subprocess.run(_command(words), cwd=folder, check=True, capture_output=True, env=_environment())
