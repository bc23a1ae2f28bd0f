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

from wdport.compile_cache import FAST_COMPILE
from wdport.errors import IncompleteError
from wdport.model import Array
from wdport.parity.calls import Call, Calls, leaves, shaped_like
from wdport.parity.programs import Program


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
def intercepted(layers: Mapping[str, Any], handle: Callable[..., Any]) -> Iterator[dict[str, str]]:
    """Calls of these layers go to ``handle(path, compute, args)``, where ``compute(*args)`` is the layer's own.

    Works eager and while a function is traced by `jax.jit`. Each layer may be called once. Yields, by path, the
    innermost of the layers around each call; "" is the model.
    """
    wanted = {id(layer): path for path, layer in layers.items()}
    callers: dict[str, str] = {}
    inside = [""]
    repeated: list[str] = []
    call = keras.layers.Layer.__call__

    def intercept(self: Any, *args: Any, **kwargs: Any) -> Any:
        path = wanted.get(id(self))
        if path is None:
            return call(self, *args, **kwargs)
        if path in callers:
            repeated.append(path)
            return call(self, *args, **kwargs)
        callers[path] = inside[-1]
        inside.append(path)
        try:
            return handle(path, lambda *given: call(self, *given, **kwargs), args)
        finally:
            inside.pop()

    with patch.object(keras.layers.Layer, "__call__", intercept):
        yield callers
    if repeated:  # not raised above: Keras puts errors of a call together anew
        raise IncompleteError(repeated[0], "the layer is called twice in one pass", "tap the layers around it")


class Probe:
    """One Keras model, looked into at the layers ``paths``, always in evaluation mode.

    ``eager`` runs it step by step instead of compiled: much sooner where the model's code changes between runs.
    """

    def __init__(self, model: Any, paths: Collection[str], eager: bool = False) -> None:
        layers = layers_by_path(model)
        self.model = model
        self._callers: dict[str, str] = {}
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
        return np.asarray(output), self._calls(found)

    def callers(self, inputs: tuple[Array, ...]) -> Mapping[str, str]:
        """By path, the innermost probed layer around each layer's call; "" is the model. Runs nothing, if compiled."""
        if isinstance(self._record, Program):
            self._record.trace(*self._weights(), inputs)
        elif not self._callers:
            self.record(inputs)
        return self._callers

    def isolate(self, inputs: tuple[Array, ...], answers: Calls) -> tuple[Array, dict[str, Call]]:
        """Run the model with the layers of ``answers`` answered for: see :mod:`wdport.parity.calls`.

        A layer that does not run is left out: it was not compared. One that would be fed more or fewer tensors
        than its answer has comes back without outputs.
        """
        plain = {path: (call.inputs, call.outputs) for path, call in answers.items()}
        output, found = self._isolate(*self._weights(), inputs, plain)
        return np.asarray(output), self._calls(found)

    def isolate_layer(self, path: str, call: Call, answers: Calls) -> dict[str, Call]:
        """One layer, eagerly, with it and the layers below it answered for; ``call`` is any call of it,
        for the shapes of its inputs."""
        inside = {name: layer for name, layer in self.layers.items() if name == path or name.startswith(f"{path}/")}
        found: dict[str, Any] = {}
        plain = {name: (answer.inputs, answer.outputs) for name, answer in answers.items() if name in inside}
        layer = self.layers[path]
        mode = {"training": False} if layer._call_has_training_arg else {}
        with intercepted(inside, _answering(plain, found)) as callers:
            layer(*call.inputs, **mode)
        self._callers.update({name: caller for name, caller in callers.items() if name != path})
        return self._calls(found)

    def _calls(self, found: Mapping[str, tuple[Any, Any]]) -> dict[str, Call]:
        return {
            path: Call(tuple(_nested(given)), tuple(map(np.asarray, leaves(made))), self._callers.get(path, ""))
            for path, (given, made) in found.items()
        }

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

        with intercepted(self.layers, keep) as callers:
            output = self._call(trainable, fixed, inputs)
        self._callers.update(callers)
        return output, found

    def _traced_isolate(
        self, trainable: list[Any], fixed: list[Any], inputs: tuple[Any, ...], answers: dict[str, Any]
    ) -> Any:
        found: dict[str, Any] = {}
        inside = {path: layer for path, layer in self.layers.items() if path in answers}
        with intercepted(inside, _answering(answers, found)) as callers:
            output = self._call(trainable, fixed, inputs)
        self._callers.update(callers)
        return output, found


def _answering(answers: Mapping[str, Any], found: dict[str, Any]) -> Callable[..., Any]:
    """A handler that feeds every layer its answer's inputs and hands on its answer's outputs; ``found`` gets what
    it would have been given and what it made."""

    def answer(path: str, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        given, made = answers[path]
        fed = _fed(given, args)
        output = compute(*(args if fed is None else fed))
        found[path] = (args, [] if fed is None else output)
        try:
            return shaped_like(leaves(made), output)
        except ValueError:
            return output

    return answer


def _fed(given: Any, args: tuple[Any, ...]) -> Any:
    """The answer's inputs as the layer takes them: in the shapes of what it would have been fed, or in their own
    if these do not fit; ``None`` where there are more or fewer of them."""
    try:
        return shaped_like(leaves(given), args)
    except ValueError:
        alike = len(given) == len(args) and all(
            len(leaves(a)) == len(leaves(b)) for a, b in zip(given, args, strict=True)
        )
        return tuple(given) if alike else None


def _nested(value: Any) -> Any:
    return [_nested(item) for item in value] if isinstance(value, (list, tuple)) else np.asarray(value)
