"""How programs are compiled: the library leaves the process's settings alone, and asks for no unknown option."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax._src import lru_cache

import wdport
from tests.make import TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from tests.uses.training.points import points
from wdport.base import jax_settings as compile_cache
from wdport.base.jax_settings import FAST_COMPILE, fast_compile, known_options
from wdport.compare.programs import CompiledProgram

__all__ = ["points"]

VERB = """
import sys
from wdport.cli.main import main
code = main(sys.argv[1:])
import jax
print(code, jax.config.jax_compilation_cache_dir)
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = save(tmp_path_factory.mktemp("pair") / "small.ckpt", make_state(TWO_LEVELS))
    return str(path), str(wdport.convert(path, values=TWO_LEVELS_SETTINGS).output)


def without_jaxs() -> dict[str, str]:
    """The environment without JAX's own cache."""
    return {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}


def run(code: str, *arguments: str, **environment: str) -> str:
    """In a process that has no cache set; the last line that it prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_jaxs() | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def open_to_all(folder: Path) -> Path:
    """A folder that every user may write to."""
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    return folder


def settings() -> dict[str, Any]:
    return {name: jax.config._read(name) for name in jax.config.values}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=[pytest.mark.full])])
def test_the_library_changes_no_setting_of_the_process(
    pair: tuple[str, str], whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` up to where the models are built, or to its end."""

    class Built(Exception):
        pass

    def build_sides(*_: Any) -> None:
        raise Built

    before = settings()
    model = wdport.load_model(pair[1])
    wdport.sample(model, 1, sampler="euler", steps=2)
    wdport.export(model, tmp_path / "a.stablehlo")
    if not whole:
        monkeypatch.setattr("wdport.parity.run_gates.build_sides", build_sides)
    with nullcontext() if whole else pytest.raises(Built):
        wdport.verify(*pair)
    assert settings() == before


def test_the_command_line_keeps_its_programs(pair: tuple[str, str], tmp_path: Path) -> None:
    given = ["sample", pair[1], "--sampler", "heun", "--steps", "2", "-o", str(tmp_path / "a.npz")]
    assert run(VERB, *given, WDPORT_COMPILE_CACHE=str(tmp_path / "kept")) == f"0 {tmp_path / 'kept'}"


@pytest.mark.full
def test_an_unsafe_cache_is_not_used_by_a_verb_that_builds_a_model_first(points: Any, tmp_path: Path) -> None:
    """`train` builds a user's model, which compiles programs, before it needs the cache itself."""
    folder = open_to_all(tmp_path / "cache")
    np.save("states.npy", np.zeros((64, 2), np.float32))
    train = ["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "out", "--batch-size", "16",
             "--lr", "0.01"]  # fmt: skip
    other = tmp_path / "other"
    environment = {**without_jaxs(), "JAX_COMPILATION_CACHE_DIR": str(folder), "XDG_CACHE_HOME": str(other)}
    done = subprocess.run([sys.executable, "-m", "wdport", *train], capture_output=True, text=True, check=True,
                          env=environment)  # fmt: skip
    note = f"note: JAX_COMPILATION_CACHE_DIR={folder} may be written to by other users: it is not used\n"
    assert done.stderr.startswith(note)
    assert list(folder.iterdir()) == []
    assert (other / "wdport" / "compiled").is_dir(), "in its place, the usual one is used"


def test_an_unsafe_cache_that_jax_has_opened_is_closed(tmp_path: Path) -> None:
    """As in a process that imports JAX, and compiles, before it runs a command."""
    folder = open_to_all(tmp_path / "cache")
    code = """
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: x + 1)(1)
before = len(list(__import__("pathlib").Path(jax.config.jax_compilation_cache_dir).iterdir()))
from wdport.base.jax_settings import Unusable, leave_unsafe_cache
try:
    leave_unsafe_cache()
except Unusable:
    jax.jit(lambda x: x - 1)(1)
    print(before, jax.config.jax_compilation_cache_dir)
"""
    said = run(code, JAX_COMPILATION_CACHE_DIR=str(folder))
    assert said == f"{len(list(folder.iterdir()))} None"
    assert not said.startswith("0")


