"""The port's side of a comparison: its models by dtype, each run under the settings for its dtype, and called as
users call them.

All other comparisons run in evaluation mode, so that they do not see a layer that trains by default, such as one with
``call(self, x, training=True)``, or one that does something else if ``training`` is ``None``. Both calls are traced,
which takes a small part of the time that compiling takes: equal programs compute equal values on all inputs. Only if
the programs differ is the model run, eagerly and in float64, in both ways.

The plain call is traced first, and the other one after all other calls, so that a model that remembers earlier inputs,
such as their greatest length, is found as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from typing import cast as cast_to

import jax
import numpy as np

from wdport.base.jax_settings import FAST_COMPILE
from wdport.compare.activities import spent_on
from wdport.compare.calls import Call, ExpectedCall, Outputs, cast
from wdport.compare.findings import Finding, fact
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.measure import relative_l2
from wdport.compare.probe import Probe, stateless_call, tensors
from wdport.compare.programs import TRACING, CompiledProgram, compared_numbers, program_text
from wdport.mapping.rows import Table
from wdport.models.interface import Array, KerasModel, Signature
from wdport.models.keras_runtime import exact_float64, layers_by_path, variable_values


class PlainUse:
    """The plain call of a float64 ``model`` on the first inputs, traced now.

    ``numbers`` are those that its code compares values with.
    """

    def __init__(self, model: KerasModel, inputs: tuple[Array, ...]) -> None:
        self._model, self._inputs = model, inputs
        self._raised: Finding | None = None
        self.numbers: list[float] = []
        with _exactly():
            try:
                self._first, _, self.numbers = _program(model, inputs, None)
            except Exception as error:  # of the user's code
                text = " ".join(f"{type(error).__name__}: {error}".split())[:160]
                self._raised = fact(f"the model raises {text} where it is called without `training`")

    def differing(self, outputs: Outputs | None) -> list[Finding]:
        """The first layer that computes something else where the model is called without ``training``, or else that
        the model now does on the inputs that gave these ``outputs`` before; empty if neither is so."""
        if self._raised is not None:
            return [self._raised]
        with _exactly():
            program, assigned, _ = _program(self._model, self._inputs, False)
            if assigned:
                return [fact(f"{path} is assigned by calls in evaluation mode", path) for path in assigned]
            if self._first == program:
                return []
            plain, still = (_run(self._model, self._inputs, training) for training in (None, False))
            if (findings := _differing(plain, still)) or outputs is None:
                return findings
        error = _error(outputs, still[0])
        text = f"the model is off by {error:.1e} on the first inputs after others: it keeps something of earlier calls"
        return [] if error <= LOGIC else [fact(text)]


@contextmanager
def _exactly() -> Iterator[None]:
    with jax.default_matmul_precision("highest"), jax.enable_x64(True), TRACING:
        yield


def _program(model: KerasModel, inputs: tuple[Array, ...], training: bool | None) -> tuple[str, list[str], list[float]]:
    """The traced program as text, the paths of the variables that it assigns, random generators apart, and the numbers
    that it compares arrays with."""

    def call(trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Array, ...]) -> Any:
        with exact_float64():
            output, after = stateless_call(model, trainable, fixed, inputs, training)
            return tensors(output), after

    with spent_on("tracing"):
        program = jax.make_jaxpr(call)(*variable_values(model), inputs).jaxpr
    fixed = [variable.path for variable in model.non_trainable_variables]
    after = program.outvars[len(program.outvars) - len(fixed) :]
    assigned = [path for path, value in zip(fixed, after, strict=True)
                if value not in program.invars and not path.endswith("seed_generator_state")]  # fmt: skip
    return program_text(program), assigned, list(compared_numbers(program))


def _run(model: KerasModel, inputs: tuple[Array, ...], training: bool | None) -> tuple[Outputs, dict[str, Call]]:
    return Probe(model, list(layers_by_path(model)), eager=True, training=training).record(inputs)


def _differing(plain: tuple[Outputs, Mapping[str, Call]], still: tuple[Outputs, Mapping[str, Call]]) -> list[Finding]:
    """The first call, in order of completion, whose outputs differ; or else the model's own outputs."""
    sides = [{**{name: call.outputs for name, call in calls.items()}, "": outputs} for outputs, calls in (plain, still)]
    for name, outputs in sides[1].items():
        error = _error(sides[0].get(name), outputs)
        # Negated, so that NaN counts as a difference.
        if not error <= LOGIC:
            who = name or "the model"
            text = f"{who} is off by {error:.1e} where the model is called as model(x), without training=False"
            return [fact(text, name)]
    return []


