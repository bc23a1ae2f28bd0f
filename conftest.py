"""Shared by all tests: the JAX backend, one compile cache, and small checkpoints made once."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import hypothesis
import jax
import pytest
import torch

from tests.command import Cli, Refused
from tests.compiler import compiler_flags

pytest_plugins = ["tests.schemas.held"]
"""What a test makes wdport write is held to its published schema."""

if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = compiler_flags()
    jax.devices()  # XLA reads the flags here, once
    del os.environ["XLA_FLAGS"]

ROOT = Path(__file__).parent
GOLDEN = ROOT.parent / "shared" / "golden"

# Tracing makes millions of objects that live on, through which the collector looks again and again: with these
# thresholds two tests of training took 17.6 s instead of 20.9 s.
gc.set_threshold(50_000, 20, 100)

# Busy machines take longer than Hypothesis allows for an example.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# Two test processes with two threads each would wait for one another most of the time.
torch.set_num_threads(1)
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


MOST_MEMORY = 1500 * 2**20
"""Bytes that a test process may hold before it lets go of compiled programs. Clearing them takes up to a second."""


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs() -> Iterator[None]:
    """Let go of the compiled programs of a module: JAX keeps all of them, 6 GB in a process at the end."""
    yield
    if sys.platform != "linux":
        return
    pages = int(Path("/proc/self/statm").read_text().split()[1])  # resident
    if pages * os.sysconf("SC_PAGESIZE") > MOST_MEMORY:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps freed memory otherwise


@pytest.fixture
def same_compiler() -> dict[str, str]:
    """Environment variables for a process whose results are compared with this one's, bit for bit."""
    return {"XLA_FLAGS": compiler_flags()}


@pytest.fixture
def one_case(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes `verify` compare the first of its cases only, except in tests that `make parity` alone runs."""
    if request.node.get_closest_marker("full"):
        yield
        return
    from tests.families.quick import few_cases

    with few_cases():
        yield


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in this process: see :data:`tests.command.Cli`."""
    from wdport.cli.main import main

    def run(*words: object, code: int = 0) -> pytest.CaptureResult[str]:
        capsys.readouterr()
        ended = main([*map(str, words)])
        shown = capsys.readouterr()
        assert ended == code, (words, shown)
        return shown

    return run


@pytest.fixture
def refused(cli: Cli) -> Refused:
    """Runs a command that is refused: see :data:`tests.command.Refused`."""

    def run(*words: object, says: str, code: int = 2) -> None:
        printed = cli(*words, code=code)
        assert all(line.startswith("  ") for line in printed.out.splitlines())
        assert printed.err.startswith("error: ")
        assert printed.err.count("\n") == 1
        assert says in printed.err

    return run


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small converted model that knows the units of its data."""
    from tests.make import convert_tiny

    return convert_tiny(tmp_path_factory.mktemp("converted"))


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of recordings beside the project; tests that need it skip where it is absent."""
    if not GOLDEN.is_dir():
        pytest.skip("../shared/golden is not here: the recordings of the public implementation")
    return GOLDEN
