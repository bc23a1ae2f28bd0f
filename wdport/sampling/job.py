"""A sampler and an output's parts in, every sample among the parts out; what is there already is not drawn again.

Of several processes the first alone has parts; the others draw their share and pass it on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np

from wdport.diffusion.schedules import Array
from wdport.errors import UsageError
from wdport.output.parts import Parts
from wdport.sampling.chunks import Done, chunked
from wdport.sampling.sampler import Sampler, Samples

PARTS = 32
"""About how many there are where nothing else is asked for."""


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
    chunk = chunk or auto_chunk(count, sampler.batch(min(batch, count)))
    waiting: list[Samples] = []
    for samples in chunked(sampler, count, batch, chunk, init=init, start=start, done=done):
        if parts is None:
            continue
        waiting.append(samples)
        if len(waiting) == save_every:
            start = _save(parts, start, waiting)
    if parts is not None and waiting:
        _save(parts, start, waiting)


def auto_chunk(count: int, batch: int) -> int:
    """Whole batches, such that there are few parts: a file that is synced for every batch of a small model costs a
    quarter of its time."""
    return batch * max(1, round(count / batch / PARTS))


def check_same(sampler: Sampler, facts: Mapping[str, Any]) -> None:
    """Raises :class:`UsageError` in all processes where they were not started with the same ``facts``."""
    if sampler.spread is not None:
        text = json.dumps([facts, len(sampler.spread.devices)], sort_keys=True)
        if len(set(sampler.spread.gather(np.array([crc32(text.encode()) >> 1], np.int32)).tolist())) > 1:
            what = "the processes have different commands, models or devices"
            raise UsageError("--distributed", what, "start all of them alike")


def agreed(sampler: Sampler, done: int, batch: int) -> tuple[int, int]:
    """The first process's number of samples that are there, and its batch."""
    if sampler.spread is None:
        return done, batch
    told = sampler.spread.gather(np.array([done, batch], np.int32))
    return int(told[0]), int(told[1])


def _save(parts: Parts, start: int, waiting: list[Samples]) -> int:
    """The next sample's number."""
    samples = Samples.join(waiting)
    waiting.clear()
    block = {"coefficients": samples.coefficients}
    if samples.series is not None:
        block["series"] = samples.series
    parts.save(start, block)
    return start + len(samples)
