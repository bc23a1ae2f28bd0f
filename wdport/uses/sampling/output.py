"""Draw a job into a file: parts next to it keep finished samples, so that an interrupted run resumes; what processes
agree on before.

With several processes, only the first one has parts and writes; the others draw their share and send it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.base.errors import MachineError, printable
from wdport.base.jax_settings import fast_run
from wdport.files.atomic import WRITTEN
from wdport.files.model_target import Target
from wdport.files.outputs import writable
from wdport.files.samples_writer import Blocks, write_samples
from wdport.models.interface import Array
from wdport.uses.devices import require_same
from wdport.uses.diffusion.noise import sample_keys, step_noise
from wdport.uses.diffusion.run_plan import Carry, PlanRows, run_rows
from wdport.uses.roles import Tree
from wdport.uses.sampling.job import Job, SamplingClock, SamplingRun
from wdport.uses.sampling.parts import Parts
from wdport.uses.sampling.sampler import Done, Sampler, Samples

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
    # A chunk of whole batches needs no splitting, so the automatic one is a multiple of this.
    batch = job.sampler.batch(min(job.batch, job.count))
    waiting: list[Samples] = []
    network = job.sampler.programs.network
    # The size of a sample with its decoded form, which is not larger.
    size = 2 * int(np.prod(network.shape)) * np.dtype(network.dtype).itemsize
    for samples in job.draw(chunk or auto_chunk(job.count, batch, size), start, done):
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


def _save(parts: Parts, start: int, waiting: list[Samples]) -> int:
    """Save the waiting samples; returns the index of the next one."""
    samples = Samples.join(waiting)
    waiting.clear()
    parts.save(start, samples.arrays)
    return start + len(samples)


MOST = 60
"""Frames: five seconds of an animation."""


def frames_of(job: Job, samples: int, limit: int = MOST) -> Array:
    """Frames (frames, n, *shape): the first samples of a job after evenly spaced calls of the network, decoded if
    states are. They are drawn again, on the first device."""
    sampler = job.sampler
    network, programs = sampler.programs.network, sampler.programs
    count = min(samples, job.count)
    indices = np.arange(count, dtype=np.uint32)
    condition = None if job.condition is None else sampler.as_input(job.condition[:count])

    @partial(jax.jit, compiler_options=fast_run())
    def some(weights: Tree, rows: PlanRows, carry: Carry, tape: Tensor | None) -> tuple[Carry, Tensor | None]:
        keys = sample_keys(jnp.uint32(sampler.seed), jnp.asarray(indices))

        def drawn(number: Tensor) -> Tensor:
            return step_noise(keys, number, network.shape, network.dtype)

        return run_rows(
            lambda x, times: network.apply(weights, x, times, condition),
            rows,
            carry,
            drawn if tape is None else tape,
            record=True,
            change=network.changing(weights),
        )

    with jax.enable_x64(network.dtype == "float64"):
        weights = network.weights()
        init = None if job.init is None else np.asarray(job.init[:count]).astype(network.dtype)
        start = programs.start(np.uint32(sampler.seed), indices) if init is None else init
        carry, recorded = programs.carry(start), [np.asarray(start)[None]]
        tape = None if job.tape is None else job.tape[:, :count]
        for rows, slots, _ in sampler.segments(tape):
            carry, states = some(weights, rows, carry, slots)
            recorded.append(np.asarray(states))
        # The last segment is padded with rows that change nothing.
        every = np.concatenate(recorded)[: len(sampler.plan.steps) + 1]
        chosen = np.unique(np.linspace(0, len(every) - 1, min(limit, len(every))).round().astype(int))
        finished = (programs.finish(weights, state) for state in every[chosen])
        frames = [np.asarray(state if decoded is None else decoded) for state, decoded in finished]
        restore = job.restore
        return np.stack(frames if restore is None else [restore.values(frame, indices) for frame in frames])


HALF = 1 << 20
"""Numbers are sent between processes in two halves: jax has 32 bits for each."""


def check_same(sampler: Sampler, facts: Mapping[str, object]) -> None:
    """Raise :class:`UsageError` in all processes unless they were started with the same ``facts``."""
    if sampler.spread is not None:
        require_same({**facts, "devices": len(sampler.spread.devices)}, "nothing is lost")


def agreed(sampler: Sampler, done: int, batch: int) -> tuple[int, int]:
    """The first process's number of finished samples, and its batch size.

    Raises :class:`MachineError` if the first process reports that it cannot begin, see :func:`announced`.
    """
    if sampler.spread is None:
        return done, batch
    numbers = sampler.spread.gather(np.array([*divmod(done, HALF), *divmod(batch, HALF)], np.int32)).tolist()
    if numbers[0] < 0:
        raise MachineError("--distributed", "the first process cannot begin", "see its output")
    return numbers[0] * HALF + numbers[1], numbers[2] * HALF + numbers[3]


@contextmanager
def announced(sampler: Sampler) -> Iterator[None]:
    """Report to the other processes what the first one raises before drawing, as they would wait for it otherwise."""
    try:
        yield
    except BaseException:
        if sampler.spread is not None:
            with suppress(MachineError):
                agreed(sampler, -1, 0)
        raise


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


def draw_to_file(job: Job, output: Output, bar: Bar, show: Callable[[Blocks], None]) -> SamplingRun | None:
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
            clock = SamplingClock(job.count, done)
            fill_parts(replace(job, batch=batch), parts, output.chunk, output.save_every, clock)
        rate, seconds = clock.rate(), time.monotonic() - started
        shapes = {name: (job.count, *values.shape[1:]) for name, values in next(parts.blocks()).items()}
        show(parts.blocks)
        about = job.sampler.programs.network.about
        steps = {named.name: named.step for named in (about.state, about.decoded)}
        size = write_samples(output.target, job.count, parts.blocks, steps, about.features, job.given)
        parts.remove()
    return SamplingRun(already, batch, seconds, shapes, size, parts.unsound, clock.compiling, rate)


def _parts(output: Output, job: Job) -> Parts:
    settled, network = () if output.batch else ("batch",), job.sampler.programs.network
    layout = {network.about.state.name: (network.shape, network.dtype)}
    return Parts(output.target.path, {**output.facts, "batch": job.batch}, settled, output.force, layout)


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
        # The same class: the exit code depends on the signal, and signals other than SIGINT have their own class.
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
