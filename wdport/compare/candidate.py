"""The port's side of a comparison: its models by dtype, each run under the settings for its dtype."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from typing import cast as cast_to

import jax
import numpy as np

from wdport.compare.calls import Call, Expected, Outputs, cast
from wdport.compare.probe import Probe
from wdport.compare.programs import TRACING, Program
from wdport.compile_cache import FAST_COMPILE
from wdport.keras_runtime import exact_float64
from wdport.mapping.rows import Table
from wdport.model import Array, KerasModel, Signature

Ran = tuple[Outputs, dict[str, Call]]
"""Outputs and calls of a run."""

Shapes = tuple[list[Any], dict[str, Call]]
"""The same with shapes and dtypes; arrays where the port runs eagerly."""


def _unchanged(_: bool) -> None:
    """The weights of a port that has one set of them."""


@dataclass
class Candidate:
    """A port, and what aligns it with its reference.

    Attributes:
        models: Keras models by dtype ("float64", "float32") with equal weights.
        table: the mapping table, whose rows say which layers correspond.
        signature: inputs and outputs.
        features: names that hold under ``when:`` in the table.
        use: sets the converted weights (False), or those with random biases (True), in all models.
        eager: run the models step by step instead of compiled: faster if their code changes between comparisons.
    """

    models: dict[str, KerasModel]
    table: Table
    signature: Signature
    features: frozenset[str] = frozenset()
    use: Callable[[bool], None] = _unchanged
    eager: bool = False


class PortSide:
    """The models of a candidate, probed at these paths.

    ``precision`` is that of matrix products in the last run.
    """

    def __init__(self, candidate: Candidate, paths: Collection[str]) -> None:
        self._candidate = candidate
        self.probes = {dtype: Probe(model, paths, candidate.eager) for dtype, model in candidate.models.items()}
        self.precision = ""
        self._last: tuple[tuple[Array, ...], Ran] | None = None

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, if the model has them."""
        return tuple(self.probes["float64"].output_names)

    def run(self, dtype: str, what: str, *arguments: Any) -> Any:
        """Run one of the probe's programs by name."""
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            self.precision = str(getattr(jax.config, "jax_default_matmul_precision"))
            return getattr(self.probes[dtype], what)(*arguments)

    def shapes(self, inputs: tuple[Array, ...]) -> Shapes:
        """Shapes of the float64 outputs and calls; runs nothing unless the port runs eagerly."""
        if self._candidate.eager:
            return cast_to(Shapes, self.record(inputs))
        return cast_to(Shapes, self.run("float64", "shapes", inputs))

    def record(self, inputs: tuple[Array, ...]) -> Ran:
        """The float64 outputs and calls; one eager run serves all questions about the same inputs."""
        if not self._candidate.eager:
            return cast_to(Ran, self.run("float64", "record", inputs))
        if self._last is None or self._last[0] is not inputs:
            self._last = (inputs, self.run("float64", "record", inputs))
        return self._last[1]

    def isolate(
        self, dtype: str, inputs: tuple[Array, ...], answers: Mapping[str, Expected], doubtful: Collection[str]
    ) -> Ran:
        """Isolate with all ``answers``; if a layer does not accept those of ``doubtful`` calls, without them."""
        try:
            return cast_to(Ran, self.run(dtype, "isolate", inputs, answers))
        except (ValueError, TypeError):
            if not doubtful:
                raise
            rest = {call: answer for call, answer in answers.items() if call not in doubtful}
            return cast_to(Ran, self.run(dtype, "isolate", inputs, rest))

    def at_values(self, dtype: str, path: str, values: Array) -> Array:
        """The output of one layer that is fed one number per sample."""
        layer = self.probes[dtype].layers[path]

        def run(inputs: Array) -> Any:
            if dtype == "float64":
                with exact_float64():
                    return layer(inputs)
            return layer(inputs)

        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            return np.asarray(Program(run, FAST_COMPILE)(cast(values, np.dtype(dtype))))

    def eagerly(self, inputs: tuple[Array, ...]) -> Outputs:
        """The float64 outputs, run step by step."""
        with jax.default_matmul_precision("highest"), jax.enable_x64(True), TRACING:
            return Probe(self._candidate.models["float64"], (), eager=True).whole(inputs)
