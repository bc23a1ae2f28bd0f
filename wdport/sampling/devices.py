"""Choose the devices: where batches and weights are placed, and what each process draws (:class:`Spread`).

Every process uses only its own devices and draws its own part of every batch. Processes exchange only finished samples,
after which each of them has all. Start processes with ``jax.distributed.initialize``.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax import Array as Tensor
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from wdport.devices import gathered, local_devices, sharded_axis
from wdport.diffusion.schedules import Array
from wdport.errors import UsageError
from wdport.families.roles import Tree

AXIS = "samples"


class Spread:
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


def spread_over(devices: int | str | None, shard_weights: bool = False) -> Spread | None:
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
    return Spread(here, jax.process_count(), jax.process_index(), shard_weights)
