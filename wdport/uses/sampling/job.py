"""Plan a request, then draw its samples; used by the command line and by Python.

Planning uses only shapes and settings; every invalid request is refused there, before anything is computed.

Samples are drawn in batches, which begin at multiples of their size, and returned in chunks. A matrix product of
another batch size may sum in another order, so the batch size determines a sample's low-order bits; the chunk size and
the point where a run resumes do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from wdport.base.errors import UsageError
from wdport.base.options import COUNT, require_within
from wdport.models.interface import Array
from wdport.uses.sampling.condition import FURTHEST, checked_condition, guided, resampling, with_known
from wdport.uses.sampling.data_windows import Restoring, drawn_windows, restoring
from wdport.uses.sampling.devices import spread_over
from wdport.uses.sampling.request import Request
from wdport.uses.sampling.sampler import Done, Programs, Sampler, Samples, plan_of


@dataclass(frozen=True)
class SamplingRun:
    """A finished run: the number of samples that existed ``already``, the ``batch`` size, the ``seconds`` that the rest
    took, the ``shapes`` of all arrays by name, the ``size`` of the file in bytes, and the number of ``unsound``
    samples, with a value that is not finite. ``compiling`` are the seconds before the first step, ``rate`` the samples
    per second after them, None if there is nothing to measure."""

    already: int
    batch: int
    seconds: float
    shapes: Mapping[str, tuple[int, ...]]
    size: int
    unsound: int = 0
    compiling: float = 0.0
    rate: float | None = None


class SamplingClock:
    """Receives progress reports; records when the first step began, before which programs are compiled."""

    def __init__(self, count: int, then: Callable[[float], None] | None) -> None:
        self._count, self._then = count, then
        self._began = time.monotonic()
        self._first: tuple[float, float] | None = None

    def __call__(self, done: float) -> None:
        if self._first is None:
            self._first = time.monotonic(), done
        if self._then:
            self._then(done)

    @property
    def compiling(self) -> float:
        """Seconds before the first step."""
        return self._first[0] - self._began if self._first else 0.0

    def rate(self) -> float | None:
        """Samples per second from the first step until now; None if the only report came at the end."""
        if self._first is None or self._first[1] >= self._count:
            return None
        return (self._count - self._first[1]) / max(time.monotonic() - self._first[0], 1e-9)


WINDOW = "window"
"""The array of the numbers of windows."""

MOST = 1 << 32
"""Samples per seed: their indices have 32 bits."""


@dataclass(frozen=True, eq=False)
class Job:
    """A valid request: ``count`` samples in batches of ``batch``.

    ``init`` (count, *shape), ``tape`` (slots, count, *shape) and ``condition`` (count, ...) are those of all samples,
    if given; ``restore``, if given, converts samples to the units of the data. ``windows`` (count,) are the numbers of
    the windows of the training data whose statistics the samples have.
    """

    sampler: Sampler
    count: int
    batch: int
    init: Array | None = None
    tape: Array | None = None
    condition: Array | None = None
    restore: Restoring | None = None
    windows: Array | None = None

    @property
    def given(self) -> dict[str, Array]:
        """What every sample was drawn with, by name: its condition, and its ``window`` of the training data."""
        about = self.sampler.programs.network.about
        arrays: dict[str, Array] = {}
        if self.condition is not None and about.condition is not None:
            arrays[about.condition.name] = self.condition
        if self.windows is not None:
            arrays[WINDOW] = self.windows
        return {name: array for name, array in arrays.items() if name not in (about.state.name, about.decoded.name)}

    @property
    def units(self) -> str:
        """The units of decoded samples, in words."""
        if self.restore is not None:
            return f"in the units of the data, by {self.restore.name}"
        return getattr(self.sampler.programs.network.about.decoding, "units", "")

    def draw(self, chunk: int | None = None, start: int = 0, done: Done | None = None) -> Iterator[Samples]:
        """Samples number ``start`` to ``count``, ``chunk`` at a time, or a batch at a time if it is not given.

        The size of a batch is rounded up to a multiple of the number of devices; the last batch is padded, and cut
        afterwards.
        """
        batch = self.sampler.batch(min(self.batch, self.count))
        chunk = batch if chunk is None else chunk
        waiting: list[Samples] = []
        there = 0
        for samples in self._batches(batch, start, done):
            waiting.append(samples)
            there += len(samples)
            # Chunks need not be multiples of a batch.
            while there >= chunk:
                joined = Samples.join(waiting)
                yield joined.part(0, chunk)
                waiting, there = [joined.part(chunk, there)], there - chunk
        if there:
            yield Samples.join(waiting)

    def _batches(self, batch: int, start: int, done: Done | None) -> Iterator[Samples]:
        """The part of every batch between ``start`` and ``count``."""
        # A resumed run draws the batch of its first sample again, so that every sample is in the same place of the same
        # batch as in a run without an interruption.
        for begin in range(start - start % batch, self.count, batch):
            indices = np.arange(begin, begin + batch)
            # The last batch is filled up with the inputs of the last sample.
            rows = np.minimum(indices, self.count - 1)
            samples = self.sampler.run(
                indices,
                None if self.init is None else self.init[rows],
                None if self.tape is None else self.tape[:, rows],
                None if done is None else _within(done, begin, min(batch, self.count - begin)),
                None if self.condition is None else self.condition[rows],
            )
            first, stop = max(start - begin, 0), self.count - begin
            part = samples.part(first, stop)
            yield part if self.restore is None else self.restore(part, indices[first:stop])


def plan_job(programs: Programs, request: Request) -> Job:
    """The job of a request; raises :class:`UsageError` if the network cannot do it."""
    if request.guidance is not None:
        programs = programs.over(guided(programs.network, request.guidance))
    network, has_known = programs.network, request.known is not None
    repeats = resampling(request.resample, has_known)
    try:
        plan = plan_of(network, request.sampler, request.steps, request.eta, repeats, has_known, request.spacing)
    except UsageError as error:
        if error.where != "resample" or request.resample is not None:
            raise
        what = f"takes every step {repeats} times by default, and {error.what}"
        raise UsageError("known", what, error.fix) from None
    init = _checked_input(request, "init", request.init, ("n", *network.shape))
    tape = _checked_input(request, "noise", request.noise, (plan.slots, "n", *network.shape))
    count = _count(request.count, init, tape)
    drawn = drawn_windows(network.about, request, count)
    condition = checked_condition(network.about, request, count, drawn)
    restore = restoring(network.about, request, drawn, condition)
    if request.known is not None:
        # Not before the condition and the windows are known: they determine the units of known values.
        programs = programs.over(with_known(network, request.known, None if restore is None else restore.normalized()))
    sampler = Sampler(programs, plan, request.seed, spread_over(request.devices, request.shard_weights))
    require_within(COUNT, batch=request.batch)
    batch = sampler.auto_batch(count) if request.batch is None else int(request.batch)
    return Job(sampler, count, batch, init, tape, condition, restore, drawn)


def _checked_input(request: Request, name: str, values: ArrayLike | None, shape: tuple[int | str, ...]) -> Array | None:
    return None if values is None else checked_array(request.called.get(name, name), values, shape)


def checked_array(name: str, values: ArrayLike, shape: tuple[int | str, ...]) -> Array:
    """``values`` as a finite array of this shape, "n" for any length; raises :class:`UsageError` otherwise."""
    array = np.asarray(values)
    fits = array.ndim == len(shape) and all(a == b or b == "n" for a, b in zip(array.shape, shape, strict=True))
    if not fits or 0 in array.shape[shape.index("n") :]:
        expected_shape = ", ".join(map(str, shape))
        raise UsageError(name, f"has shape {array.shape}", f"give ({expected_shape}) for this model and sampler")
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise UsageError(name, "has values that are not finite", "give finite real numbers")
    if (largest := float(np.abs(array).max(initial=0))) > FURTHEST:
        raise UsageError(name, f"has values up to {largest:.3g}", "give standard normal noise")
    return array


def _count(n: int | None, init: Array | None, tape: Array | None) -> int:
    """The number of samples, on which everything given must agree."""
    require_within(COUNT, n=n)
    lengths = {"n": n, "init": None if init is None else len(init), "noise": None if tape is None else tape.shape[1]}
    counts = {name: int(count) for name, count in lengths.items() if count is not None}
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name} is for {count}" for name, count in counts.items())
        raise UsageError("n", listing, "give the same number of samples everywhere")
    count = next(iter(counts.values()), 1)
    if count > MOST:
        raise UsageError("n", f"{count} is more than the samples of one seed", f"give at most {MOST}, and another seed")
    return count


def _within(done: Done, begin: int, size: int) -> Callable[[int, int], None]:
    return lambda rows, total: done(begin + size * rows / total)
