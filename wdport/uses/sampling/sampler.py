"""Samples as arrays, the compiled programs of a network, and the runs of a plan by them: sample indices become samples.

Everything happens on the device: the first state, the scan, the noise, decoding into the units of the data. Results
come back as numpy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import Array as Tensor

from wdport.base.jax_settings import Option, fast_run, weakly
from wdport.models.interface import Array, KerasModel
from wdport.uses.diffusion.noise import FIRST, check_seed, lay_out, sample_keys, step_noise
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.run_plan import Carry, Draw, PlanRows, first_carry, plan_rows, run_rows
from wdport.uses.roles import Tree
from wdport.uses.sampling.devices import DeviceSpread, auto_batch
from wdport.uses.sampling.network import Network, keras_network, spec

Done = Callable[[float], None]
"""Called with the number of finished samples, including fractions."""


@dataclass(frozen=True, eq=False)
class Samples:
    """``state`` (n, *shape) in standard units, and ``decoded``, None if states are not decoded.

    Both are also attributes under the family's ``names``. ``decoded`` is in the units of the data if the model holds
    their mean and standard deviation, otherwise in standard units. ``features`` are the names of the features
    along the last axis of both; empty if the model has none. ``given`` contains the values with which every sample was
    drawn: the condition under its name, such as "scale" or "labels", and under "window" the index of the window of the
    training data whose statistics convert the sample to the units of the data.
    """

    state: Array
    decoded: Array | None
    names: tuple[str, str] = ("state", "decoded")
    features: tuple[str, ...] = ()
    given: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.state)

    def __repr__(self) -> str:
        arrays = (f"{name} {array.dtype}{list(array.shape)}" for name, array in self.arrays.items())
        return f"Samples({', '.join([f'{len(self)}', *arrays, *([repr(self.features)] if self.features else [])])})"

    def __getattr__(self, name: str) -> Any:
        # From the dictionary: copying and unpickling ask for attributes before there are any, and would recurse.
        names = self.__dict__.get("names", ())
        if name not in names:
            raise AttributeError(f"samples have no {name!r}; they have {', '.join(names)}")
        return (self.state, self.decoded)[names.index(name)]

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays that exist, by the family's names."""
        both = zip(self.names, (self.state, self.decoded), strict=True)
        return {name: array for name, array in both if array is not None}

    @staticmethod
    def join(parts: Sequence[Samples]) -> Samples:
        decoded = [part.decoded for part in parts if part.decoded is not None]
        states = np.concatenate([part.state for part in parts])
        return Samples(states, np.concatenate(decoded) if decoded else None, parts[0].names, parts[0].features)

    def part(self, start: int, stop: int) -> Samples:
        """The samples from ``start`` to ``stop`` (exclusive)."""
        decoded = None if self.decoded is None else self.decoded[start:stop]
        return Samples(self.state[start:stop], decoded, self.names, self.features)


SEGMENT = 64
"""Rows that run without returning to Python, which can report progress and be interrupted in between."""


