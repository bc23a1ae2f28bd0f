"""Compare the network that samplers run with the reference on the battery's inputs and with the port at every time.

A sampler uses one time for all samples of a batch; in the battery each sample has its own. The network therefore runs
on the whole batch once for every sample's time, and each run contributes the sample with that time. This detects leaks
between samples, and the reference need not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

import jax
import jax.numpy as jnp
import numpy as np

from wdport.compare.calls import Case
from wdport.compare.findings import GATES, Gate, measure
from wdport.compare.measure import ErrorPair, relative_l2
from wdport.compare.probe import Tensor
from wdport.compare.programs import CompiledProgram
from wdport.families.roles import Sampled
from wdport.jax_settings import FAST_COMPILE
from wdport.model import Array, Configuration, KerasModel
from wdport.parity.verdict import Trajectory
from wdport.sampling.network import fast_network

WHOLE = "sampling network"


class SamplingNetwork:
    """The sampling networks of a port by dtype, and the accumulated errors.

    Batches run in float32, the dtype of sampling, and single samples in float64, where a wrong epsilon shows. The full
    battery also runs batches in float64.
    """

    letter = "E'"

    def __init__(self, family: Sampled, config: Configuration, models: Mapping[str, KerasModel], full: bool) -> None:
        self.family, self._models, self._full = family, models, full
        self._networks = {dtype: fast_network(model, known_values=(family, config)) for dtype, model in models.items()}
        self._programs = {dtype: CompiledProgram(self._diagonal(dtype), FAST_COMPILE) for dtype in models}
        self.logic: dict[str, float] = {}
        self.numerics: dict[str, ErrorPair] = {}
        self.expected = 0
        self._optional = bool((condition := family.diffused(config).condition) and condition.optional)
        self._single: Case | None = None
        self._exact = 2 if self._optional else 1  # cases in float64, with and without an optional input

    def _diagonal(self, dtype: str) -> Callable[[object, Tensor, Tensor, Tensor | None], jax.Array]:
        network = self._networks[dtype]

        def run(weights: object, state: Tensor, times: Tensor, condition: Tensor | None) -> jax.Array:
            x = jnp.asarray(state)
            embedded = network.embed(weights, jnp.asarray(times))
            # Not vmap, which would need the memory of all these batches at once.
            every: jax.Array = jax.lax.map(lambda embedding: network.apply(weights, x, embedding, condition), embedded)
            return every[jnp.arange(len(state)), jnp.arange(len(state))]

        return run

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
        """Every sample's prediction (B, C, F) for its own time, from a batch of all of them."""
        state, times, *condition = inputs
        weights = self._networks[dtype].weights(len(state))
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

    def compare_times(self, times: Array) -> None:
        """Compare what depends only on time with the port's own layers at ``times`` (S,)."""
        # The float32 times again in float64: the truth of float32 results is that of the rounded inputs.
        narrow = times.astype(np.float32)
        both = np.concatenate([times, narrow.astype(np.float64)])
        exact = {name: np.split(np.asarray(output), 2) for name, output in self._layers("float64", both)}
        if self._full:
            for name, table in self._tables("float64", times):
                self.expected += 1
                errors = _by_row(np.asarray(table), exact[name][0])
                worst = int(np.argmax(errors))
                self.logic[f"{WHOLE}, {name} at time {times[worst]:g}"] = float(errors[worst])
        pairs = zip(self._tables("float32", narrow), self._layers("float32", narrow), strict=True)
        for (name, table), (_, output) in pairs:
            pair = self.numerics.setdefault(f"{WHOLE}, {name}", ErrorPair())
            pair.add(np.asarray(table), np.asarray(output), exact[name][1])

    def _tables(self, dtype: str, times: Array) -> Iterator[tuple[str, Tensor]]:
        network = self._networks[dtype]
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            embedded = CompiledProgram(network.embed, FAST_COMPILE)(network.weights(1), jnp.asarray(times))
            tables = list(self.family.time_tables(embedded))
        yield from tables

    def _layers(self, dtype: str, times: Array) -> Iterator[tuple[str, Tensor]]:
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            outputs = list(self.family.time_layers(self._models[dtype], times))
        yield from outputs

    def gate(self, trajectories: Sequence[Trajectory] = ()) -> Gate:
        """Gate sampling network (E'), with the float32 errors of the full battery's ``trajectories``."""
        ratios = {name: max(pair.rms_ratio, pair.max_ratio) for name, pair in self.numerics.items()}
        ratios |= {trajectory.sampler: trajectory.ratio for trajectory in trajectories if trajectory.ratio is not None}
        single = tuple(measure(name, "float32", ratio, "numerics") for name, ratio in ratios.items())
        double = tuple(measure(name, "error", error, "trajectory") for name, error in self.logic.items())
        # At least one float32 comparison is expected, so that a gate without any is incomplete.
        return GATES["E'"].gate(len(single) + len(double), max(len(single), 1) + self.expected, (*single, *double))


def _by_row(candidate: Array, reference: Array) -> Array:
    """Relative L2 error of every row; infinite if values are not finite."""
    if candidate.shape != reference.shape:
        return np.full(1, inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.linalg.norm(candidate - reference, axis=1) / np.linalg.norm(reference, axis=1)
    return np.asarray(np.nan_to_num(errors, nan=inf))
