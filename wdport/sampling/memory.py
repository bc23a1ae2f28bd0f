"""A model's sizes in, the number of samples per batch that fits into memory out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jax

CPU_BATCH = 64
"""On two cores a batch of 64 takes 2.1 ms per sample and step at the released size, one of 8 takes 3.5, and the
matrix products alone 1.5; larger ones save nothing."""

DEVICE_BATCH = 1024

SMALL, SMALL_BATCH = 1 << 19, 4096
"""Numbers of a batch of a small model, such as one of points, whose calls cost more than its arithmetic."""


def auto_batch(numbers: int, dtype: str, count: int, memories: int = 1) -> int:
    """Samples per batch, which ``memories`` such as this one share: what fits into half of what is free, at most
    what is of use. A sample takes so many ``numbers`` of ``dtype`` while the network runs."""
    most = max(CPU_BATCH, min(SMALL_BATCH, SMALL // numbers)) if jax.default_backend() == "cpu" else DEVICE_BATCH
    fitting = free_bytes() // 2 // sample_bytes(numbers, dtype)
    return max(1, min(count, memories * min(most, fitting)))


def sample_bytes(numbers: int, dtype: str) -> int:
    """Memory that one sample takes at most while the network runs."""
    return (8 if dtype == "float64" else 4) * numbers


def free_bytes() -> int:
    """Memory that is free on the device, or on the machine and within its control groups for a CPU."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in statistics:
        return int(statistics["bytes_limit"] - statistics.get("bytes_in_use", 0))
    known = [free for free in (_machine_bytes(), group_bytes()) if free is not None]
    return min(known, default=1 << 30)


def _machine_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def group_bytes(root: Path = Path("/")) -> int | None:
    """What the limits of this process's control groups leave, those of containers and batch systems among them.

    Files that the system keeps in memory count as used there, but those not lately read make room: without that, a
    container that has read large files would look full. None without a limit. ``root`` is where proc and sys are.
    """
    found: list[int] = []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                found += _limits(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
                found += _limits(root / "sys/fs/cgroup/memory", path, *names)
    return min(found, default=None)


def _limits(mount: Path, path: str, limit: str, used: str, cached: str) -> Iterator[int]:
    """What is left in a group and in each one around it; in a container the path may be the machine's, unseen here."""
    own = mount / path.lstrip("/")
    for folder in (own, *own.parents):
        if not folder.is_relative_to(mount):
            return
        with suppress(OSError, ValueError, KeyError):  # no such group, or no limit
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            taken = int((folder / used).read_text()) - int(statistics[cached])
            yield max(0, int((folder / limit).read_text()) - taken)
