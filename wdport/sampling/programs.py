"""The compiled programs of a network, shared by all plans with segments of the same length."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import Array as Tensor

from wdport.compile_cache import Option, fast_run, weakly
from wdport.diffusion.noise import FIRST, sample_keys, step_noise
from wdport.diffusion.scan import Carry, Draw, Rows, first_carry, run_rows
from wdport.diffusion.schedules import Array
from wdport.families.roles import Tree
from wdport.model import KerasModel
from wdport.sampling.network import Network, fast_network, spec

SEGMENT = 64
"""Rows that run without returning to Python, which can report progress and be interrupted in between."""


class Programs:
    """The steps of sampling, each compiled once per batch size.

    ``start(seed, indices)`` draws x_T, ``carry(state)`` is the initial carry of the first row, ``drawn(weights, rows,
    carry, condition, seed, indices)`` and ``taped(weights, rows, carry, condition, tape)`` carry it through some rows,
    and ``finish(weights, state)`` returns the state and its decoded form. ``options`` are those of the compiler for the
    steps, by default of :func:`wdport.compile_cache.fast_run`; ``segment`` is the largest number of rows of a call.
    """

    def __init__(self, network: Network, options: dict[str, Option] | None = None, segment: int = SEGMENT) -> None:
        self.network, self._options = network, fast_run() if options is None else options
        self.segment = segment
        self._ahead: set[tuple[int, int, bool, bool]] = set()
        self.start = jax.jit(weakly(self._start))
        self.carry = jax.jit(first_carry)
        self.drawn = jax.jit(weakly(self._drawn), compiler_options=self._options)
        self.taped = jax.jit(weakly(self._taped), compiler_options=self._options)
        self.finish = jax.jit(network.finish)

    def over(self, network: Network) -> Programs:
        """The programs of another network, compiled with the same options."""
        return Programs(network, self._options, self.segment)

    def lower_ahead(
        self, batch: int, rows: Rows, slots: Array | None, conditioned: bool = False
    ) -> tuple[jax.stages.Lowered, ...]:
        """Compile ``drawn``, or ``taped`` if there are ``slots``, and ``finish`` for a batch and rows, before the
        weights exist.

        jax keeps the programs, so they are not compiled again. Does nothing the second time, or if the network's weight
        shapes are unknown before the weights are loaded.
        """
        key = (batch, len(rows.times), slots is None, conditioned)
        if self.network.specs is None or key in self._ahead:
            return ()
        self._ahead.add(key)
        state = spec((batch, *self.network.shape), self.network.dtype)
        declared, condition = self.network.about.condition, None
        if declared is not None and conditioned:
            condition = spec((batch, *declared.shape), declared.dtype or self.network.dtype)
        weights = self.network.specs(batch)
        arguments, finish = (weights, rows, (state, state, state), condition), self.finish.lower(weights, state)
        if slots is not None:
            return self.taped.lower(*arguments, slots), finish
        return self.drawn.lower(*arguments, spec((), np.uint32), spec((batch,), np.uint32)), finish

    def _start(self, seed: Tensor, indices: Tensor) -> Tensor:
        return step_noise(sample_keys(seed, indices), FIRST, self.network.shape, self.network.dtype)

    def _drawn(
        self, weights: Tree, rows: Rows, carry: Carry, condition: Tensor | None, seed: Tensor, indices: Tensor
    ) -> Carry:
        keys = sample_keys(seed, indices)
        shape, dtype = self.network.shape, self.network.dtype
        return self._run(weights, rows, carry, condition, lambda step: step_noise(keys, step, shape, dtype))

    def _taped(self, weights: Tree, rows: Rows, carry: Carry, condition: Tensor | None, tape: Tensor) -> Carry:
        return self._run(weights, rows, carry, condition, tape)

    def _run(self, weights: Tree, rows: Rows, carry: Carry, condition: Tensor | None, noise: Tensor | Draw) -> Carry:
        network, embedded = self.network, self.network.embed(weights, rows.times)
        return run_rows(lambda x, e: network.apply(weights, x, e, condition), rows, carry, noise, embedded=embedded,
                        change=network.changing(weights))[0]  # fmt: skip


_PROGRAMS: WeakKeyDictionary[KerasModel, dict[int, Programs]] = WeakKeyDictionary()


def programs_of(model: KerasModel, pad_widths: int = 1) -> Programs:
    """The programs of a Keras model, made once per model; they do not keep its weights alive.

    Raises :class:`UsageError` for models that are not diffusion models, and for invalid ``pad_widths``.
    """
    try:
        return _PROGRAMS[model][pad_widths]
    except (KeyError, TypeError):  # new, or not weakly referenceable, and so not a model
        programs = Programs(fast_network(model, pad_widths))
        _PROGRAMS.setdefault(model, {})[pad_widths] = programs
        return programs
