"""Looking into a running Keras model: record what its layers give, and feed every layer by itself.

Nothing is added to the model: a layer is reached by its structural path. Both ways are one compiled
program each, with the weights as arguments, so later assignments are seen. Feeding all layers in one
program matters: one by one, the compiler takes ten times as long as for the whole network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax
import keras
import numpy as np

from wdport.errors import IncompleteError
from wdport.models.family import Array

Trace = dict[str, tuple[tuple[Any, ...], Any]]
"""Layer path -> (inputs, output) of its one call."""

FAST_COMPILE: Mapping[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""For programs run a few times in float64, where only the logic counts: halves the compile time."""


def layers_by_path(model: Any) -> dict[str, Any]:
    """Every layer below ``model`` by structural path: names joined by ``/``."""
    found: dict[str, Any] = {}

    def visit(layer: Any, path: str) -> None:
        for child in layer._flatten_layers(include_self=False, recursive=False):
            name = f"{path}/{child.name}".lstrip("/")
            found[name] = child
            visit(child, name)

    visit(model, "")
    return found


@contextmanager
def recording(layers: Mapping[str, Any]) -> Iterator[Trace]:
    """Inputs and outputs of these layers from the calls made inside; each may be called once.

    Works eager and while a function is traced by `jax.jit`.
    """
    wanted = {id(layer): path for path, layer in layers.items()}
    trace: Trace = {}
    call = keras.layers.Layer.__call__

    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = call(self, *args, **kwargs)
        if (path := wanted.get(id(self))) is not None:
            if path in trace:
                raise IncompleteError(path, "the layer is called twice in one pass", "tap the layers around it")
            trace[path] = (args, output)
        return output

    with patch.object(keras.layers.Layer, "__call__", recorded):
        yield trace


def feed(layer: Any, inputs: Sequence[Any]) -> Any:
    """The output of one layer for given inputs, in evaluation mode; eager or under jit."""
    return layer(*inputs, **_evaluation(layer))


class Probe:
    """One Keras model, looked into at the layers ``paths``."""

    def __init__(self, model: Any, paths: Collection[str], options: Mapping[str, Any] | None = None) -> None:
        layers = layers_by_path(model)
        self.model = model
        self.layers = {path: layers[path] for path in paths}
        self._shapes: dict[str, Any] = {}
        self._record = jax.jit(self._traced_record)
        self._replay = jax.jit(self._traced_replay, compiler_options=dict(options or {}))

    def record(self, inputs: tuple[Array, ...]) -> tuple[Array, dict[str, list[Array]]]:
        """Run the model: its output, and the outputs of every layer."""
        output, traced = self._record(*self._weights(), inputs)
        return np.asarray(output), {path: _leaves(value) for path, value in traced.items()}

    def replay(self, inputs: Mapping[str, Sequence[Any]]) -> dict[str, list[Array]]:
        """Feed every layer named in ``inputs`` by itself; :meth:`record` must have run before.

        An input may have axes merged that the layer wants apart, as (B, L, D) for (B, L, H, K).
        """
        shaped = {path: _reshape(values, self._shapes[path]) for path, values in inputs.items()}
        return {path: _leaves(value) for path, value in self._replay(*self._weights(), shaped).items()}

    def _weights(self) -> tuple[list[Any], list[Any]]:
        return [v.value for v in self.model.trainable_variables], [v.value for v in self.model.non_trainable_variables]

    def _traced_record(self, trainable: list[Any], fixed: list[Any], inputs: tuple[Any, ...]) -> Any:
        with recording(self.layers) as trace:
            output, _ = self.model.stateless_call(trainable, fixed, inputs, **_evaluation(self.model))
        self._shapes = {path: _shape(args) for path, (args, _) in trace.items()}
        return output, {path: value for path, (_, value) in trace.items()}

    def _traced_replay(self, trainable: list[Any], fixed: list[Any], inputs: dict[str, Any]) -> Any:
        trained = zip(self.model.trainable_variables, trainable, strict=True)
        kept = zip(self.model.non_trainable_variables, fixed, strict=True)
        with keras.StatelessScope(state_mapping=[*trained, *kept]):
            return {path: feed(self.layers[path], values) for path, values in inputs.items()}


def _evaluation(layer: Any) -> dict[str, bool]:
    """The argument that says evaluation mode, for layers that take it; the others have no other mode."""
    return {"training": False} if layer._call_has_training_arg else {}


def _leaves(output: Any) -> list[Array]:
    return [np.asarray(leaf) for leaf in (output if isinstance(output, (list, tuple)) else [output])]


def _shape(values: Any) -> Any:
    return [_shape(value) for value in values] if isinstance(values, (list, tuple)) else tuple(values.shape)


def _reshape(values: Any, shapes: Any) -> Any:
    """Arrays with their axes behind the batch in the shapes that the layer was called with."""
    if isinstance(values, (list, tuple)):
        return [_reshape(value, shape) for value, shape in zip(values, shapes, strict=True)]
    return values.reshape((values.shape[0], *shapes[1:]))
