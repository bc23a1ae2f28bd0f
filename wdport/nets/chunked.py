"""Run a network over a long video in equal chunks: one compiled step, whose past stays on the device.

Every chunk has the same shape and its number is an argument, so one program serves videos of any length, and the
device never holds more than the past, one chunk and two results. The past is donated: a step writes the next past into
the memory of the one before. A `lax.scan` over all chunks would be a new program for every number of chunks, and would
hold all results; :func:`scanned` is such a program, for an export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from wdport.base.errors import UsageError
from wdport.base.jax_settings import Option, weakly
from wdport.models.interface import Array

Weights = dict[str, Any]
Held = Sequence[jax.Array]

Step = Callable[[Weights, Held, jax.Array, jax.Array], tuple[list[jax.Array], jax.Array]]
"""Maps (weights, held, chunk (B, T, H, W, C), number of its first frame ()) to (what the next step holds, the result
(B, T', H', W', C')). An empty ``held`` means zeros."""

OPTIONS: Mapping[str, Option] = {}
"""Compiler options of a step: JAX's own."""

BATCH, WIDTH = "batch", "width"
"""Names of a mesh's axes: that of the videos, and that of their columns."""


class Chunked:
    """A step, compiled once for each shape of a chunk; on the devices of a ``mesh`` if there is one, and with compiler
    ``options`` in place of :data:`OPTIONS`."""

    def __init__(self, step: Step, mesh: Mesh | None = None, options: Mapping[str, Option] | None = None) -> None:
        self.mesh, self._step = mesh, step
        self._over = None if mesh is None else NamedSharding(mesh, _spec(mesh))
        over = None if self._over is None else (self._over,) * 2
        self._jitted = jax.jit(
            # A bound method would make a cycle of the object and its programs, which is freed late or never.
            weakly(step),
            # The past: the step writes the next one into its memory.
            donate_argnums=1,
            out_shardings=over,
            compiler_options=dict(OPTIONS if options is None else options),
        )
        self._starts: dict[tuple[object, ...], Callable[[], list[jax.Array]]] = {}

    @property
    def programs(self) -> int:
        """The number of programs compiled so far."""
        return int(self._jitted._cache_size())  # type: ignore[attr-defined]

    def place(self, weights: Weights) -> Weights:
        """Weights where the step needs them: on every device."""
        if self.mesh is None:
            return {name: jnp.asarray(value) for name, value in weights.items()}
        everywhere = NamedSharding(self.mesh, _axes())
        return {name: jax.device_put(value, everywhere) for name, value in weights.items()}

    def run(self, weights: Weights, chunks: Iterable[Array], first: int, count: int) -> Iterator[Array]:
        """The results of ``chunks``, each fetched while the next one is computed; the first chunk begins with the frame
        ``first``, and each has ``count`` of them."""
        held: Held = ()
        before: jax.Array | None = None
        for index, chunk in enumerate(chunks):
            part = chunk if self._over is None else jax.device_put(chunk, self._over)
            start = np.int32(first + index * count)
            if not index:
                held = self._zeros(weights, part, start)
            held, result = self._jitted(weights, held, part, start)
            # Calls return before their result is computed: the previous one is fetched while this one runs.
            if before is not None:
                yield np.asarray(before)
            before = result
        if before is not None:
            yield np.asarray(before)

    def _zeros(self, weights: Weights, part: Array | jax.Array, start: np.int32) -> list[jax.Array]:
        key = (part.shape, str(part.dtype), *sorted({str(value.dtype) for value in weights.values()}))
        if key not in self._starts:
            # The shapes of the past are those that a step returns; no computation runs to learn them.
            state_shapes, _ = jax.eval_shape(self._step, weights, (), part, start)
            self._starts[key] = jax.jit(
                lambda: [jnp.zeros(state.shape, state.dtype) for state in state_shapes], out_shardings=self._over
            )
        return self._starts[key]()


def scanned(
    step: Step, weights: Weights, chunks: jax.Array, first: jax.Array | np.int32, count: int | None = None
) -> jax.Array:
    """All chunks (N, B, T, H, W, C) in one `lax.scan` whose carry is the past; the results (N, B, T', H', W', C').
    ``first`` is the number of the first frame, and ``count`` by how much it grows from chunk to chunk (T if None)."""
    count = chunks.shape[2] if count is None else count
    # A scan needs a carry of the right shapes from the start, which the step only returns.
    state_shapes, _ = jax.eval_shape(step, weights, (), chunks[0], first)
    zeros = [jnp.zeros(state.shape, state.dtype) for state in state_shapes]

    def one(carry: tuple[list[jax.Array], jax.Array], chunk: jax.Array) -> Any:
        held, start = carry
        held, result = step(weights, held, chunk, start)
        return (held, start + count), result

    _, results = jax.lax.scan(one, (zeros, jnp.asarray(first, jnp.int32)), chunks)
    return results


def require_divisible(mesh: Mesh | None, batch: int, width: int) -> None:
    """Raise :class:`UsageError` unless a mesh has our axes and divides a batch and a width of the smallest size."""
    if mesh is None:
        return
    if unknown := set(mesh.axis_names) - {BATCH, WIDTH}:
        raise UsageError("mesh", f"has an axis {min(map(str, unknown))!r}", f"name its axes {BATCH!r} and {WIDTH!r}")
    for name, size, what in ((BATCH, batch, "videos"), (WIDTH, width, "columns of latents")):
        parts = mesh.shape.get(name, 1)
        if size % parts:
            raise UsageError("mesh", f"{size} {what} cannot be divided among {parts} devices", "take another mesh")


def _spec(mesh: Mesh) -> PartitionSpec:
    batch, width = (name if name in mesh.axis_names else None for name in (BATCH, WIDTH))
    return _axes(batch, None, None, width)


def _axes(*names: str | None) -> PartitionSpec:
    return PartitionSpec(*names)
