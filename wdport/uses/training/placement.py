"""Where a run's arrays are: on one device, or divided among the devices of one process or several."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import jax
import keras
import numpy as np
from jax import Array as Tensor
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from wdport.base.errors import UsageError
from wdport.models.interface import Array
from wdport.uses.devices import answering, gathered, local_devices, sharded_axis

AXIS: Final = "batch"
KEPT: Final = "the run resumes from its last saved state"

Feed = Callable[[Array], Array]
"""Rows of a batch by their numbers."""


class Placement:
    """On a mesh with the axis ``axis``, by default the one device that JAX uses: batches are divided along it, and
    weights replicated, or sharded along it.

    ``in_place`` leaves placed arrays where they are.
    """

    def __init__(
        self, mesh: Mesh | None = None, axis: str = AXIS, shard_weights: bool = False, in_place: bool = False
    ) -> None:
        self.mesh = mesh or Mesh(np.array(list(jax.numpy.zeros(()).devices())), (AXIS,))
        self.axis, self.shard_weights, self.in_place = axis, shard_weights, in_place
        self.count = int(self.mesh.shape[axis])
        self._shapes: dict[Feed, tuple[int, ...]] = {}  # of a row, by what feeds it
        self._whole = jax.jit(lambda leaf: leaf, out_shardings=self._over())

    def _over(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def _of(self, leaf: Any) -> Sharding:
        if self.in_place and isinstance(leaf, jax.Array) and leaf.sharding.device_set == set(self.mesh.devices.flat):
            return leaf.sharding
        axis = sharded_axis(leaf.shape, self.count) if self.shard_weights else None
        return self._over() if axis is None else self._over(*[None] * axis, self.axis)

    def state(self, tree: Any) -> Any:
        """Copies of arrays, placed; a step may take their memory."""

        def placed(leaf: Any) -> Tensor:
            sharding = self._of(leaf)
            if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
                # An array of several processes cannot be read by one of them; a program copies it where it is.
                copied: Tensor = jax.jit(jax.numpy.copy, out_shardings=sharding)(leaf)
                return copied
            host = np.asarray(leaf)
            # Copies: on a CPU jax may use the memory of an aligned array, which a step then overwrites.
            return jax.make_array_from_callback(host.shape, sharding, lambda part: np.array(host[part]))

        return jax.tree.map(placed, tree)

    def like(self, tree: Any) -> Any:
        """Shapes, dtypes and shardings of placed arrays."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), tree)

    def everywhere(self, array: Array) -> Tensor:
        """An array on every device."""
        return jax.make_array_from_callback(array.shape, self._over(), lambda part: array[part])

    def batch(self, numbers: Array, feed: Feed) -> Tensor:
        """The rows of a batch; every process feeds only those of its own devices."""
        if feed not in self._shapes:
            self._shapes[feed] = feed(numbers[:1]).shape[1:]
        shape = (len(numbers), *self._shapes[feed])

        def rows(part: Any) -> Array:
            return feed(numbers[part[0]])

        return jax.make_array_from_callback(shape, self._over(self.axis), rows)

    @property
    def batch_sharding(self) -> Sharding:
        """How the batches of :meth:`batch` are divided."""
        return self._over(self.axis)

    def whole(self, tree: Any) -> Any:
        """Arrays in the host's memory; all processes must call it together."""

        def host(leaf: Tensor) -> Array:
            if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
                leaf = self._whole(leaf)
            return np.asarray(leaf)

        with self.answering():
            return jax.tree.map(host, tree)

    def settle(self, tree: Any) -> None:
        """Called after every step."""
        # Devices of a CPU share threads, and would wait for each other.
        if self.mesh.size > 1 and self.mesh.devices.flat[0].platform == "cpu":
            jax.block_until_ready(tree)

    def answering(self) -> AbstractContextManager[None]:
        """Raises :class:`wdport.uses.devices.LostProcess` if another process ends in the block."""
        return answering(KEPT) if jax.process_count() > 1 else nullcontext()


def placement_of(devices: int | str | None, shard_weights: bool) -> Placement:
    """The placement for ``devices``: "all" of every process, the first N of each, or None: that of
    ``keras.distribution`` if one is set, else one device.

    Raises :class:`UsageError`.
    """
    if devices is not None:
        local = local_devices(devices)
        ids = {device.id for device in local}
        chosen = local if jax.process_count() == 1 else _everywhere(len(ids))
        return Placement(Mesh(np.array(chosen), (AXIS,)), shard_weights=shard_weights)
    if shard_weights:
        raise UsageError("shard_weights", "there is only one device", 'ask for several, or for "all" devices')
    if jax.process_count() > 1:
        raise UsageError("devices", "are not given, and there are several processes", 'give "all"')
    return placement_of_distribution() or Placement()


def placement_of_distribution() -> Placement | None:
    """That of ``keras.distribution``, if one is set."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return None
    return Placement(distribution.device_mesh.backend_mesh, distribution.batch_dim_name, in_place=True)


def _everywhere(count: int) -> list[jax.Device]:
    """The first devices of every process, in the order of the processes."""
    devices: list[jax.Device] = []
    for process in range(jax.process_count()):
        # Every process must order the devices of the mesh alike.
        local = (device for device in jax.devices() if device.process_index == process)
        devices += sorted(local, key=lambda device: device.id)[:count]
    return devices


def wait_for_all() -> None:
    if jax.process_count() > 1:
        gathered(np.zeros(1, np.int32), KEPT)
