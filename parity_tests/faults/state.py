"""A fault of state: a layer that was compiled with its weights as constants, and so ignores later assignments.

A single set of weights cannot reveal it. The battery's last case has other biases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax

from wdport.families.faults import Bounds, Kill, Mutant
from wdport.parity.selftest.inject import inject
from wdport.parity.selftest.specimen import Specimen

NAME = "weights captured at trace time"


def run_state_faults(specimen: Specimen, held: Bounds | None = None) -> Iterator[Kill]:
    """Try the fault at one layer of the specimen."""
    tapped = {path: layer for path, layer in specimen.layers().items() if path in specimen.tapped}
    places = [path for path, layer in tapped.items() if _has_bias(layer)]
    places = places or [path for path, layer in tapped.items() if _has_scale(layer)]
    place = places[len(places) // 2]
    yield inject(specimen, Mutant(NAME, (place,), lambda layer, _: captured(layer)), place, held)


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
