"""Choose a batch size that fits into memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jax

from wdport.platforms import physical_bytes

CPU_BATCH = 64
"""On two cores a batch of 64 takes 2.1 ms per sample and step at the released size, one of 8 takes 3.5, and the
matrix products alone 1.5; larger batches save nothing."""

DEVICE_BATCH = 1024

SMALL, SMALL_BATCH = 1 << 19, 4096
"""Numbers of a batch of a small model, such as one of points, whose calls cost more than its arithmetic."""


def auto_batch(numbers: int, dtype: str, count: int, memories: int = 1) -> int:
    """Samples per batch, shared by ``memories`` such as this one: as many as fit into half of the free memory, up to
    the largest useful batch. A sample takes ``numbers`` values of ``dtype`` while the network runs."""
    largest = max(CPU_BATCH, min(SMALL_BATCH, SMALL // numbers)) if jax.default_backend() == "cpu" else DEVICE_BATCH
    fitting = free_bytes() // 2 // sample_bytes(numbers, dtype)
    return max(1, min(count, memories * min(largest, fitting)))


def sample_bytes(numbers: int, dtype: str) -> int:
    """Upper bound of the memory of one sample while the network runs."""
    return (8 if dtype == "float64" else 4) * numbers


def free_bytes() -> int:
    """Free memory of the device, or of the machine and its control groups for a CPU."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in statistics:
        return int(statistics["bytes_limit"] - statistics.get("bytes_in_use", 0))
    limits = [free for free in (_machine_bytes(), group_bytes()) if free is not None]
    return min(limits, default=1 << 30)


def _machine_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        total = physical_bytes()  # macOS reports no more
        return None if total is None else total // 2


def group_bytes(root: Path = Path("/")) -> int | None:
    """Free memory within the limits of this process's control groups, such as those of containers and batch systems.

    The page cache counts as used there, but its inactive files can be reclaimed and count as free here: otherwise a
    container that has read large files would look full. None without a limit. ``root`` is where proc and sys are.
    """
    free_sizes: list[int] = []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                free_sizes += _limits(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
                free_sizes += _limits(root / "sys/fs/cgroup/memory", path, *names)
    return min(free_sizes, default=None)


def _limits(mount: Path, path: str, limit: str, used: str, cached: str) -> Iterator[int]:
    """Free memory of a group and of each of its parents; in a container the path may be the machine's, not visible
    here."""
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            return
        with suppress(OSError, ValueError, KeyError):  # no such group, or no limit
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            in_use = int((folder / used).read_text()) - int(statistics[cached])
            yield max(0, int((folder / limit).read_text()) - in_use)
