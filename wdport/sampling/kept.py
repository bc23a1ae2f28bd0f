"""Draw the samples that an output's parts lack; existing samples are not drawn again.

With several processes, only the first one has parts; the others draw their share and send it.
"""

from __future__ import annotations

import numpy as np

from wdport.sampling.job import Job
from wdport.sampling.parts import Parts
from wdport.sampling.sampler import Sampler
from wdport.sampling.samples import Done, Samples

PARTS = 32
"""Approximate number of parts by default, if they fit easily into memory."""

PART_BYTES = 8 << 20


def fill_parts(
    job: Job,
    parts: Parts | None,
    chunk: int | None = None,
    save_every: int = 1,
    done: Done | None = None,
    start: int = 0,
) -> None:
    """Draw the samples that are missing from ``parts`` in batches, and save them every ``save_every`` chunks.

    ``parts`` is None in all processes but the first; there ``start`` is the number of samples that exist already.
    """
    start = start if parts is None else parts.done
    batch = job.sampler.batch(min(job.batch, job.count))
    waiting: list[Samples] = []
    for samples in job.draw(chunk or auto_chunk(job.count, batch, _bytes(job.sampler)), start, done):
        if parts is None:
            continue
        waiting.append(samples)
        if len(waiting) == save_every:
            start = _save(parts, start, waiting)
    if parts is not None and waiting:
        _save(parts, start, waiting)


def auto_chunk(count: int, batch: int, size: int) -> int:
    """Whole batches per chunk, so that there are few parts: syncing a file for every batch of a small model costs a
    quarter of the time. ``size`` is the size of a sample in bytes."""
    return batch * max(1, min(round(count / batch / PARTS), PART_BYTES // size // batch))


def _bytes(sampler: Sampler) -> int:
    """Approximate size of a sample with its decoded form, which is not larger."""
    network = sampler.programs.network
    return 2 * int(np.prod(network.shape)) * np.dtype(network.dtype).itemsize


def _save(parts: Parts, start: int, waiting: list[Samples]) -> int:
    """Save the waiting samples; returns the index of the next one."""
    samples = Samples.join(waiting)
    waiting.clear()
    parts.save(start, samples.arrays)
    return start + len(samples)
