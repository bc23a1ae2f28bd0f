"""Compare the network that samplers run with the reference on the battery's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wdport.compare.calls import Case
from wdport.compare.findings import GATES, Gate, measure
from wdport.compare.measure import ErrorPair, relative_l2
from wdport.compare.programs import CompiledProgram
from wdport.families.roles import Sampled
from wdport.jax_settings import FAST_COMPILE
from wdport.model import Array, Configuration, KerasModel
from wdport.parity.verdict import Trajectory
from wdport.sampling.network import keras_network

WHOLE = "sampling network"


class SamplingNetwork:
    """The sampling networks of a port by dtype, and the accumulated errors.

    Batches run in float32, the dtype of sampling, and single samples in float64, where a wrong epsilon shows. The full
    battery also runs batches in float64.
    """

    letter = "E'"

    def __init__(self, family: Sampled, config: Configuration, models: Mapping[str, KerasModel], full: bool) -> None:
        self.family, self._full = family, full
        self._networks = {dtype: keras_network(model, (family, config)) for dtype, model in models.items()}
        self._programs = {
            dtype: CompiledProgram(network.apply, FAST_COMPILE) for dtype, network in self._networks.items()
        }
        self.logic: dict[str, float] = {}
        self.numerics: dict[str, ErrorPair] = {}
        self.expected = 0
        self._optional = bool((condition := family.diffused(config).condition) and condition.optional)
        self._single: Case | None = None
        self._exact = 2 if self._optional else 1  # cases in float64, with and without an optional input

    def dtypes(self, case: Case) -> tuple[str, ...]:
        """The dtypes in which the network runs in this case."""
        if not case.numerics:
            return ("float64",) if self._full or case.batch == 1 else ()
        first = self._optional and case == self._first(case)
        return ("float64", "float32") if self._full or first else ("float32",)

    def _first(self, case: Case) -> Case:
        """The first case that is run in float32."""
        self._single = self._single or case
        return self._single

    def predict(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        """The prediction (B, C, F)."""
        state, times, *condition = inputs
        weights = self._networks[dtype].weights()
        output = np.asarray(self._programs[dtype](weights, state, times, condition[0] if condition else None))
        self._exact -= dtype == "float64"
        if self._exact == 0 and dtype == "float64" and not self._full:  # its last case; it holds a copy of the weights
            del self._networks[dtype], self._programs[dtype]
        return output

    def compare(self, case: str, output: Array, truth: Array) -> None:
        """Add a float64 prediction and the reference's."""
        self.expected += len(truth)
        if output.shape == truth.shape:
            errors = map(relative_l2, output, truth)
            self.logic |= {f"{WHOLE}, sample {index} of {case}": error for index, error in enumerate(errors)}

    def compare_single(self, output: Array, reference: Array, truth: Array) -> None:
        """Add a float32 prediction, the reference's and the truth."""
        if output.shape == truth.shape:
            self.numerics.setdefault(WHOLE, ErrorPair()).add(output, reference, truth)

    def gate(self, trajectories: Sequence[Trajectory] = ()) -> Gate:
        """Gate sampling network (E'), with the float32 errors of the full battery's ``trajectories``."""
        ratios = {name: max(pair.rms_ratio, pair.max_ratio) for name, pair in self.numerics.items()}
        ratios |= {trajectory.sampler: trajectory.ratio for trajectory in trajectories if trajectory.ratio is not None}
        single = tuple(measure(name, "float32", ratio, "numerics") for name, ratio in ratios.items())
        double = tuple(measure(name, "error", error, "trajectory") for name, error in self.logic.items())
        # At least one float32 comparison is expected, so that a gate without any is incomplete.
        return GATES["E'"].gate(len(single) + len(double), max(len(single), 1) + self.expected, (*single, *double))
