"""How XLA compiles the programs of tests."""

from __future__ import annotations

import os

FAST = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    # These two took compiling three modules of tests from 49.5 to 31.5 s. Two test processes leave no core for the
    # threads among which XLA splits a program.
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
"""With these flags, XLA compiles faster. They hold for the test processes and those that train or sample with them, not
for the commands that tests start, and not in `make parity` and `make compat`, which set TEST_OPTIMIZED."""


def compiler_flags() -> str:
    """The value of XLA_FLAGS: that of the user, if any."""
    return os.environ.get("XLA_FLAGS", "" if os.environ.get("TEST_OPTIMIZED") else " ".join(FAST))
