"""Choose the devices and a batch size that fits into their memory: where batches and weights are placed, and what
each process draws.

Every process uses only its own devices and draws its own part of every batch. Processes exchange only finished samples,
after which each of them has all. Start processes with ``jax.distributed.initialize``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
from jax import Array as Tensor
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from wdport.base.errors import UsageError
from wdport.base.platforms import physical_bytes
from wdport.models.interface import Array
from wdport.uses.devices import gathered, local_devices, sharded_axis
from wdport.uses.roles import Tree

AXIS = "samples"


class DeviceSpread:
    """``devices`` of this process, and the number of ``processes``, of which this is number ``process``.

    Batches are divided along their samples, first among the processes and then among the devices of each. Weights are
    replicated on every device or, with ``shard_weights``, sharded among the devices of a process, which then exchange
    what a product needs while it runs.
    """

    def __init__(
        self, devices: Sequence[jax.Device], processes: int = 1, process: int = 0, shard_weights: bool = False
    ) -> None:
        self.devices, self.processes, self.process = devices, processes, process
        self.shard_weights = shard_weights
        self._mesh = Mesh(np.array(devices), (AXIS,))
        self._weights: tuple[list[Tensor], Tree] = [], None

    @property
    def count(self) -> int:
        """Devices of all processes together; every batch is a multiple of it."""
        return len(self.devices) * self.processes

    @property
    def memories(self) -> int:
        """The number of memories that share a batch: one per device, but one per process on CPUs."""
        return self.processes if self.devices[0].platform == "cpu" else self.count

    def batch(self, samples: int) -> int:
        """The size of a batch for ``samples`` samples."""
        # Every device gets as many samples, since a compiled program has one shape.
        return samples + -samples % self.count

    def own(self, values: Array, axis: int = 0) -> Array:
        """This process's part of a batch that all processes hold."""
        return np.split(values, self.processes, axis)[self.process]

    def place(self, values: Tree, axis: int = 0) -> Tree:
        """Place arrays, in any nesting, with their samples along ``axis``, on the devices of this process."""
        return jax.device_put(values, self._sharding(*[None] * axis, AXIS))

    def weights(self, weights: Tree) -> Tree:
        """Place weights on every device of this process, replicated or sharded; once for as long as they are the same
        arrays."""
        # Compared by identity: a variable that is assigned to has another array.
        leaves = jax.tree.leaves(weights)
        before, placed = self._weights
        if len(before) != len(leaves) or any(one is not other for one, other in zip(before, leaves, strict=True)):
            placed = jax.tree.map(lambda leaf: jax.device_put(leaf, self._of_weight(leaf.shape)), weights)
            self._weights = leaves, placed
        return placed

    def _of_weight(self, shape: tuple[int, ...]) -> NamedSharding:
        """Shard along the first divisible axis; vectors are replicated."""
        axis = sharded_axis(shape, len(self.devices))
        if not self.shard_weights or axis is None:
            return self._sharding()
        return self._sharding(*[None] * axis, AXIS)

    def _sharding(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec(*axes))

    def gather(self, values: Array | Tensor) -> Array:
        """Concatenate the values of all processes along axis 0; all processes must call it together."""
        if self.processes == 1:
            return np.asarray(values)
        return gathered(values, "finished samples are kept")


def spread_over(devices: int | str | None, shard_weights: bool = False) -> DeviceSpread | None:
    """The spread for ``devices``: "all" of each process, the first N of each, or the default one (None).

    Raises:
        UsageError: there are fewer devices, processes have different numbers of them, or weights are to be sharded on a
            single device.
    """
    if devices is None:
        if shard_weights:
            raise UsageError("shard_weights", "there is only one device", 'ask for several, or for "all" devices')
        return None
    here = local_devices(devices)
    return DeviceSpread(here, jax.process_count(), jax.process_index(), shard_weights)


CPU_BATCH = 64
"""On two cores a batch of 64 takes 2.1 ms per sample and step at the released size, one of 8 takes 3.5, and the
matrix products alone 1.5; larger batches save nothing."""

DEVICE_BATCH = 1024

SMALL, SMALL_BATCH = 1 << 19, 4096
"""Numbers of a batch of a small model, such as one of points, whose calls cost more than its arithmetic."""


def auto_batch(numbers: int, dtype: str, count: int, memories: int = 1) -> int:
    """Samples per batch, shared by ``memories`` such as this one: as many as fit into half of the free memory, up to
    the largest useful batch. A sample takes ``numbers`` values of ``dtype`` while the network runs."""
    # A tiny network is bound by the overhead of its calls, so its batches may be larger.
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
            # Every group on the way to the root may have a limit, and each applies.
            in_use = int((folder / used).read_text()) - int(statistics[cached])
            yield max(0, int((folder / limit).read_text()) - in_use)