class Programs:
    """The steps of sampling, each compiled once per batch size.

    ``start(seed, indices)`` draws x_T, ``carry(state)`` is the initial carry of the first row, ``drawn(weights, rows,
    carry, condition, seed, indices)`` and ``taped(weights, rows, carry, condition, tape)`` carry it through some rows,
    and ``finish(weights, state)`` returns the state and its decoded form. ``options`` are those of the compiler for the
    steps, by default of :func:`wdport.base.jax_settings.fast_run`; ``segment`` is the largest number of rows of a call.
    """

    def __init__(self, network: Network, options: dict[str, Option] | None = None, segment: int = SEGMENT) -> None:
        self.network, self._options = network, fast_run() if options is None else options
        self.segment = segment
        self._ahead: set[tuple[int, int, bool, bool]] = set()
        self.start = jax.jit(weakly(self._start))
        self.carry = jax.jit(first_carry)
        self.drawn = jax.jit(weakly(self._drawn), compiler_options=self._options)
        self.taped = jax.jit(weakly(self._taped), compiler_options=self._options)
        # Without the options of the steps: it runs once per batch.
        self.finish = jax.jit(network.finish)

    def over(self, network: Network) -> Programs:
        """The programs of another network, compiled with the same options."""
        return Programs(network, self._options, self.segment)

    def lower_ahead(
        self, batch: int, rows: PlanRows, slots: Array | None, conditioned: bool = False
    ) -> tuple[jax.stages.Lowered, ...]:
        """Lower ``drawn``, or ``taped`` if there are ``slots``, and ``finish`` for a batch and rows, from the shapes of
        the weights if these are known before the weights.

        jax keeps the compiled programs, so they are not compiled again. Does nothing the second time.
        """
        key = (batch, len(rows.times), slots is None, conditioned)
        if key in self._ahead:
            return ()
        self._ahead.add(key)
        state = spec((batch, *self.network.shape), self.network.dtype)
        declared, condition = self.network.about.condition, None
        if declared is not None and conditioned:
            condition = spec((batch, *declared.shape), declared.dtype or self.network.dtype)
        weights = self.network.weights() if self.network.specs is None else self.network.specs()
        arguments, finish = (weights, rows, (state, state, state), condition), self.finish.lower(weights, state)
        if slots is not None:
            return self.taped.lower(*arguments, slots), finish
        return self.drawn.lower(*arguments, spec((), np.uint32), spec((batch,), np.uint32)), finish

    def _start(self, seed: Tensor, indices: Tensor) -> Tensor:
        return step_noise(sample_keys(seed, indices), FIRST, self.network.shape, self.network.dtype)

    def _drawn(
        self, weights: Tree, rows: PlanRows, carry: Carry, condition: Tensor | None, seed: Tensor, indices: Tensor
    ) -> Carry:
        keys = sample_keys(seed, indices)
        shape, dtype = self.network.shape, self.network.dtype
        return self._run(weights, rows, carry, condition, lambda step: step_noise(keys, step, shape, dtype))

    def _taped(self, weights: Tree, rows: PlanRows, carry: Carry, condition: Tensor | None, tape: Tensor) -> Carry:
        return self._run(weights, rows, carry, condition, tape)

    def _run(
        self, weights: Tree, rows: PlanRows, carry: Carry, condition: Tensor | None, noise: Tensor | Draw
    ) -> Carry:
        network = self.network
        return run_rows(lambda x, times: network.apply(weights, x, times, condition), rows, carry, noise,
                        change=network.changing(weights))[0]  # fmt: skip


_PROGRAMS: WeakKeyDictionary[KerasModel, Programs] = WeakKeyDictionary()


def programs_of(model: KerasModel) -> Programs:
    """The programs of a Keras model, made once per model; they do not keep its weights alive.

    Raises :class:`UsageError` for models that are not diffusion models.
    """
    try:
        return _PROGRAMS[model]
    except (KeyError, TypeError):  # new, or not weakly referenceable, and so not a model
        programs = _PROGRAMS[model] = Programs(keras_network(model))
        return programs


Report = Callable[[int, int], None]
"""Called with (rows done, total rows) of a batch."""


def plan_of(
    network: Network,
    sampler: str | None = None,
    steps: int | None = None,
    eta: float = 0.0,
    resample: int = 1,
    has_known: bool = False,
    spacing: str | None = None,
) -> SamplingPlan:
    """A sampler's plan for a network, its default sampler if none is named; every step is taken ``resample`` times, and
    its clean state is changed if some values are known (``has_known``). ``spacing`` chooses other steps than the
    checkpoint's code.

    Raises :class:`UsageError` for invalid settings.
    """
    process = network.process()
    if spacing is not None:
        process = process.respaced(spacing, steps)
    return process.plan(sampler, steps, eta, resample, has_known or network.change is not None)


