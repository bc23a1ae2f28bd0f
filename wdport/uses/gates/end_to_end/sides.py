"""Compare named arrays of the two sides of a use: what the verb's program returns, and what a plain loop does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

import numpy as np

from wdport.base.errors import MachineError, UsageError
from wdport.compare.findings import GATES, Finding, Gate, Measure, fact, measure, notice
from wdport.compare.gate_bounds import BOUNDS, LEAK, NUMERICS
from wdport.compare.measure import ErrorPair, relative_l2
from wdport.models.interface import Array

Side = Callable[[], Array]


class UseMeasures:
    """The measures of one gate; ``bound`` is the name of the bound of its float64 errors."""

    def __init__(self, bound: str) -> None:
        self._bound = bound
        self._measures: dict[str, list[Measure]] = {"numerics": [], bound: []}
        self.facts: list[Finding] = []
        self.expected = 0

    def add(self, name: str, program: Side, plain: Array, moved: Side | None = None) -> None:
        """The result of a program, in float64 or of whole numbers, and that of a plain loop.

        ``moved`` is the loop's result if what it begins with is moved by one rounding, which may explain a small error:
        a sampler that divides by the last step's signal multiplies rounding by a million.
        """
        with self._refusals(name):
            kind, error = _difference(program(), plain)
            # The loop is run again only for an error between the two bounds.
            if moved is not None and not error <= BOUNDS[self._bound].value and error <= LEAK:
                spread = NUMERICS * relative_l2(moved(), plain)
                if error <= spread:
                    text = f"ill-conditioned: {name}, off by {error:.1e}, as after one rounding"
                    self.facts.append(notice(text, name))
                    error = 0.0
            self._measures[self._bound].append(measure(name, kind, error, self._bound))

    def add_single(self, name: str, program: Side, reference: Array, truth: Array) -> None:
        """The result of a program that computes in float32, that of the reference, and the truth in float64."""
        with self._refusals(name):
            result, pair = program(), ErrorPair()
            if result.shape == truth.shape:
                pair.add(result, reference, truth)
            ratio = pair.ratio if pair.count else inf
            self._measures["numerics"].append(measure(name, "float32", ratio, "numerics"))

    def leave_out(self, error: MachineError) -> None:
        """Count a comparison that is not made, since the ``error`` is that its plain loop cannot run."""
        self.expected += 1
        self.facts.append(fact(f"not everything is compared: {error}", kind="missing"))

    @contextmanager
    def _refusals(self, name: str) -> Iterator[None]:
        """Count a comparison, which is not made if the program refuses, as for a schedule without noise."""
        self.expected += 1
        try:
            yield
        except UsageError as error:
            self.facts.append(fact(f"{name}: {error}", name))

    def gate(self, letter: str, others: int = 0) -> Gate:
        """The outcome of a gate, with the number of its other comparisons; measures of float64 come first."""
        measures = (*self._measures[self._bound], *self._measures["numerics"])
        return GATES[letter].gate(len(measures) + others, self.expected + others, measures, tuple(self.facts))


def _difference(result: Array, plain: Array) -> tuple[str, float]:
    """The kind of a measure and its value: the relative error, or the share of whole numbers that differ."""
    same = result.shape == plain.shape
    if plain.dtype.kind in "iub":
        return "share", float(np.mean(result != plain)) if same else 1.0
    return "error", relative_l2(result, plain) if same else inf
