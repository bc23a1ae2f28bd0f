"""The port's side of a comparison: its models by dtype, each run under the settings for its dtype."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from typing import cast as cast_to

import jax
import numpy as np

from wdport.compare.calls import Call, Expected, Outputs, cast
from wdport.compare.probe import Probe
from wdport.compare.programs import TRACING, Program
from wdport.compile_cache import FAST_COMPILE
from wdport.keras_runtime import exact_float64
from wdport.model import Array

Ran = tuple[Outputs, dict[str, Call]]
"""Outputs and calls of a run."""


class PortSide:
    """The models ``candidates`` by dtype, probed at these paths.

    ``precision`` is that of matrix products in the last run.
    """

    def __init__(self, candidates: Mapping[str, Any], paths: Collection[str]) -> None:
        self._candidates = candidates
        self.probes = {dtype: Probe(model, paths) for dtype, model in candidates.items()}
        self.precision = ""

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, if the model has them."""
        return tuple(self.probes["float64"].output_names)

    def run(self, dtype: str, what: str, *arguments: Any) -> Any:
        """Run one of the probe's programs by name."""
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            self.precision = str(getattr(jax.config, "jax_default_matmul_precision"))
            return getattr(self.probes[dtype], what)(*arguments)

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

        def run(given: Array) -> Any:
            if dtype == "float64":
                with exact_float64():
                    return layer(given)
            return layer(given)

        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            return np.asarray(Program(run, FAST_COMPILE)(cast(values, np.dtype(dtype))))

    def eagerly(self, inputs: tuple[Array, ...]) -> Outputs:
        """The float64 outputs, run step by step."""
        with jax.default_matmul_precision("highest"), jax.enable_x64(True), TRACING:
            return Probe(self._candidates["float64"], (), eager=True).whole(inputs)