@dataclass(frozen=True, eq=False)
class Sampler:
    """Runs one plan on batches of samples; ``spread``, if given, divides every batch among devices."""

    programs: Programs
    plan: SamplingPlan
    seed: int = 0
    spread: DeviceSpread | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def run(
        self,
        indices: Array,
        init: Array | None = None,
        tape: Array | None = None,
        report: Report | None = None,
        condition: Array | None = None,
    ) -> Samples:
        """The samples with these indices (B,).

        Args:
            indices: indices of the samples; with the seed they determine everything that is not given. With several
                devices, B is a multiple of their number (:meth:`batch`), and all processes pass and get the same.
            init: x_T (B, *shape) to start from.
            tape: noise (slots, B, C, F), one slot for every noisy row of the plan.
            report: called with the progress of the batch, after every call of the programs, and when compiling is done.
            condition: values (B, ...) of the network's condition, if it is called with one.
        """
        programs = self.programs
        with jax.enable_x64(programs.network.dtype == "float64"):
            segments = list(self.segments(tape))
            with self._compiling(len(indices), *segments[0][:2], condition is not None):
                weights = self._weights()
                numbers, seed = self._placed(indices.astype(np.uint32)), np.uint32(self.seed)
                start = programs.start(seed, numbers) if init is None else self._placed(self._cast(init))
                carry = programs.carry(start)
                condition_input = None if condition is None else self._placed(self.as_input(condition))
            if report and not self.spread:  # over devices the first segment compiles
                report(0, len(self.plan.steps))
            for rows, slots, done in segments:
                if self.spread:  # where the last segment left it, or where it must be: otherwise it would compile again
                    carry = self.spread.place(carry)
                if slots is None:
                    carry = programs.drawn(weights, rows, carry, condition_input, seed, numbers)
                else:
                    carry = programs.taped(weights, rows, carry, condition_input, self._placed(slots, 1))
                # jax returns before it has computed: without waiting, progress and signals are handled only at the end.
                carry[0].block_until_ready()
                if report:
                    report(done, len(self.plan.steps))
            state, decoded = programs.finish(weights, carry[0])
            about = programs.network.about
            names = about.state.name, about.decoded.name
            series = None if decoded is None else self._gathered(decoded)
            return Samples(self._gathered(state), series, names, about.features)

    def batch(self, samples: int) -> int:
        """The size of a batch for ``samples`` samples: a multiple of the number of devices."""
        return samples if self.spread is None else self.spread.batch(samples)

    def auto_batch(self, count: int) -> int:
        """The size of batches that fit into memory."""
        memories, network = 1 if self.spread is None else self.spread.memories, self.programs.network
        return self.batch(auto_batch(network.about.numbers, network.dtype, count, memories))

    @contextmanager
    def _compiling(self, batch: int, rows: PlanRows, slots: Array | None, conditioned: bool) -> Iterator[None]:
        """On the first call, compile the steps while the block makes the weights and the first state."""
        lowered = () if self.spread else self.programs.lower_ahead(batch, rows, slots, conditioned)
        if not lowered:
            yield
            return
        # One thread compiles while this one loads the weights.
        with ThreadPoolExecutor(1) as pool:
            compiled = [pool.submit(program.compile) for program in lowered]
            yield
            for future in compiled:
                future.result()

    def segments(self, tape: Array | None) -> Iterator[tuple[PlanRows, Array | None, int]]:
        """Rows, their slots of the tape, and the number of rows done after them; all segments have one length."""
        count = len(self.plan.steps)
        length = segment_length(count, self.programs.segment)
        plan = self.plan.padded(count + -count % length)
        rows = plan_rows(plan, self.programs.network.dtype)
        laid = None if tape is None else self._cast(lay_out(tape, plan.noisy))
        for begin in range(0, len(plan.steps), length):
            part = slice(begin, begin + length)
            yield (
                rows.part(part),
                None if laid is None else laid[part],
                min(part.stop, count),
            )

    def as_input(self, condition: Array) -> Array:
        """Values of a condition in the dtype of the network's input."""
        return condition if condition.dtype.kind == "i" else self._cast(condition)

    def _cast(self, values: Array) -> Array:
        return np.asarray(values).astype(self.programs.network.dtype)

    def _placed(self, values: Array, axis: int = 0) -> Tensor:
        """This process's part of all samples, which are along ``axis``, on its devices."""
        placed: Tensor = (
            jax.device_put(values) if self.spread is None else self.spread.place(self.spread.own(values, axis), axis)
        )
        return placed

    def _weights(self) -> Tree:
        weights = self.programs.network.weights()
        return weights if self.spread is None else self.spread.weights(weights)

    def _gathered(self, values: Tensor) -> Array:
        return np.asarray(values) if self.spread is None else self.spread.gather(values)


def segment_length(count: int, limit: int = SEGMENT) -> int:
    """Rows per segment: all of them if they are few, otherwise the length that needs the least padding."""
    if count <= limit:
        return count
    # A padded row calls the network as any other. Of equal paddings, the longest segment makes the fewest calls.
    return min(range(limit // 2 + 1, limit + 1), key=lambda length: (-count % length, -length))
