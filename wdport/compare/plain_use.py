"""Compare a Keras model called as users call it, ``model(x)``, with its evaluation mode, ``model(x, training=False)``.

All other comparisons run in evaluation mode, so that they do not see a layer that trains by default, such as one with
``call(self, x, training=True)``, or one that does something else if ``training`` is ``None``. Both calls are traced,
which takes a small part of the time that compiling takes: equal programs compute equal values on all inputs. Only if
the programs differ is the model run, eagerly and in float64, in both ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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


def plain_use(model: KerasModel, inputs: tuple[Array, ...]) -> list[Finding]:
    """The first layer of a float64 ``model`` that computes something else where the model is called without
    ``training``; empty if there is none."""
    if not model._call_has_training_arg:
        return []  # then the evaluation mode is the plain call
    with jax.default_matmul_precision("highest"), jax.enable_x64(True), TRACING:
        try:
            if _program(model, inputs, None) == _program(model, inputs, False):
                return []
            outputs, calls = _run(model, inputs, None)
        except Exception as error:  # of the user's code
            told = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            return [fact(f"the model raises {told} where it is called without `training`")]
        return _differing((outputs, calls), _run(model, inputs, False))


def _program(model: KerasModel, inputs: tuple[Array, ...], training: bool | None) -> str:
    """The traced program as text."""

    def call(trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Array, ...]) -> list[jax.Array]:
        with exact_float64():
            return tensors(stateless(model, trainable, fixed, inputs, training))

    held = ([v.value for v in each] for each in (model.trainable_variables, model.non_trainable_variables))
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
            told = f"{who} is off by {error:.1e} where the model is called as model(x), without training=False"
            return [fact(told, name)]
    return []


def _error(plain: Sequence[Array] | None, still: Sequence[Array]) -> float:
    """The largest relative error; infinite if the calls cannot be compared."""
    if plain is None or [each.shape for each in plain] != [each.shape for each in still]:
        return np.inf
    return max((relative_l2(a, b) for a, b in zip(plain, still, strict=True)), default=0.0)