def test_a_cache_that_others_can_write_to_is_not_used(pair: tuple[str, str], tmp_path: Path) -> None:
    """It holds machine code, which would run as this user. Programs are compiled all the same."""
    folder = open_to_all(tmp_path / "compiled")
    given = ["sample", pair[1], "--sampler", "heun", "--steps", "2", "-o", f"{pair[1]}.npz", "--force"]
    done = subprocess.run([sys.executable, "-c", VERB, *given], capture_output=True, text=True, check=True,
                          env={**without_jaxs(), compile_cache.VARIABLE: str(folder)})  # fmt: skip
    note = f"note: {compile_cache.VARIABLE}={folder} may be written to by other users: it is not used\n"
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0 None", note)
    assert not any(folder.iterdir())


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process has none, nor a variable that names one; none may be in use at the end."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.delenv(compile_cache.VARIABLE, raising=False)
    try:
        yield
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_the_usual_cache_is_left_without_a_word(
    no_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody named it."""
    open_to_all(tmp_path / "wdport" / "compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compile_cache.use_compile_cache() is None


def test_a_cache_that_others_can_replace_is_not_used(
    no_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wdport" / "compiled"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o777)
    monkeypatch.setenv(compile_cache.VARIABLE, str(folder))
    with pytest.raises(
        compile_cache.Unusable, match=f"can be replaced by other users, who may write to {folder.parent}"
    ):
        compile_cache.use_compile_cache()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_cache_of_another_user_is_not_used(no_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    os.chown(tmp_path, 12345, 12345)  # whoever has the folder around may give parts of a run, but no machine code
    monkeypatch.setenv(compile_cache.VARIABLE, str(folder))
    with pytest.raises(compile_cache.Unusable) as refused:
        compile_cache.use_compile_cache()
    assert str(refused.value) == f"{compile_cache.VARIABLE}={folder} belongs to another user (id 12345)"


@pytest.mark.parametrize("name", ["a file", "no folder/b", "zero\0byte"])
def test_a_cache_that_cannot_be_made(
    no_cache: None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("mine")
    (tmp_path / "no folder").write_text("mine")
    monkeypatch.setattr(os, "environ", {**os.environ, compile_cache.VARIABLE: str(tmp_path / name)})
    with pytest.raises(compile_cache.Unusable, match="cannot be created"):
        compile_cache.use_compile_cache()
    assert (tmp_path / "a file").read_text() == "mine"


def test_an_option_that_is_unknown_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As jaxlib 0.12 no longer knows one of ours."""
    wanted: dict[str, Any] = {**FAST_COMPILE, "xla_no_such_option": True, "xla_backend_optimization_level": "many"}
    known = known_options(wanted)
    assert set(known) <= set(FAST_COMPILE) - {"xla_backend_optimization_level"}
    assert "xla_llvm_disable_expensive_passes" in known
    assert CompiledProgram(lambda x: x + 1, wanted)(jax.numpy.ones(2)).tolist() == [2.0, 2.0]
    monkeypatch.setattr(compile_cache, "FAST_COMPILE", wanted)
    assert fast_compile() == known


def test_an_option_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = known_options(FAST_COMPILE)
    monkeypatch.setattr(jax, "jit", None)
    assert known_options(FAST_COMPILE) == known
    assert json.dumps(known)


def test_a_folder_with_files_that_would_be_evicted_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my-cache").write_text("mine")
    assert compile_cache._foreign(folder) == "has my-cache, which is not a compiled program"
    (folder / "my-cache").rename(folder / f"jit_f-{'0' * 64}-cache")
    assert compile_cache._foreign(folder) is None


def test_the_size_of_the_folder_is_looked_at_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private part of JAX is replaced: this fails where a release of JAX names it otherwise."""
    looked: list[int] = []
    monkeypatch.setattr(
        lru_cache.LRUCache, "_evict_if_needed", lambda self, *, additional_size=0: looked.append(additional_size)
    )
    compile_cache._evict_rarely.__wrapped__()
    folder = lru_cache.LRUCache(str(tmp_path), max_size=1 << 20)
    for size in range(2 * compile_cache.PROGRAMS_BETWEEN + 1):
        folder.put(f"program{size}", bytes(size))
    assert looked == [0, compile_cache.PROGRAMS_BETWEEN, 2 * compile_cache.PROGRAMS_BETWEEN]
