"""Known bugs of the time embedding, by its kind, and of the class embedding."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
from keras import ops

from parity_tests.faults.unet2d.places import NETWORK
from wdport.families.faults import Change, Mutant, array_of, attributes, calling, holding
from wdport.families.unet2d.config import Config
from wdport.model import KerasLayer, KerasModel, KerasTensor
from wdport.nets.embeddings import LONGEST, frequencies

TIME = ("time_proj",)
CLASS = ("class_embedding",)


def time_mutants(config: Config) -> list[Mutant]:
    """The mutants of this configuration's kind of time embedding."""
    kind = config.time_embedding_type
    if kind == "learned":
        return [Mutant("time: off by one", NETWORK, _later)]  # its table may be that of the classes, too
    found = [
        Mutant("time: of the first sample for all", TIME, _fed(lambda t: jnp.broadcast_to(t[:1], t.shape))),
        Mutant("time: in bfloat16", TIME, _fed(lambda t: ops.cast(ops.cast(t, "bfloat16"), "float32"))),
        Mutant("time: sines and cosines swapped", TIME, calling(_halves_swapped), quick=True),
        Mutant("time: sines and cosines alternating", TIME, calling(_alternating)),
    ]
    if kind == "fourier":
        return [
            *found,
            Mutant("time: not by its logarithm", TIME, _fed(jnp.exp)),
            Mutant("time: 2 pi left out", TIME, calling(_without_turns)),
            Mutant("time: output not divided by it", NETWORK, _not_divided),
        ]
    half, shift = config.block_out_channels[0] // 2, config.freq_shift
    other = 0.0 if shift else 1.0
    return [
        *found,
        Mutant("time: off by one", TIME, _fed(lambda t: t + 1), quick=True),
        Mutant("time: divided by 1000", TIME, _fed(lambda t: ops.cast(t, "float32") / 1000.0)),
        *(
            [Mutant(f"time: freq_shift {other:g}", TIME, _frequencies(frequencies(half, other)))]
            if half != other
            else []
        ),
        Mutant("time: frequencies by the whole width", TIME, _frequencies(frequencies(2 * half, shift)[:half])),
        Mutant("time: longest period 1000", TIME, _frequencies(frequencies(half, shift) ** (np.log(1e3) / _LOG))),
    ]


_LOG = np.log(LONGEST)


def class_mutants(config: Config) -> list[Mutant]:
    """The mutants of class conditioning, if present."""
    if not config.classes:
        return []
    gate = "A" if config.classes == "identity" else "0"  # its layers are not run
    found = [
        Mutant("class: dropped", NETWORK, _embedding(0.0), gate=gate, quick=True),
        Mutant("class: added twice", NETWORK, _embedding(2.0)),
    ]
    if config.classes == "table":
        found.append(Mutant("class: off by one", CLASS, _rolled))
        found.append(
            Mutant("class: of the first sample for all", CLASS, _fed(lambda y: ops.broadcast_to(y[:1], y.shape)))
        )
    return found


def _fed(function: Callable[[KerasTensor], KerasTensor]) -> Change:
    """The layer with its input changed."""
    return calling(lambda layer, given: type(layer).call(layer, function(given)))


def _frequencies(made: np.ndarray) -> Change:
    return lambda layer, _: attributes(layer, frequencies=made.astype(layer.frequencies.dtype))


def _halves_swapped(layer: KerasLayer, times: KerasTensor) -> KerasTensor:
    made = type(layer).call(layer, times)
    half = made.shape[-1] // 2
    return jnp.concatenate([made[:, half : 2 * half], made[:, :half], made[:, 2 * half :]], axis=-1)


def _alternating(layer: KerasLayer, times: KerasTensor) -> KerasTensor:
    made = type(layer).call(layer, times)
    half = made.shape[-1] // 2
    mixed = jnp.stack([made[:, :half], made[:, half : 2 * half]], axis=-1).reshape(made.shape[0], -1)
    return jnp.concatenate([mixed, made[:, 2 * half :]], axis=-1)


def _without_turns(layer: KerasLayer, times: KerasTensor) -> KerasTensor:
    angles = jnp.log(times)[:, None] * ops.convert_to_tensor(layer.weight)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _rolled(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    """Every index looks up the next row."""
    return holding((layer.embeddings, np.roll(array_of(layer.embeddings), -1, axis=0)))


def _later(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    embed, steps = model.embed, model.config.steps
    return patch.object(model, "embed", lambda times, *labels: embed((times + 1) % steps, *labels))


def _not_divided(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    denoise = model.denoise

    def call(state: KerasTensor, embedding: KerasTensor) -> KerasTensor:
        return denoise(state, embedding.at[:, model.config.time_width :].set(1.0))

    return patch.object(model, "denoise", call)


def _embedding(factor: float) -> Change:
    """The class embedding times ``factor``; not even looked up if that is zero. The time of a Fourier embedding is
    kept."""

    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        def call(times: KerasTensor, labels: KerasTensor) -> KerasTensor:
            made = model.time_embedding(model.time_proj(times))
            if factor:
                made = made + factor * _looked_up(model, labels)
            if model.config.time_embedding_type != "fourier":
                return made
            return jnp.concatenate([made, ops.cast(times, made.dtype)[:, None]], axis=-1)

        return patch.object(model, "embed", call)

    return change


def _looked_up(model: KerasModel, labels: KerasTensor) -> KerasTensor:
    if model.config.classes == "timestep":
        labels = model.time_proj(labels)
    return labels if model.class_embedding is None else model.class_embedding(labels)