def _error(plain: Sequence[Array] | None, still: Sequence[Array]) -> float:
    """The largest relative error; infinite if the calls cannot be compared."""
    if plain is None or [array.shape for array in plain] != [array.shape for array in still]:
        return np.inf
    return max((relative_l2(a, b) for a, b in zip(plain, still, strict=True)), default=0.0)


Ran = tuple[Outputs, dict[str, Call]]
"""Outputs and calls of a run."""

Shapes = tuple[list[Any], dict[str, Call]]
"""The same with shapes and dtypes; arrays where the port runs eagerly."""


@dataclass
class Candidate:
    """A port, and what aligns it with its reference.

    Attributes:
        models: Keras models by dtype ("float64", "float32") with equal weights.
        table: the mapping table, whose rows state which layers correspond.
        signature: inputs and outputs.
        features: names that hold under ``when:`` in the table.
        use: sets the converted weights (False), or those with random biases (True), in all models.
        eager: run the models step by step instead of compiled: faster if their code changes between comparisons.
    """

    models: dict[str, KerasModel]
    table: Table
    signature: Signature
    features: frozenset[str] = frozenset()
    use: Callable[[bool], None] = lambda _: None  # there is one set of weights
    eager: bool = False


class PortSide:
    """The models of a candidate, probed at these paths.

    ``precision`` is that of matrix products in the last run. ``pairwise``: with sums computed pairwise, but in
    :meth:`record`. ``as_stated``: with the float32 that the port's code states, in float64 too.
    """

    def __init__(
        self, candidate: Candidate, paths: Collection[str], *, pairwise: bool = False, as_stated: bool = False
    ) -> None:  # fmt: skip
        self._candidate = candidate
        self.probes = {dtype: Probe(model, paths, candidate.eager, pairwise=pairwise, as_stated=as_stated)
                       for dtype, model in candidate.models.items()}  # fmt: skip
        self.precision = ""
        self._last: tuple[tuple[Array, ...], Ran] | None = None

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(self.probes["float64"].output_names)

    def run(self, dtype: str, what: str, *arguments: Any) -> Any:
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            self.precision = str(getattr(jax.config, "jax_default_matmul_precision"))
            with spent_on("running Keras"):
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
        # By identity: the same tuple is passed for the shapes and for the recording of a case.
        if self._last is None or self._last[0] is not inputs:
            self._last = (inputs, self.run("float64", "record", inputs))
        return self._last[1]

    def isolate(
        self, dtype: str, inputs: tuple[Array, ...], answers: Mapping[str, ExpectedCall], doubtful: Collection[str]
    ) -> Ran:
        """Isolate with all ``answers``; if a layer does not accept those of ``doubtful`` calls, without them."""
        try:
            return cast_to(Ran, self.run(dtype, "isolate", inputs, answers))
        # What JAX raises for shapes that do not fit, at trace time.
        except (ValueError, TypeError):
            if not doubtful:
                raise
            rest = {call: answer for call, answer in answers.items() if call not in doubtful}
            return cast_to(Ran, self.run(dtype, "isolate", inputs, rest))

    def at_values(self, dtype: str, path: str, values: Array) -> Array:
        """The output of one layer that is fed one number per sample."""
        layer = self.probes[dtype].layers[path]

        def run(inputs: Array) -> Any:
            with exact_float64() if dtype == "float64" else nullcontext():
                return layer(inputs)

        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            return np.asarray(CompiledProgram(run, FAST_COMPILE)(cast(values, np.dtype(dtype))))

    def eagerly(self, inputs: tuple[Array, ...], dtype: str = "float64") -> Outputs:
        """The outputs, run step by step."""
        # TRACING is held, since another thread may be tracing the model's Python code, which an eager run calls.
        with _exactly(), jax.enable_x64(dtype == "float64"), np.errstate(over="ignore"):
            return Probe(self._candidate.models[dtype], (), eager=True).whole(inputs)
