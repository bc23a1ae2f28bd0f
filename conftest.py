"""Shared by all tests: the JAX backend, one compile cache, and small checkpoints made once."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import pytest
import torch

FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""XLA compiles programs a fifth faster with these flags. They hold for the test processes alone, not for the commands
that tests start, and not in `make parity` and `make compat`, which set TEST_OPTIMIZED."""

pytest_plugins = ["tests.schemas.held"]
"""What a test makes wdport write is held to its published schema."""

if not os.environ.get("TEST_OPTIMIZED") and "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = FAST
    jax.devices()  # XLA reads the flags here, once
    del os.environ["XLA_FLAGS"]

ROOT = Path(__file__).parent
GOLDEN = ROOT.parent / "shared" / "golden"

# Two test processes with two threads each would wait for one another most of the time.
torch.set_num_threads(1)
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture
def same_compiler() -> dict[str, str]:
    """Environment variables for a process whose results are compared with this one's, bit for bit."""
    return {"XLA_FLAGS": os.environ.get("XLA_FLAGS", FAST if not os.environ.get("TEST_OPTIMIZED") else "")}


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of recordings beside the project; tests that need it skip where it is absent."""
    if not GOLDEN.is_dir():
        pytest.skip("../shared/golden is not here: the recordings of the public implementation")
    return GOLDEN
