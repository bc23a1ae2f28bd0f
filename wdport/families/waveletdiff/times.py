"""Values that depend only on time: the sampling network's tables, and the same from the Keras model's own layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from wdport.model import Array, KerasLayer, KerasModel

if TYPE_CHECKING:
    from jax import Array as Tensor

    from wdport.families.waveletdiff.fast import Embedded

CHANNELS = 32
"""Approximate number of channels checked per layer."""


def time_tables(embedded: Embedded) -> Iterator[tuple[str, Array]]:
    """By Keras layer path, some channels of the table (S, n) that sampling uses for it; ``embedded`` are those of
    a :class:`Denoiser`."""
    for level, blocks in enumerate(embedded["norms"]):
        for block, norms in enumerate(blocks):
            for name, halves in zip(("norm1", "norm2"), norms, strict=True):
                yield f"level_{level}/block_{block}/{name}/ada_lin", _some(np.concatenate(halves, axis=-1))
    for level, (halves, gate) in enumerate(embedded["gates"]):
        yield f"cross_level/norm_{level}/ada_lin", _some(np.concatenate(halves, axis=-1))
        yield f"cross_level/gate_{level}/linear", _some(np.asarray(gate))


def _some(array: Array) -> Array:
    """Equally spaced channels, of which there are 50,000 at the released size: all channels of a layer share the
    time."""
    return array[..., :: max(1, array.shape[-1] // CHANNELS)]


def time_layers(model: KerasModel, times: Array | Tensor) -> Iterator[tuple[str, Array]]:
    """The same in the same order, from the model's time embedding of ``times`` (S,) and its layers' weights; gates
    without the token half. In numpy: JAX would compile hundreds of products of different shapes."""
    embedded = np.asarray(model.time_embedding(times))

    def projected(layer: KerasLayer) -> Array:
        kernel, bias = np.asarray(layer.kernel.value), np.asarray(layer.bias.value)
        # A gate's kernel has the rows of the tokens first: the last rows are those of the time.
        result: Array = embedded @ _some(kernel[len(kernel) - embedded.shape[1] :]) + _some(bias)
        return result

    for level in range(model.config.groups):
        level_layer = getattr(model, f"level_{level}")
        for block in range(level_layer.depth):
            for name in ("norm1", "norm2"):
                layer = getattr(getattr(level_layer, f"block_{block}"), name).ada_lin
                yield f"level_{level}/block_{block}/{name}/ada_lin", projected(layer)
    for level in range(model.config.groups if model.cross_level is not None else 0):
        norm, gate = (getattr(model.cross_level, f"{part}_{level}") for part in ("norm", "gate"))
        yield f"cross_level/norm_{level}/ada_lin", projected(norm.ada_lin)
        yield f"cross_level/gate_{level}/linear", projected(gate.linear)
