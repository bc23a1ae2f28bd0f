"""Draw a job into a file: parts next to it keep finished samples, so that an interrupted run resumes.

With several processes, the first one writes; the others draw their share and send it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from wdport.errors import MachineError, printable
from wdport.files.samples import Blocks, write_samples
from wdport.files.target import Target
from wdport.files.writable import writable
from wdport.files.written import WRITTEN
from wdport.sampling.job import Job
from wdport.sampling.kept import fill_parts
from wdport.sampling.parts import Parts
from wdport.sampling.processes import agreed, announced, check_same
from wdport.sampling.ran import Clock, Ran
from wdport.sampling.samples import Done

Bar = Callable[[int, int], AbstractContextManager[Done | None]]
"""Progress display, from the total number of samples and the number of existing ones."""


@dataclass(frozen=True)
class Output:
    """Where samples are written, and how finished ones are kept meanwhile.

    ``facts`` are everything that determines the samples, as JSON values. ``batch`` is the requested batch size, if any;
    otherwise a resumed run uses that of the first run. Finished samples are saved every ``save_every`` chunks of
    ``chunk``. ``force`` replaces the file, and parts of another run.
    """

    target: Target
    facts: Mapping[str, object]
    batch: int | None = None
    chunk: int | None = None
    save_every: int = 1
    force: bool = False


def draw_to_file(job: Job, output: Output, bar: Bar, show: Callable[[Blocks], None]) -> Ran | None:
    """Draw what is missing and write the file; None in all processes but the first.

    ``show`` is called with the samples before the file is written. Finished samples are kept, whatever is raised.
    """
    check_same(job.sampler, {**output.facts, "batch": output.batch})
    if job.sampler.spread and job.sampler.spread.process:
        already, batch = agreed(job.sampler, 0, job.batch)
        fill_parts(replace(job, batch=batch), None, start=already)
        return None
    started = time.monotonic()
    with announced(job.sampler):
        parts = _parts(output, job)
    with parts, _reporting_interruption(parts, job.count, output.target.path):
        with announced(job.sampler):
            writable(output.target.path, force=output.force)  # another run may have ended since it was asked
        already, batch = agreed(job.sampler, parts.done, parts.batch)
        with bar(job.count, already) as done:
            clock = Clock(job.count, done)
            fill_parts(replace(job, batch=batch), parts, output.chunk, output.save_every, clock)
        rate, seconds = clock.rate(), time.monotonic() - started
        shapes = {name: (job.count, *values.shape[1:]) for name, values in next(parts.blocks()).items()}
        show(parts.blocks)
        size = write_samples(output.target, job.count, parts.blocks, _steps(job), _features(job), job.given)
        parts.remove()
    return Ran(already, batch, seconds, shapes, size, parts.unsound, clock.compiling, rate)


def _parts(output: Output, job: Job) -> Parts:
    settled, network = () if output.batch else ("batch",), job.sampler.programs.network
    layout = {network.about.state.name: (network.shape, network.dtype)}
    return Parts(output.target.path, {**output.facts, "batch": job.batch}, settled, output.force, layout)


def _steps(job: Job) -> dict[str, str]:
    about = job.sampler.programs.network.about
    return {named.name: named.step for named in (about.state, about.decoded)}


def _features(job: Job) -> tuple[str, ...]:
    return job.sampler.programs.network.about.features


@contextmanager
def _reporting_interruption(parts: Parts, count: int, path: Path) -> Iterator[None]:
    """At an interruption, report how many samples are kept; remove empty parts, and parts whose samples are all in
    ``path``."""
    before = len(WRITTEN)
    try:
        yield
    except KeyboardInterrupt as interruption:
        if not parts.done or path in WRITTEN[before:]:
            parts.remove()
            raise
        message = f"{parts.done} of {count} samples are kept; run the same command to resume"
        raise type(interruption)(message) from None
    except MachineError as error:
        more = f"; {parts.done} of {count} samples are kept: run the same command to resume" if parts.done else ""
        if not parts.done:
            parts.remove()
        if not error.where.startswith(printable(path, None)):  # its folder of parts begins so, too
            raise
        raise MachineError(path, error.what, error.fix + more) from error
    except BaseException:
        if not parts.done:
            parts.remove()
        raise
