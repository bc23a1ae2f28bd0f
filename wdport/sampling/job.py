"""A sampler and an output's parts in, every sample among the parts out; what is there already is not drawn again."""

from __future__ import annotations

from wdport.diffusion.schedules import Array
from wdport.output.parts import Parts
from wdport.sampling.chunks import Done, chunked
from wdport.sampling.sampler import Sampler, Samples


def fill_parts(
    sampler: Sampler,
    parts: Parts,
    count: int,
    chunk: int,
    save_every: int = 1,
    init: Array | None = None,
    done: Done | None = None,
) -> None:
    """Draw the samples that are missing from ``parts``, and save them every ``save_every`` chunks."""
    start = parts.done
    waiting: list[Samples] = []
    for samples in chunked(sampler, count, chunk, init=init, start=start, done=done):
        waiting.append(samples)
        if len(waiting) == save_every:
            start = _save(parts, start, waiting)
    if waiting:
        _save(parts, start, waiting)


def _save(parts: Parts, start: int, waiting: list[Samples]) -> int:
    """The next sample's number."""
    samples = Samples.join(waiting)
    waiting.clear()
    block = {"coefficients": samples.coefficients}
    if samples.series is not None:
        block["series"] = samples.series
    parts.save(start, block)
    return start + len(samples)
