"""Looking into a running Keras model: record what its layers give, or answer for them.

Nothing is added to the model: a layer is reached by its structural path. Weights are arguments of
the compiled programs, so later assignments are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import keras
import numpy as np

from wdport.errors import IncompleteError
from wdport.models.family import Array
from wdport.parity.calls import Call, Calls, leaves, shaped_like
from wdport.parity.programs import Program

FAST_COMPILE: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""For programs that look inside and run a few times. :meth:`Probe.whole` is compiled as users compile it."""


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
def intercepted(layers: Mapping[str, Any], handle: Callable[..., Any]) -> Iterator[None]:
    """Calls of these layers go to ``handle(path, compute, args)``, where ``compute(*args)`` is the layer's own.

    Works eager and while a function is traced by `jax.jit`. Each layer may be called once.
    """
    wanted = {id(layer): path for path, layer in layers.items()}
    seen: set[str] = set()
    call = keras.layers.Layer.__call__

    def intercept(self: Any, *args: Any, **kwargs: Any) -> Any:
        path = wanted.get(id(self))
        if path is None:
            return call(self, *args, **kwargs)
        if path in seen:
            raise IncompleteError(path, "the layer is called twice in one pass", "tap the layers around it")
        seen.add(path)
        return handle(path, lambda *given: call(self, *given, **kwargs), args)

    with patch.object(keras.layers.Layer, "__call__", intercept):
        yield


class Probe:
    """One Keras model, looked into at the layers ``paths``, always in evaluation mode.

    ``eager`` runs it step by step instead of compiled: much sooner where the model's code changes between runs.
    """

    def __init__(self, model: Any, paths: Collection[str], eager: bool = False) -> None:
        layers = layers_by_path(model)
        self.model = model
        self.layers = {path: layers[path] for path in paths}
        self._whole = self._call if eager else Program(self._call)
        self._record = self._traced_record if eager else Program(self._traced_record, FAST_COMPILE)
        self._isolate = self._traced_isolate if eager else Program(self._traced_isolate, FAST_COMPILE)

    def whole(self, inputs: tuple[Array, ...]) -> Array:
        """The model's output alone."""
        return np.asarray(self._whole(*self._weights(), inputs))

    def record(self, inputs: tuple[Array, ...]) -> tuple[Array, dict[str, Call]]:
        """Run the model: its output, and the call of every layer that ran."""
        output, found = self._record(*self._weights(), inputs)
        return np.asarray(output), _calls(found)

    def isolate(self, inputs: tuple[Array, ...], answers: Calls) -> tuple[Array, dict[str, Call]]:
        """Run the model with the layers of ``answers`` answered for: see :mod:`wdport.parity.calls`.

        A layer that does not run, or takes other inputs than its answer has (another count, other sizes),
        is left out: it was not compared.
        """
        plain = {path: (call.inputs, call.outputs) for path, call in answers.items()}
        output, found = self._isolate(*self._weights(), inputs, plain)
        return np.asarray(output), _calls(found)

    def _weights(self) -> tuple[list[Any], list[Any]]:
        return [v.value for v in self.model.trainable_variables], [v.value for v in self.model.non_trainable_variables]

    def _call(self, trainable: list[Any], fixed: list[Any], inputs: tuple[Any, ...]) -> Any:
        mode = {"training": False} if self.model._call_has_training_arg else {}
        output, _ = self.model.stateless_call(trainable, fixed, inputs, **mode)
        return output

    def _traced_record(self, trainable: list[Any], fixed: list[Any], inputs: tuple[Any, ...]) -> Any:
        found: dict[str, Any] = {}

        def keep(path: str, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            output = compute(*args)
            found[path] = (args, output)
            return output

        with intercepted(self.layers, keep):
            return self._call(trainable, fixed, inputs), found

    def _traced_isolate(
        self, trainable: list[Any], fixed: list[Any], inputs: tuple[Any, ...], answers: dict[str, Any]
    ) -> Any:
        found: dict[str, Any] = {}

        def answer(path: str, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            given, made = answers[path]
            try:
                fed = shaped_like(leaves(given), args)
            except ValueError:
                return compute(*args)
            output = compute(*fed)
            found[path] = (args, output)
            try:
                return shaped_like(leaves(made), output)
            except ValueError:
                return output

        with intercepted({path: layer for path, layer in self.layers.items() if path in answers}, answer):
            return self._call(trainable, fixed, inputs), found


def _calls(found: Mapping[str, tuple[Any, Any]]) -> dict[str, Call]:
    return {
        path: Call(tuple(_nested(given)), tuple(map(np.asarray, leaves(made)))) for path, (given, made) in found.items()
    }


def _nested(value: Any) -> Any:
    return [_nested(item) for item in value] if isinstance(value, (list, tuple)) else np.asarray(value)
