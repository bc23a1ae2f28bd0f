"""Carry out a plan in bounded memory, in threads of a pipeline: yield the stored bytes of every variable, in the
order of the files, or whole arrays of them.

numpy, hashlib and the system's reads and writes release the GIL, so the stages run in parallel. A stage is at most one
item ahead of the next one, and the number of buffers is fixed, which bounds the memory.

Three stages run in parallel: reading, conversion (checks, rule, dtype), and the consumer, which writes the pieces.
Values whose dtype does not change are moved as bits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from math import prod
from queue import Empty, Queue
from threading import Event
from typing import Any, Final, TypeVar

import numpy as np

from wdport.base.errors import MisfitError
from wdport.checkpoint.source import decode, strided
from wdport.checkpoint.tensor import ITEMSIZE, NUMPY
from wdport.conversion.buffer_steps import Budget, BufferStep, Range, SizedMove, aligned, all_steps, slowest
from wdport.conversion.prepare import Prepared
from wdport.conversion.rounding import FLOATS, Cast, is_nonfinite
from wdport.conversion.values import See, require_equal_ties, require_finite
from wdport.files.safetensors_writer import PlannedTensor
from wdport.mapping.axes import Shape
from wdport.mapping.moves import Move
from wdport.mapping.rearrange import copy_blocks, rearrangement
from wdport.models.interface import Array

T = TypeVar("T")

_WAIT: Final = 0.1
"""Seconds between a waiting stage's checks of whether the pipeline was stopped."""


class StageEnded(Exception):
    """Another stage has ended; the result of this one is not needed."""


class Buffers:
    """Reusable buffers of ``size`` bytes; their pages are first touched when needed."""

    def __init__(self, count: int, size: int, stop: Event) -> None:
        self._free: Queue[Array] = Queue()
        self._stop = stop
        for _ in range(count):
            # Not zeros: pages that no tensor needs are never allocated.
            self._free.put(np.empty(size, np.uint8))

    def take(self) -> Array:
        """Wait for a free buffer and return it; raises :class:`StageEnded`."""
        while not self._stop.is_set():
            try:
                return self._free.get(timeout=_WAIT)
            except Empty:
                continue
        raise StageEnded

    def give(self, buffer: Array) -> None:
        """Return a buffer for reuse."""
        self._free.put(buffer)


def prefetch(items: Generator[T], stop: Event) -> Generator[T]:
    """Yield the same items, produced in another thread, one ahead of the consumer.

    An exception in the thread is raised here. When this iterator ends or is closed by one, ``stop`` is set, so that no
    stage waits for a buffer of another that has ended; then the thread has ended, and ``items`` are closed.
    """
    end: Any = object()
    with closing(items), ThreadPoolExecutor(1) as pool:
        ahead: Future[T] = pool.submit(next, items, end)
        try:
            while (item := ahead.result()) is not end:
                ahead = pool.submit(next, items, end)
                yield item
        except BaseException:
            stop.set()
            raise


USUAL = 1 << 30
"""Default bytes for tensors; more if a tensor cannot be divided."""


@dataclass(frozen=True)
class Piece:
    """Consecutive bytes of a variable, beginning at byte ``start``; ``release``, if any, frees their memory for reuse.

    ``done`` is the number of processed bytes of the checkpoint's tensors.
    """

    name: str
    start: int
    data: memoryview
    release: Callable[[], None] | None
    done: int


@dataclass
class _Read:
    """The data of one step: arrays of stored values in a buffer."""

    step: BufferStep
    buffer: Array
    arrays: list[Array]


Progress = Callable[[int, int], None]
"""Called with the processed bytes of the checkpoint's tensors, and with all of them."""


