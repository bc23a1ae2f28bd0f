"""A sampler and a number of samples in, the samples out chunk by chunk, all chunks of one size and one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from wdport.diffusion.schedules import Array
from wdport.sampling.sampler import Sampler, Samples

Done = Callable[[float], None]
"""Told how many samples are done, parts of them included."""


def chunked(
    sampler: Sampler,
    count: int,
    chunk: int,
    *,
    init: Array | None = None,
    tape: Array | None = None,
    start: int = 0,
    done: Done | None = None,
) -> Iterator[Samples]:
    """Samples number ``start`` to ``count`` in chunks of ``chunk``, or the next multiple of the devices; the last is
    filled up, and cut afterwards.

    ``init`` (count, C, F) and ``tape`` (slots, count, C, F) are those of all samples.
    """
    chunk = sampler.batch(min(chunk, count))
    for begin in range(start, count, chunk):
        indices = np.arange(begin, begin + chunk)
        known = np.minimum(indices, count - 1)
        samples = sampler.run(
            indices,
            None if init is None else init[known],
            None if tape is None else tape[:, known],
            None if done is None else _within(done, begin, min(chunk, count - begin)),
        )
        yield samples.first(count - begin)


def _within(done: Done, begin: int, size: int) -> Callable[[int, int], None]:
    return lambda rows, total: done(begin + size * rows / total)
