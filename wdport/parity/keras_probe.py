"""Looking into a running Keras model: record what its layers give, and feed every layer by itself.

Nothing is added to the model: a layer is reached by its structural path. Weights are arguments of
the compiled programs, so later assignments are seen. Layers whose traced programs are the same, letter
for letter, share one compiled program (`wdport/parity/replay.py`).
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
from wdport.parity.replay import Replay, evaluation

Trace = dict[str, tuple[tuple[Any, ...], Any]]
"""Layer path -> (inputs, output) of its one call."""

FAST_COMPILE: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""For programs that look inside and run a few times: halves the compile time. :meth:`Probe.whole` is
compiled as users compile it."""


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


class Probe:
    """One Keras model, looked into at the layers ``paths``.

    ``shapes`` are the inputs' shapes of every layer, known once a model of this configuration was
    recorded; a probe that was given them need not record its layers (``whole`` is enough).
    """

    def __init__(
        self,
        model: Any,
        paths: Collection[str],
        shapes: dict[str, Any] | None = None,
    ) -> None:
        layers = layers_by_path(model)
        self.model = model
        self.layers = {path: layers[path] for path in paths}
        self.shapes = {} if shapes is None else shapes
        self._record = jax.jit(self._traced_record, compiler_options=FAST_COMPILE)
        self._whole = jax.jit(self._traced_whole)
        self._replay: Replay | None = None

    def whole(self, inputs: tuple[Array, ...]) -> Array:
        """The model's output alone."""
        return np.asarray(self._whole(*self._weights(), inputs))

    def record(self, inputs: tuple[Array, ...]) -> tuple[Array, dict[str, list[Array]]]:
        """Run the model: its output, and the outputs of every layer."""
        output, traced = self._record(*self._weights(), inputs)
        return np.asarray(output), {path: _leaves(value) for path, value in traced.items()}

    def replay(self, inputs: Mapping[str, Sequence[Any]]) -> dict[str, list[Array]]:
        """Feed every layer named in ``inputs`` by itself; its inputs' shapes must be known.

        An input may have axes merged that the layer wants apart, as (B, L, D) for (B, L, H, K).
        """
        shaped = {path: _reshape(values, self.shapes[path]) for path, values in inputs.items()}
        if self._replay is None:
            self._replay = Replay({path: self.layers[path] for path in shaped}, shaped, FAST_COMPILE)
        return {path: _leaves(value) for path, value in self._replay(shaped).items()}

    def _weights(self) -> tuple[list[Any], list[Any]]:
        return [v.value for v in self.model.trainable_variables], [v.value for v in self.model.non_trainable_variables]

    def _traced_record(self, trainable: list[Any], fixed: list[Any], inputs: tuple[Any, ...]) -> Any:
        with recording(self.layers) as trace:
            output, _ = self.model.stateless_call(trainable, fixed, inputs, **evaluation(self.model))
        self.shapes.update({path: _shape(args) for path, (args, _) in trace.items()})
        return output, {path: value for path, (_, value) in trace.items()}

    def _traced_whole(self, trainable: list[Any], fixed: list[Any], inputs: tuple[Any, ...]) -> Any:
        output, _ = self.model.stateless_call(trainable, fixed, inputs, **evaluation(self.model))
        return output


def _leaves(output: Any) -> list[Array]:
    return [np.asarray(leaf) for leaf in (output if isinstance(output, (list, tuple)) else [output])]


def _shape(values: Any) -> Any:
    return [_shape(value) for value in values] if isinstance(values, (list, tuple)) else tuple(values.shape)


def _reshape(values: Any, shapes: Any) -> Any:
    """Arrays with their axes behind the batch in the shapes that the layer was called with."""
    if isinstance(values, (list, tuple)):
        return [_reshape(value, shape) for value, shape in zip(values, shapes, strict=True)]
    return values.reshape((values.shape[0], *shapes[1:]))
