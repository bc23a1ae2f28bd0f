"""A fault of state: a layer that was compiled with its weights as constants, and so ignores later assignments.

A single set of weights cannot reveal it. The battery's last case has other biases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import jax

from wdport.compare.bounds import bounds
from wdport.families.faults import Bounds, Kill
from wdport.families.mutants import Mutant
from wdport.parity.diagnose import tapped
from wdport.parity.selftest.example import Example
from wdport.parity.selftest.inject import judge, kill_of

NAME = "weights captured at trace time"


def run_state_faults(example: Example, held: Bounds | None = None) -> Iterator[Kill]:
    """Try the fault at one layer of the example."""
    layers = example.layers()
    tapped_layers = {path: layer for path, layer in layers.items() if path in example.paths}
    places = [path for path, layer in tapped_layers.items() if _has_bias(layer)]
    places = places or [path for path, layer in tapped_layers.items() if _has_scale(layer)]
    place = places[len(places) // 2]
    example.use(example.cases[0])
    with captured(layers[place]):  # before the weights change, and for as long as they do
        found = judge(example, lambda _: nullcontext(), {**bounds(), **(held or {})})
    yield kill_of(example.name, Mutant(NAME, (place,), lambda *_: nullcontext()), tapped(place, example.paths), found)


def _has_bias(layer: Any) -> bool:
    """Whether this is a plain dense layer with a bias; a bias of an attention's key has no effect."""
    return hasattr(layer, "units") and getattr(layer, "bias", None) is not None


def _has_scale(layer: Any) -> bool:
    """Whether this is a layer whose only weights are vectors, which the battery's last case shifts as it shifts
    biases."""
    return bool(layer.weights) and all(len(weight.shape) == 1 for weight in layer.weights)


@contextmanager
def captured(layer: Any) -> Iterator[None]:
    """Inside, the layer's call is compiled at its first run with the values that its weights have then."""
    compiled = jax.jit(layer.call)
    with patch.object(layer, "call", lambda x, **_: compiled(x)):
        yield
