"""A model's sizes in, the number of samples per batch that fits into memory out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

CPU_BATCH = 64
"""On two cores a batch of 64 takes 2.1 ms per sample and step at the released size, one of 8 takes 3.5, and the
matrix products alone 1.5; larger ones save nothing."""

DEVICE_BATCH = 1024


def auto_batch(config: Any, dtype: str, count: int, memories: int = 1) -> int:
    """Samples per batch, which ``memories`` such as this one share: what fits into half of what is free, at most
    what is of use."""
    most = CPU_BATCH if jax.default_backend() == "cpu" else DEVICE_BATCH
    fitting = free_bytes() // 2 // sample_bytes(config, dtype)
    return max(1, min(count, memories * min(most, fitting)))


def sample_bytes(config: Any, dtype: str) -> int:
    """Memory that one sample takes at most while the network runs: every token's widest activations and the
    attention weights of the longest level, generously."""
    lengths, widths = config.level_lengths, config.widths
    tokens: int = 16 * sum(length * width for length, width in zip(lengths, widths, strict=True))
    weights: int = 3 * config.num_heads * max(lengths) ** 2
    return (8 if dtype == "float64" else 4) * (tokens + weights)


def free_bytes() -> int:
    """Memory that is free on the device, or on the machine and within its control group for a CPU."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in statistics:
        return int(statistics["bytes_limit"] - statistics.get("bytes_in_use", 0))
    known = [free for free in (_machine(), _group()) if free is not None]
    return min(known, default=1 << 30)


def _machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _group() -> int | None:
    """What the control group of a container leaves, if it has a limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        return int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # no such group, or no limit
        return None
