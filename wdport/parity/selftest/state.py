"""A fault of state: a layer that was compiled with its weights as constants, and so never sees another value.

One set of weights cannot show it. The battery's last case has other biases.
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
    """The fault at one layer of the example."""
    layers = example.layers()
    places = [path for path, layer in layers.items() if path in example.paths and _has_bias(layer)]
    place = places[len(places) // 2]
    example.use(example.cases[0])
    with captured(layers[place]):  # before the weights change, and for as long as they do
        found = judge(example, lambda _: nullcontext(), {**bounds(), **(held or {})})
    yield kill_of(example.name, Mutant(NAME, (place,), lambda *_: nullcontext()), tapped(place, example.paths), found)


def _has_bias(layer: Any) -> bool:
    """A plain dense layer; whether an attention's key has a bias, nobody sees."""
    return hasattr(layer, "units") and getattr(layer, "bias", None) is not None


@contextmanager
def captured(layer: Any) -> Iterator[None]:
    """The layer's call, compiled when it first runs with what its weights are then."""
    compiled = jax.jit(layer.call)
    with patch.object(layer, "call", lambda x, **_: compiled(x)):
        yield
