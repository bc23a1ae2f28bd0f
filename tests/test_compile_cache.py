"""How programs are compiled: the library leaves the process's settings alone, and asks for no unknown option."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

import wdport
from tests.make import SETTINGS, make_state, save
from wdport import compile_cache
from wdport.compare.programs import Program
from wdport.compile_cache import FAST_COMPILE, fast_compile, known_options

CALLS = """
import sys, jax
import wdport

def settings():
    return {name: jax.config._read(name) for name in jax.config.values}

before = settings()
checkpoint, port, *whole = sys.argv[1:]
model = wdport.load_model(port)
wdport.sample(model, 1, sampler="euler", steps=2)
wdport.export(model, port + ".stablehlo", force=True)
import wdport.parity.verify as river

class Built(Exception):
    pass

def build_sides(*arguments):
    raise Built

if not whole:
    river.build_sides = build_sides
try:
    wdport.verify(checkpoint, port)
except Built:
    pass
changed = {name: value for name, value in settings().items() if value != before[name]}
print(changed, jax.config.jax_compilation_cache_dir)
"""

VERB = """
import sys, jax
from wdport.cli.main import main
code = main(sys.argv[1:])
print(code, jax.config.jax_compilation_cache_dir)
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = save(tmp_path_factory.mktemp("pair") / "small.ckpt", make_state())
    return str(path), str(wdport.convert(path, values=SETTINGS).output)


def run(code: str, *arguments: str, **environment: str) -> str:
    """In a process that has no cache set; the last line that it prints."""
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**kept, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("whole", ["", pytest.param("whole", marks=[pytest.mark.full])])
def test_the_library_changes_no_setting_of_the_process(pair: tuple[str, str], whole: str) -> None:
    """`verify` up to where the models are built, since it compiles for long without a cache; or to its end."""
    assert run(CALLS, *pair, *whole.split()) == "{} None"


def test_the_command_line_keeps_its_programs(pair: tuple[str, str], tmp_path: Path) -> None:
    given = ["sample", pair[1], "--sampler", "euler", "--steps", "2", "-o", str(tmp_path / "a.npz")]
    assert run(VERB, *given, WDPORT_COMPILE_CACHE=str(tmp_path / "kept")) == f"0 {tmp_path / 'kept'}"


def test_an_option_that_is_unknown_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As jaxlib 0.12 no longer knows one of ours."""
    wanted: dict[str, Any] = {**FAST_COMPILE, "xla_no_such_option": True, "xla_backend_optimization_level": "many"}
    known = known_options(wanted)
    assert set(known) <= set(FAST_COMPILE) - {"xla_backend_optimization_level"}
    assert "xla_llvm_disable_expensive_passes" in known
    assert Program(lambda x: x + 1, wanted)(jax.numpy.ones(2)).tolist() == [2.0, 2.0]
    monkeypatch.setattr(compile_cache, "FAST_COMPILE", wanted)
    assert fast_compile() == known


def test_an_option_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = known_options(FAST_COMPILE)
    monkeypatch.setattr(jax, "jit", None)
    assert known_options(FAST_COMPILE) == known
    assert json.dumps(known)
