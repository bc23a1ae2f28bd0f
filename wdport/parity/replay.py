"""Layers fed by themselves: given inputs to outputs, all of them in a few runs of a few compiled programs.

A network repeats its layers, and compiling every one of them is most of a run. So every layer is traced
alone; layers whose traces are equal, constants included, are one *kind*; kinds that occur equally
often share one compiled program, which is run that often. Nothing is assumed to be equal: a layer with
another epsilon has another trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import keras
import numpy as np


def evaluation(layer: Any) -> dict[str, bool]:
    """The argument that says evaluation mode, for layers that take it; the others have no other mode."""
    return {"training": False} if layer._call_has_training_arg else {}


def feed(layer: Any, weights: Sequence[Any], inputs: Sequence[Any]) -> Any:
    """The output of one layer with these weights for these inputs, in evaluation mode."""
    with keras.StatelessScope(state_mapping=list(zip(layer.variables, weights, strict=True))):
        return layer(*inputs, **evaluation(layer))


class Replay:
    """Feeds the layers of ``layers`` inputs shaped like ``examples``."""

    def __init__(
        self, layers: Mapping[str, Any], examples: Mapping[str, Sequence[Any]], options: dict[str, Any]
    ) -> None:
        self._layers = layers
        kinds: dict[str, list[str]] = {}
        for path, layer in layers.items():
            kinds.setdefault(_trace_key(layer, examples[path]), []).append(path)
        alike: dict[int, list[list[str]]] = {}
        for paths in kinds.values():
            alike.setdefault(len(paths), []).append(paths)
        self._programs = [(paths, self._compile(paths, options)) for paths in alike.values()]

    def __call__(self, inputs: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Every layer's output, by path."""
        outputs: dict[str, Any] = {}
        for kinds, program in self._programs:
            for chosen in zip(*kinds, strict=True):
                weights = [[variable.value for variable in self._layers[path].variables] for path in chosen]
                outputs.update(zip(chosen, program(weights, [inputs[path] for path in chosen]), strict=True))
        return outputs

    def _compile(self, kinds: list[list[str]], options: dict[str, Any]) -> Any:
        """One program for the first layer of each kind, which stands for all of it."""
        firsts = [self._layers[paths[0]] for paths in kinds]

        def program(weights: list[list[Any]], inputs: list[Any]) -> list[Any]:
            return [feed(layer, own, values) for layer, own, values in zip(firsts, weights, inputs, strict=True)]

        return jax.jit(program, compiler_options=options)


def _trace_key(layer: Any, inputs: Sequence[Any]) -> str:
    """A digest of everything the layer computes, given its weights and inputs."""
    weights = [variable.value for variable in layer.variables]
    traced = jax.make_jaxpr(lambda own, values: feed(layer, own, values))(weights, inputs)
    digest = hashlib.sha256(str(traced.jaxpr).encode())
    for constant in traced.consts:
        value = np.asarray(constant)
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    return digest.hexdigest()
