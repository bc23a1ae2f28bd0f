"""Tab completion as a real bash, and zsh and fish where they are installed, get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.cli.verbs import VERBS
from wdport.cli.completion import CHECKPOINTS, VARIABLE, matching
from wdport.cli.execute import group
from wdport.uses.cli.model_inputs import SAMPLERS
from wdport.uses.diffusion.flow import SAMPLERS as FLOW
from wdport.uses.diffusion.noise_levels import LEVEL_CLASSES, NoiseLevels
from wdport.uses.diffusion.sampler_updates import SAMPLERS as PLANS

ROOT = Path(__file__).parents[2]

# What is typed up to the cursor; what is offered.
OFFERED: dict[str, list[str]] = {
    "wdport con": ["convert"],
    "wdport map e": ["explain"],
    "wdport convert --str": ["--strict"],
    "wdport sample good.keras --sampler ddi": ["ddim", "ddim-textbook"],
    "wdport convert a --dtype=b": ["bfloat16"],
    "wdport convert g": ["good.ckpt", "good.safetensors"],
    "wdport sample g": ["good.keras", "good.safetensors"],
    "wdport verify a b --policy ": ["more files", "parity.toml"],
    "wdport convert a --config t": ["train.yaml"],
    "wdport record m:f g": ["good.ckpt", "good.safetensors"],
    "wdport map explain NAME g": ["good.ckpt", "good.keras", "good.safetensors"],
    "wdport verify a b --repro ": ["more files"],
    "wdport export a --platforms cpu,": ["cpu,cuda", "cpu,rocm", "cpu,tpu"],
    "wdport selftest --family u": ["unet2d"],
    "wdport inspect a --json ": ["more files", "result.json"],
    "wdport sample a --known s": ["series.csv"],
    "wdport convert a --data s": ["series.arff", "series.csv"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    good = ("good.ckpt", "good.keras", "good.safetensors", ".hidden.ckpt")
    for name in (*good, "parity.toml", "train.yaml", "result.json", "series.arff", "series.csv"):
        (tmp_path / name).touch()
    (tmp_path / "more files").mkdir()
    (tmp_path / "more files" / "deep.pt").touch()
    program = tmp_path / ".bin" / "wdport"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m wdport "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_file_names(folder: Path) -> None:
    assert matching("", CHECKPOINTS) == ["good.ckpt", "good.safetensors", "more files/"]
    assert matching("more files/", CHECKPOINTS) == ["more files/deep.pt"]
    assert matching(".h", CHECKPOINTS) == [".hidden.ckpt"]
    assert matching("", ()) == ["good.ckpt", "good.keras", "good.safetensors", "more files/", "parity.toml",
                                "result.json", "series.arff", "series.csv", "train.yaml"]  # fmt: skip
    assert matching("none/", ()) == []


def test_the_samplers_are_those_of_all_families() -> None:
    levels = [NoiseLevels.from_fields(kind, values).own for kind, values in LEVEL_CLASSES.items()]
    assert set(SAMPLERS) == {*PLANS, *FLOW}.union(*levels)


def in_bash(line: str) -> list[str]:
    """As bash splits the line: at spaces, and around an ``=``."""
    words = line.replace("=", " = ").split(" ")
    script = f"""
eval "$({VARIABLE}=bash_source wdport)"
COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
_wdport_completion wdport
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    return [name.rstrip("/") for name in done.stdout.splitlines()]  # compopt, which marks folders, needs a terminal


@pytest.mark.parametrize("line", OFFERED)
def test_what_is_offered(folder: Path, line: str) -> None:
    words = line.split(" ")
    found = ShellComplete(group, {}, "wdport", VARIABLE).get_completions(words[1:-1], words[-1])
    assert [item.value.rstrip("/") for item in found] == OFFERED[line]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize("line", list(OFFERED)[4:9:2])
def test_bash(folder: Path, line: str) -> None:
    assert in_bash(line) == OFFERED[line]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize("line", list(OFFERED)[4:8:3])
def test_fish(folder: Path, line: str) -> None:
    """Which replaces the whole word, and marks folders with a slash."""
    script = f"{VARIABLE}=fish_source wdport | source; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True)
    before = line.rpartition(" ")[2].rpartition("=")
    expected = [f"{before[0]}{before[1]}{name}" + "/" * (name == "more files") for name in OFFERED[line]]
    assert [each.partition("\t")[0] for each in done.stdout.splitlines()] == expected


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_reads_its_script(folder: Path) -> None:
    """What it does when Tab is pressed takes a terminal; here its functions stand in for that."""
    script = f"""
compdef() {{ :; }}; compadd() {{ print -r -- "${{(@P)@[-1]}}"; }}; _describe() {{ print -r -- "${{(@P)3}}"; }}
eval "$({VARIABLE}=zsh_source wdport)"
words=(wdport sample good.keras --sampler ddi); CURRENT=5
_wdport_completion
"""
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ddim", "ddim-textbook"]


def test_every_file_has_a_kind() -> None:
    """An option that takes a file completes it."""
    plain = [f"{verb} {each.opts[0]}" for verb, command in VERBS.items() for each in command.params
             if "FILE" in (each.metavar or "") and each.type.name == "text"]  # fmt: skip
    assert plain == ["sample --scale", "sample --condition", "evaluate --scale"]  # which also take numbers
