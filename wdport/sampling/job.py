"""A sampler and an output's parts in, every sample among the parts out; what is there already is not drawn again.

Of several processes the first alone has parts; the others draw their share and pass it on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from zlib import crc32

import numpy as np

from wdport.diffusion.schedules import Array
from wdport.errors import MachineError, UsageError
from wdport.sampling.chunks import Done, chunked
from wdport.sampling.parts import Parts
from wdport.sampling.sampler import Sampler, Samples

PARTS = 32
"""About how many there are where nothing else is asked for and they are of a size that memory does not feel."""

PART_BYTES = 8 << 20

HALF = 1 << 20
"""Numbers go between processes in two halves: jax has 32 bits for each."""


def fill_parts(
    sampler: Sampler,
    parts: Parts | None,
    count: int,
    batch: int,
    chunk: int | None = None,
    save_every: int = 1,
    init: Array | None = None,
    done: Done | None = None,
    start: int = 0,
) -> None:
    """Draw the samples that are missing from ``parts`` in batches, and save them every ``save_every`` chunks.

    ``parts`` is None in all processes but the first; there ``start`` is the number of samples that it has already.
    """
    start = start if parts is None else parts.done
    chunk = chunk or auto_chunk(count, sampler.batch(min(batch, count)), _bytes(sampler))
    waiting: list[Samples] = []
    for samples in chunked(sampler, count, batch, chunk, init=init, start=start, done=done):
        if parts is None:
            continue
        waiting.append(samples)
        if len(waiting) == save_every:
            start = _save(parts, start, waiting)
    if parts is not None and waiting:
        _save(parts, start, waiting)


def auto_chunk(count: int, batch: int, size: int) -> int:
    """Whole batches, such that there are few parts: a file that is synced for every batch of a small model costs a
    quarter of its time. ``size`` is that of a sample in bytes."""
    return batch * max(1, min(round(count / batch / PARTS), PART_BYTES // size // batch))


def _bytes(sampler: Sampler) -> int:
    """About what a sample takes, with its series, which is no longer than its coefficients."""
    network = sampler.programs.network
    return 2 * int(np.prod(network.shape)) * np.dtype(network.dtype).itemsize


def check_same(sampler: Sampler, facts: Mapping[str, Any]) -> None:
    """Raises :class:`UsageError` in all processes where they were not started with the same ``facts``."""
    if sampler.spread is not None:
        text = json.dumps([facts, len(sampler.spread.devices)], sort_keys=True)
        if len(set(sampler.spread.gather(np.array([crc32(text.encode()) >> 1], np.int32)).tolist())) > 1:
            what = "the processes have different commands, models or devices"
            raise UsageError("--distributed", what, "start all of them alike")


def agreed(sampler: Sampler, done: int, batch: int) -> tuple[int, int]:
    """The first process's number of samples that are there, and its batch.

    Raises :class:`MachineError` where the first process has told that it cannot begin, see :func:`announced`.
    """
    if sampler.spread is None:
        return done, batch
    told = sampler.spread.gather(np.array([*divmod(done, HALF), *divmod(batch, HALF)], np.int32)).tolist()
    if told[0] < 0:
        raise MachineError("--distributed", "the first process cannot begin", "see what it says")
    return told[0] * HALF + told[1], told[2] * HALF + told[3]


@contextmanager
def announced(sampler: Sampler) -> Iterator[None]:
    """What the first process raises before all draw, it tells the others: else they would wait for it."""
    try:
        yield
    except BaseException:
        if sampler.spread is not None:
            with suppress(MachineError):
                agreed(sampler, -1, 0)
        raise


def _save(parts: Parts, start: int, waiting: list[Samples]) -> int:
    """The next sample's number."""
    samples = Samples.join(waiting)
    waiting.clear()
    block = {"coefficients": samples.coefficients}
    if samples.series is not None:
        block["series"] = samples.series
    parts.save(start, block)
    return start + len(samples)
