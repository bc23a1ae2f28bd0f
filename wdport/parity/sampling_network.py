"""The network that samplers run, held against the reference on the battery's inputs and against the port at every time.

A sampler gives all samples of a batch one time, the battery gives each its own. So the network is run with every
sample's time in turn, each time on the whole batch, and of each run that sample is taken whose time it was: what
leaks from one sample to another is then seen, and the reference need not run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wdport.compile_cache import FAST_COMPILE
from wdport.models.family import Array, Family
from wdport.parity.bounds import NUMERICS, TRAJECTORY
from wdport.parity.measure import ErrorPair, relative_l2
from wdport.parity.programs import Program
from wdport.parity.verdict import Gate, Trajectory
from wdport.sampling.network import fast_network

WHOLE = "sampling network"


class SamplingNetwork:
    """The sampling networks of a float64 and a float32 port, and the errors found so far."""

    def __init__(self, family: Family, models: Mapping[str, Any]) -> None:
        self._family, self._models = family, models
        self._networks = {dtype: fast_network(model) for dtype, model in models.items()}
        self._programs = {dtype: Program(self._diagonal(dtype), FAST_COMPILE) for dtype in models}
        self.logic: dict[str, float] = {}
        self.numerics: dict[str, ErrorPair] = {}
        self.expected = 0

    def _diagonal(self, dtype: str) -> Any:
        network = self._networks[dtype]

        def run(weights: Any, state: Any, times: Any) -> Any:
            conditions = network.conditions(weights, times)
            every = jax.lax.map(lambda condition: network.apply(weights, state, condition), conditions)
            return every[jnp.arange(len(state)), jnp.arange(len(state))]

        return run

    def predict(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        """Every sample's prediction (B, C, F) for its own time, from a batch of all of them."""
        return np.asarray(self._programs[dtype](self._networks[dtype].weights(len(inputs[0])), *inputs[:2]))

    def compare(self, case: str, output: Array, truth: Array) -> None:
        """Take in a float64 prediction beside the reference's."""
        self.expected += len(truth)
        if output.shape == truth.shape:
            errors = zip(output, truth, strict=True)
            self.logic |= {f"{WHOLE}, sample {at} of {case}": relative_l2(*pair) for at, pair in enumerate(errors)}

    def compare_single(self, output: Array, reference: Array, truth: Array) -> None:
        """Take in a float32 prediction beside the reference's and the truth."""
        if output.shape == truth.shape:
            self.numerics.setdefault(WHOLE, ErrorPair()).add(output, reference, truth)

    def compare_times(self, times: Array) -> None:
        """Hold what depends on time alone against the port's own layers at ``times`` (S,), in both dtypes."""
        narrow = times.astype(np.float32)
        exact = self._tables("float64", times)
        for name, table, layer in exact:
            self.expected += 1
            worst = [relative_l2(a, b) for a, b in zip(np.asarray(table), np.asarray(layer), strict=True)]
            at = int(np.argmax(np.nan_to_num(worst, nan=inf)))
            self.logic[f"{WHOLE}, {name} at time {times[at]:g}"] = worst[at]
        truths = {name: np.asarray(layer) for name, _, layer in self._tables("float64", narrow.astype(np.float64))}
        for name, table, layer in self._tables("float32", narrow):
            self.numerics.setdefault(f"{WHOLE}, {name}", ErrorPair()).add(
                np.asarray(table), np.asarray(layer), truths[name]
            )

    def _tables(self, dtype: str, times: Array) -> Any:
        network = self._networks[dtype]
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            conditions = Program(network.conditions, FAST_COMPILE)(network.weights(len(times)), times)
            yield from self._family.time_tables(self._models[dtype], times, conditions)

    def gates(self, trajectories: Sequence[Trajectory] = (), path: Gate | None = None) -> list[Gate]:
        """Gates E, in float64, and E', in float32; ``trajectories`` and their own gate are the full battery's, which
        they then include."""
        findings = [f"{name} is off by {error:.1e}" for name, error in self.logic.items() if not error <= TRAJECTORY]
        worst = _largest(self.logic)
        passed = not findings and len(self.logic) == self.expected > 0
        exact = Gate("E", "sampling, float64", passed, len(self.logic), self.expected, self.logic.get(worst),
                     TRAJECTORY, worst, tuple(findings))  # fmt: skip
        ratios = {name: max(pair.rms_ratio, pair.max_ratio) for name, pair in self.numerics.items()}
        ratios |= {each.sampler: each.ratio for each in trajectories if each.ratio is not None}
        beyond = [f"{name} has {r:.1f} times the reference's float32 error" for name, r in ratios.items()
                  if not r <= NUMERICS]  # fmt: skip
        worst, expected = _largest(ratios), max(len(ratios), 1)
        single = Gate("E'", "sampling, float32", not beyond and bool(ratios), len(ratios), expected, ratios.get(worst),
                      NUMERICS, worst, tuple(beyond))  # fmt: skip
        return [exact if path is None else _joined(exact, path), single]


def _largest(found: Mapping[str, float]) -> str:
    return max(found, key=lambda name: found[name], default="")


def _joined(first: Gate, second: Gate) -> Gate:
    """Two halves of one gate as one."""
    worse = max(first, second, key=lambda gate: inf if gate.worst is None else gate.worst)
    return Gate(first.name, first.title, first.passed and second.passed, first.compared + second.compared,
                first.expected + second.expected, worse.worst, worse.bound, worse.where,
                (*first.findings, *second.findings))  # fmt: skip
