"""A job in, a file of samples out: parts beside it keep what is finished, so that an interrupted run resumes.

Of several processes the first writes; the others draw their share and pass it on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from wdport.files.samples import Blocks, write_samples
from wdport.files.target import Target
from wdport.files.writable import require_writable
from wdport.files.written import WRITTEN
from wdport.sampling.chunks import Done
from wdport.sampling.job import Job
from wdport.sampling.kept import fill_parts
from wdport.sampling.parts import Parts
from wdport.sampling.processes import agreed, announced, check_same

Bar = Callable[[int, int], AbstractContextManager[Done | None]]
"""Shows how many samples are done, given how many there are to be and how many there are already."""


@dataclass(frozen=True)
class Output:
    """Where samples go, and how they are kept on the way.

    ``facts`` say what determines the samples, as JSON values. ``batch`` is the one that was asked for, if any: else a
    run that resumes takes over the first one's. Finished samples are saved every ``save_every`` chunks of ``chunk``.
    ``force`` replaces the file, and parts of another run.
    """

    target: Target
    facts: Mapping[str, object]
    batch: int | None = None
    chunk: int | None = None
    save_every: int = 1
    force: bool = False


@dataclass(frozen=True)
class Ran:
    """A finished run: samples that there were ``already``, the ``batch``, the ``seconds`` that the rest took, the
    ``shapes`` of all arrays by name, the ``size`` of the file in bytes, and how many samples are ``unsound``, with a
    value that is not finite."""

    already: int
    batch: int
    seconds: float
    shapes: Mapping[str, tuple[int, ...]]
    size: int
    unsound: int = 0


def draw_to_file(job: Job, output: Output, bar: Bar, show: Callable[[Blocks], None]) -> Ran | None:
    """Draw what is missing and write the file; None in all processes but the first.

    ``show`` is given the samples before the file is written. What is finished is kept, whatever is raised.
    """
    check_same(job.sampler, {**output.facts, "batch": output.batch})
    if job.sampler.spread and job.sampler.spread.process:
        already, batch = agreed(job.sampler, 0, job.batch)
        fill_parts(replace(job, batch=batch), None, start=already)
        return None
    started = time.monotonic()
    with announced(job.sampler):
        parts = _parts(output, job)
    with parts, _kept(parts, job.count, output.target.path):
        with announced(job.sampler):
            require_writable(output.target.path, force=output.force)  # another run may have ended since it was asked
        already, batch = agreed(job.sampler, parts.done, parts.batch)
        with bar(job.count, already) as done:
            fill_parts(replace(job, batch=batch), parts, output.chunk, output.save_every, done)
        seconds = time.monotonic() - started
        shapes = {name: (job.count, *values.shape[1:]) for name, values in next(parts.blocks()).items()}
        show(parts.blocks)
        size = write_samples(output.target, job.count, parts.blocks, _steps(job))
        parts.remove()
    return Ran(already, batch, seconds, shapes, size, parts.unsound)


def _parts(output: Output, job: Job) -> Parts:
    settled, network = () if output.batch else ("batch",), job.sampler.programs.network
    layout = {network.about.state.name: (network.shape, network.dtype)}
    return Parts(output.target.path, {**output.facts, "batch": job.batch}, settled, output.force, layout)


def _steps(job: Job) -> dict[str, str]:
    about = job.sampler.programs.network.about
    return {each.name: each.step for each in (about.state, about.decoded)}


@contextmanager
def _kept(parts: Parts, count: int, path: Path) -> Iterator[None]:
    """Say at an interruption what is there; leave nothing where nothing is, or where all is in the file ``path``."""
    before = len(WRITTEN)
    try:
        yield
    except KeyboardInterrupt as interruption:
        if not parts.done or path in WRITTEN[before:]:
            parts.remove()
            raise
        told = f"interrupted; {parts.done} of {count} samples are kept, the same command goes on from there"
        raise type(interruption)(told) from None
    except BaseException:
        if not parts.done:
            parts.remove()
        raise