@dataclass
class VariableStream:
    """The variables of a planned conversion as pieces. ``dtypes`` are their stored dtypes, float32 if there are none.

    Raises ``UsageError`` if ``memory``, in bytes, is too small, and ``MisfitError`` for tensors that are not
    floating point; see :meth:`pieces` for the other errors.
    """

    prepared: Prepared
    dtypes: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None
    allow_nonfinite: bool = False
    cast: bool = False
    see: See = lambda name, array, dtype: None
    """Called with every stored tensor, or piece of one."""
    read: Callable[[], None] = lambda: None
    """Called after each read into a buffer, before the buffer is reused."""

    def __post_init__(self) -> None:
        checkpoint, plan = self.prepared.checkpoint, self.prepared.plan
        self.dtypes = self.dtypes or dict.fromkeys(self.prepared.variables, "float32")
        # In the order of the file, so that reads are sequential and its hash needs no second read.
        moves = sorted(plan.moves, key=lambda move: min(map(checkpoint.place, move.sources)))
        for name in (name for move in moves for name in move.sources):
            if (dtype := checkpoint.tensors[name].dtype) not in FLOATS:
                fix = "check the table's row for it"
                raise MisfitError((checkpoint.path, name), f"is {dtype}, not floating point", fix)
        shaped = [self._shaped(move) for move in moves]
        # By default a tensor that cannot be divided is allowed its memory; with --max-memory it is refused.
        usual = max([USUAL, *(move.undivided for move in shaped if not move.divisible)])
        self._budget = Budget(
            # No more than the largest tensor needs: buffers are as large as the budget allows.
            min(self.memory or usual, max([Budget.for_buffer(1 << 20), *(e.undivided for e in shaped)]))
        )
        self._steps = all_steps(shaped, self._budget)
        self.total = sum(checkpoint.tensors[name].nbytes for move in moves for name in move.sources)
        self.entries = [
            PlannedTensor(name, self.dtypes[name], self.prepared.variables[name])
            for move in moves
            for name in move.targets
        ]
        self.entries += [PlannedTensor(fill.target, self.dtypes[fill.target], fill.shape) for fill in plan.fills]
        self._stop = Event()
        self._inputs, self._outputs = (Buffers(2, self._budget.buffer, self._stop) for _ in "ab")
        self._casts: dict[str, Cast] = {}

    def pieces(self) -> Generator[Piece]:
        """Yield every variable once, in the order of :attr:`entries`.

        Raises ``InputError`` for a NaN or infinity and ``MisfitError`` for values that the dtype cannot hold, unless
        these are allowed; and ``InputError`` if the file was changed meanwhile.
        """
        require_equal_ties(self.prepared)
        yield from prefetch(self._change(prefetch(self._read(), self._stop)), self._stop)
        yield from self._constants()
        self.prepared.checkpoint.require_unchanged()

    def arrays(self, progress: Progress | None = None) -> Generator[tuple[str, Array]]:
        """Yield the path and the values of every variable, owned, in the order of :attr:`entries`; raises as
        :meth:`pieces` does."""
        entries, array = {entry.name: entry for entry in self.entries}, np.empty(0)
        with closing(self.pieces()) as pieces:
            for piece in pieces:
                entry, end = entries[piece.name], piece.start + len(piece.data)
                if not piece.start:
                    array = np.empty(entry.shape, NUMPY[entry.dtype])
                array.reshape(-1).view(np.uint8)[piece.start : end] = piece.data
                if piece.release is not None:
                    piece.release()
                if end == entry.nbytes:
                    yield entry.name, array
                if progress:
                    progress(piece.done, self.total)

    def _constants(self) -> Iterator[Piece]:
        """The variables that no tensor fills."""
        for fill in self.prepared.plan.fills:
            dtype = self.dtypes[fill.target]
            block = np.ascontiguousarray(Cast("float32", dtype)(fill.array)).reshape(-1).view(np.uint8)
            yield Piece(fill.target, 0, block.data, None, self.total)

    def _shaped(self, move: Move) -> SizedMove:
        tensors = tuple(self.prepared.checkpoint.tensors[name] for name in move.sources)
        return SizedMove(move, tensors, tuple((self.prepared.variables[n], self.dtypes[n]) for n in move.targets))

    def _read(self) -> Generator[_Read]:
        for step in self._steps:
            buffer = self._inputs.take()
            arrays = self._arrays(step, buffer)
            self.read()
            yield _Read(step, buffer, arrays)

    def _arrays(self, step: BufferStep, buffer: Array) -> list[Array]:
        checkpoint = self.prepared.checkpoint
        if step.source is not None:
            return [self._part(step, step.source, buffer)]
        arrays, start = [], 0
        for name in step.move.sources:
            ref = checkpoint.tensors[name].ref
            if name in self.prepared.recomputed:
                constant = self.prepared.constants[self.prepared.plan.checks[name]]
                arrays.append(constant.values.astype(np.float32))
                continue
            run = buffer[start : start + ref.extent * ITEMSIZE[ref.dtype]]
            if run.size:
                checkpoint.read_run(name, 0, run.data, once=True)
            arrays.append(strided(run.view(NUMPY[ref.dtype]), ref))
            start += aligned(run.size)
        return arrays

    def _part(self, step: BufferStep, part: Range, buffer: Array) -> Array:
        """Return a range of the slowest axis of the step's tensor, with an axis for every name of the rule."""
        name = step.move.source
        dtype = self.prepared.checkpoint.tensors[name].dtype
        sizes = _cut(step.sizes, slowest(step.rule.source, step.sizes), part)
        inner = prod(sizes.values()) // (part[1] - part[0])
        run = buffer[: prod(sizes.values()) * ITEMSIZE[dtype]]
        self.prepared.checkpoint.read_run(name, part[0] * inner, run.data, once=step.once)
        return run.view(NUMPY[dtype]).reshape([sizes[n] for n in step.rule.source.names])

    def _change(self, read: Generator[_Read]) -> Generator[Piece]:
        done, output = 0, None
        for loaded in read:
            step, names = loaded.step, loaded.step.move.sources
            self._require_finite(loaded)
            target = self.dtypes[step.move.targets[0]]
            casts = [self._casts.setdefault(name, Cast(self._dtype(name), target)) for name in names]
            done += sum(self.prepared.checkpoint.tensors[name].nbytes for name in names) if step.ends else 0
            if not step.move.exact:
                arrays = self._combined(step.move, loaded.arrays, casts)
                self._inputs.give(loaded.buffer)
                yield from self._pieces(step, arrays, None, None, done)
            # The bytes stay what they are: the buffer itself is passed to the writer, without a copy.
            elif _passes(step) and loaded.arrays[0].flags.c_contiguous and not casts[0].needed:
                yield from self._pieces(step, loaded.arrays, loaded.buffer, self._inputs, done)
            else:
                # A strip is filled by several reads, so its buffer stays until the last one.
                output = self._outputs.take() if output is None else output
                arrays = self._fill(step, loaded.arrays, casts, output)
                self._inputs.give(loaded.buffer)
                if step.last:
                    # Before the bytes are passed on: nothing that lost a value is written.
                    self._require_lossless(step, casts)
                    yield from self._pieces(step, arrays, output, self._outputs, done)
                    output = None

    def _dtype(self, name: str) -> str:
        """Return the dtype of a source as :meth:`_arrays` returns it."""
        return "float32" if name in self.prepared.recomputed else self.prepared.checkpoint.tensors[name].dtype

    def _fill(self, step: BufferStep, arrays: list[Array], casts: list[Cast], output: Array) -> list[Array]:
        """Compute the step's variables into ``output`` and return their arrays."""
        shapes = [self.prepared.variables[name] for name in step.move.targets]
        if step.source is None or step.target is None:
            variables = _views(output, shapes, self.dtypes[step.move.targets[0]])
            for target, source in rearrangement(step.rule, step.sizes, arrays, variables):
                copy_blocks(target, source, casts[0] if casts[0].needed else None)
            return variables
        names = step.rule.target.names
        ours, theirs = slowest(step.rule.target, step.sizes), slowest(step.rule.source, step.sizes)
        strip = tuple(_cut(step.sizes, ours, step.target)[name] for name in names)
        (strip_array,) = _views(output, [strip], self.dtypes[step.move.targets[0]])
        source = arrays[0].transpose([step.rule.source.names.index(name) for name in names])
        target = strip_array
        if ours != theirs:
            target = target[tuple(slice(*step.source) if name == theirs else slice(None) for name in names)]
            source = source[tuple(slice(*step.target) if name == ours else slice(None) for name in names)]
        copy_blocks(target, source, casts[0] if casts[0].needed else None)
        return [strip_array]

    def _combined(self, move: Move, arrays: list[Array], casts: list[Cast]) -> list[Array]:
        """Combine stored values by arithmetic, rounded once, to float32."""
        for cast, array in zip(casts, arrays, strict=True):
            # Only to detect what float32 cannot hold; the arithmetic below starts from the stored values.
            single = Cast(cast.source, "float32")
            single(array)
            self._require_single(cast.source, single, move.sources[casts.index(cast)])
        combined = move.apply([decode(array, cast.source) for cast, array in zip(casts, arrays, strict=True)])
        last = Cast("float32", casts[0].target)
        stored = [np.ascontiguousarray(last(array)) for array in combined]
        self._require_held(last, move.sources[0])
        return stored

    def _pieces(
        self, step: BufferStep, arrays: list[Array], buffer: Array | None, owner: Buffers | None, done: int
    ) -> Iterator[Piece]:
        """Yield the arrays of a step's variables as pieces; ``buffer`` is free again after the last."""
        for name, array in zip(step.move.targets, arrays, strict=True):
            data = array.reshape(-1).view(np.uint8).data
            start = 0
            if step.target is not None:
                size = prod(self.prepared.variables[name]) * ITEMSIZE[self.dtypes[name]]
                start = size // step.sizes[slowest(step.rule.target, step.sizes)] * step.target[0]
            release = None
            if buffer is not None and owner is not None and name == step.move.targets[-1]:
                release = partial(owner.give, buffer)
            yield Piece(name, start, data, release, done)

    def _require_finite(self, read: _Read) -> None:
        # A tensor that is read for several strips is examined once.
        if read.step.again:
            return
        for name, array in zip(read.step.move.sources, read.arrays, strict=True):
            dtype = self._dtype(name)
            self.see(name, array, dtype)
            require_finite(self.prepared, name, self.allow_nonfinite or not is_nonfinite(array, dtype))

    def _require_lossless(self, step: BufferStep, casts: list[Cast]) -> None:
        """Raise ``MisfitError`` if the change of dtype lost values."""
        for name, cast in zip(step.move.sources, casts, strict=True):
            if step.ends:
                self._require_held(cast, name)
            self._require_single(cast.source, cast, name)

    def _require_single(self, source: str, cast: Cast, name: str) -> None:
        if cast.inexact and not self.cast:
            what, fix = "has float64 values that float32 cannot hold", "accept the rounding with `--cast`"
            raise MisfitError((self.prepared.checkpoint.path, name), what, fix)

    def _require_held(self, cast: Cast, name: str) -> None:
        if cast.lost:
            values = "value" if cast.lost == 1 else "values"
            what = f"{cast.lost} {values} overflow {cast.target}, the largest {cast.largest:.6g}"
            other = "bfloat16 or float32" if cast.target == "float16" else "float32"
            raise MisfitError((self.prepared.checkpoint.path, name), what, f"use `--dtype {other}`")


def _passes(step: BufferStep) -> bool:
    """Return whether the bytes of the tensor are those of the variable."""
    ours, theirs = step.rule.target, step.rule.source
    return ours.any_axes or (ours.names == theirs.names and not (ours.stacked or theirs.stacked or step.rule.orders))


def _cut(sizes: Mapping[str, int], name: str, part: Range) -> dict[str, int]:
    return {**sizes, name: part[1] - part[0]}


def _views(buffer: Array, shapes: Sequence[Shape], dtype: str) -> list[Array]:
    """Return arrays of these shapes in a buffer, one after another."""
    arrays, start = [], 0
    for shape in shapes:
        size = prod(shape) * ITEMSIZE[dtype]
        arrays.append(buffer[start : start + size].view(NUMPY[dtype]).reshape(shape))
        start += aligned(size)
    return arrays
