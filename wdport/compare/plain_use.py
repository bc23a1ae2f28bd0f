"""Compare a Keras model called as users call it, ``model(x)``, with its evaluation mode, ``model(x, training=False)``.

All other comparisons run in evaluation mode, so that they do not see a layer that trains by default, such as one with
``call(self, x, training=True)``, or one that does something else if ``training`` is ``None``. Both calls are traced,
which takes a small part of the time that compiling takes: equal programs compute equal values on all inputs. Only if
the programs differ is the model run, eagerly and in float64, in both ways.

The plain call is traced first, and the other one after all other calls, so that a model that remembers earlier inputs,
such as their greatest length, is found as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import jax
import numpy as np

from wdport.compare.bounds import LOGIC
from wdport.compare.calls import Call, Outputs
from wdport.compare.findings import Finding, fact
from wdport.compare.measure import relative_l2
from wdport.compare.probe import Probe, stateless, tensors
from wdport.compare.programs import TRACING
from wdport.keras_runtime import exact_float64, layers_by_path
from wdport.model import Array, KerasModel

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Where a Python function of a traced program is in memory."""


class PlainUse:
    """The plain call of a float64 ``model`` on the first inputs, traced now."""

    def __init__(self, model: KerasModel, inputs: tuple[Array, ...]) -> None:
        self._model, self._inputs = model, inputs
        self._raised: Finding | None = None
        with _exactly():
            try:
                self._first = _program(model, inputs, None)
            except Exception as error:  # of the user's code
                text = " ".join(f"{type(error).__name__}: {error}".split())[:160]
                self._raised = fact(f"the model raises {text} where it is called without `training`")

    def differing(self, outputs: Outputs | None) -> list[Finding]:
        """The first layer that computes something else where the model is called without ``training``, or else that
        the model now does on the inputs that gave these ``outputs`` before; empty if neither is so."""
        if self._raised is not None:
            return [self._raised]
        with _exactly():
            if self._first == _program(self._model, self._inputs, False):
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


def _program(model: KerasModel, inputs: tuple[Array, ...], training: bool | None) -> str:
    """The traced program as text."""

    def call(trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Array, ...]) -> list[jax.Array]:
        with exact_float64():
            return tensors(stateless(model, trainable, fixed, inputs, training))

    held = ([v.value for v in variables] for variables in (model.trainable_variables, model.non_trainable_variables))
    return _ADDRESS.sub("", str(jax.make_jaxpr(call)(*held, inputs)))


def _run(model: KerasModel, inputs: tuple[Array, ...], training: bool | None) -> tuple[Outputs, dict[str, Call]]:
    return Probe(model, list(layers_by_path(model)), eager=True, training=training).record(inputs)


def _differing(plain: tuple[Outputs, Mapping[str, Call]], still: tuple[Outputs, Mapping[str, Call]]) -> list[Finding]:
    """The first call, in order of completion, whose outputs differ; or else the model's own outputs."""
    sides = [{**{name: call.outputs for name, call in calls.items()}, "": outputs} for outputs, calls in (plain, still)]
    for name, outputs in sides[1].items():
        error = _error(sides[0].get(name), outputs)
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
