"""Draw a number of samples, chunk by chunk.

Samples are drawn in batches, which begin at multiples of their size, and returned in chunks. A matrix product of
another batch size may sum in another order, so the batch size determines a sample's low-order bits; the chunk size and
the point where a run resumes do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from wdport.diffusion.schedules import Array
from wdport.sampling.sampler import Sampler
from wdport.sampling.samples import Samples

Done = Callable[[float], None]
"""Called with the number of finished samples, including fractions."""


def chunked(
    sampler: Sampler,
    count: int,
    batch: int,
    chunk: int | None = None,
    *,
    init: Array | None = None,
    tape: Array | None = None,
    labels: Array | None = None,
    start: int = 0,
    done: Done | None = None,
) -> Iterator[Samples]:
    """Samples number ``start`` to ``count``, ``chunk`` at a time, or a batch at a time if it is not given.

    ``batch`` is rounded up to a multiple of the number of devices; the last batch is padded, and cut afterwards.
    ``init`` (count, *shape), ``tape`` (slots, count, *shape) and ``labels`` (count,) are those of all samples.
    """
    batch = sampler.batch(min(batch, count))
    chunk = batch if chunk is None else chunk
    waiting: list[Samples] = []
    there = 0
    for samples in _batches(sampler, count, batch, init, tape, labels, start, done):
        waiting.append(samples)
        there += len(samples)
        while there >= chunk:
            joined = Samples.join(waiting)
            yield joined.part(0, chunk)
            waiting, there = [joined.part(chunk, there)], there - chunk
    if there:
        yield Samples.join(waiting)


def _batches(
    sampler: Sampler,
    count: int,
    batch: int,
    init: Array | None,
    tape: Array | None,
    labels: Array | None,
    start: int,
    done: Done | None,
) -> Iterator[Samples]:
    """The part of every batch between ``start`` and ``count``."""
    for begin in range(start - start % batch, count, batch):
        indices = np.arange(begin, begin + batch)
        known = np.minimum(indices, count - 1)
        samples = sampler.run(
            indices,
            None if init is None else init[known],
            None if tape is None else tape[:, known],
            None if done is None else _within(done, begin, min(batch, count - begin)),
            None if labels is None else labels[known],
        )
        yield samples.part(max(start - begin, 0), count - begin)


def _within(done: Done, begin: int, size: int) -> Callable[[int, int], None]:
    return lambda rows, total: done(begin + size * rows / total)
