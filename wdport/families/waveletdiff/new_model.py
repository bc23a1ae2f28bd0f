"""A new WaveletDiff for training from scratch: initial weights distributed as in the public training script, from
its configuration file.

Drawn by numpy, which `keras.utils.set_random_seed` also seeds, or :func:`seeded`: JAX would compile a program for every
shape. Building the model at the released size takes 9.3 s with JAX, and 4.2 s with numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import Any, Final

import jax
import keras
import numpy as np
from keras import layers

from wdport.data.transforms import OHLC_ATR
from wdport.diffusion.process import MIN_SNR
from wdport.errors import MisfitError
from wdport.families.waveletdiff.config import SIZES, Config
from wdport.families.waveletdiff.settings import is_of
from wdport.limits import MAX_GROUPS
from wdport.model import Array, Document, Recipe
from wdport.wavelets.lengths import auto_level, auto_wavelet, group_lengths

_BLANK: ContextVar[dict[tuple[tuple[int, ...], str | None], jax.Array] | None] = ContextVar("blank", default=None)


@contextmanager
def blank() -> Iterator[None]:
    """Context in which weights are zero instead of random, for models that are filled afterwards.

    Weights of one shape and dtype share one array, so that no memory is allocated for values that are replaced.
    """
    token = _BLANK.set({})
    try:
        yield
    finally:
        _BLANK.reset(token)


def _zeros(shape: tuple[int, ...], dtype: str | None) -> Array | jax.Array:
    # JAX arrays are immutable, so many variables can share one until they are assigned.
    blanks = _BLANK.get()
    if blanks is None:
        return np.zeros(shape, np.float32)
    if (shape, dtype) not in blanks:
        blanks[shape, dtype] = jax.device_put(np.zeros(shape, dtype or "float32"))
    return blanks[shape, dtype]


_SEEDED: ContextVar[np.random.Generator | None] = ContextVar("seeded", default=None)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Context in which the weights are determined by a seed."""
    token = _SEEDED.set(np.random.default_rng(seed))
    try:
        yield
    finally:
        _SEEDED.reset(token)


def _generator() -> np.random.Generator:
    # One number of the global generator, so that keras.utils.set_random_seed determines the weights.
    return _SEEDED.get() or np.random.default_rng(np.random.randint(2**31))


class Zeros(keras.initializers.Initializer):
    """Zeros, without compiling a program for every shape as Keras's own initializer does."""

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Array | jax.Array:
        return _zeros(tuple(shape), dtype)


class XavierUniform(keras.initializers.Initializer):
    """Uniform within sqrt(6 / fans); ``fans`` is fan-in + fan-out of the matrix that PyTorch holds."""

    def __init__(self, fans: int) -> None:
        self.limit = (6.0 / fans) ** 0.5

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Array | jax.Array:
        if _BLANK.get() is not None:
            return _zeros(tuple(shape), dtype)
        # Not `uniform`, which draws float64.
        return (_generator().random(shape, np.float32) * 2.0 - 1.0) * np.float32(self.limit)


class UnitRows(keras.initializers.Initializer):
    """Rows drawn from N(0, 0.1^2) and scaled to length 1."""

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Array | jax.Array:
        rows = _generator().normal(0.0, 0.1, shape)
        return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def linear(inputs: int, outputs: int, name: str) -> layers.Dense:
    """A Dense layer (..., inputs) -> (..., outputs), Xavier-uniform with zero bias."""
    kernel, bias = XavierUniform(inputs + outputs), Zeros()
    return layers.Dense(outputs, kernel_initializer=kernel, bias_initializer=bias, name=name)


_RECIPE: Final[Mapping[str, tuple[type, tuple[tuple[str, str], ...]]]] = {
    "epochs": (int, (("training", "epochs"), ("training", "max_epochs"))),
    "batch_size": (int, (("training", "batch_size"),)),
    "learning_rate": (float, (("optimizer", "lr"), ("optimizer", "learning_rate"), ("training", "lr"),
                              ("training", "learning_rate"))),
    "weight_decay": (float, (("optimizer", "weight_decay"),)),
    "schedule": (str, (("optimizer", "scheduler_type"),)),
    "energy": (float, (("energy", "weight"),)),
    "warmup_epochs": (int, (("optimizer", "warmup_epochs"),)),
}  # fmt: skip
"""Type, sections and names of the file's settings of training."""


PEAK, DECAY, CLIP, RATE = 1e-3, 1e-5, 1.0, 2e-4
"""Constants of the public training script: the largest rate of its one-cycle schedule, whatever rate the file states,
weight decay, the norm of clipped gradients, and the rate without a schedule if the file has none."""

WARMUP = 50
"""Epochs of warm-up if the file states none."""

PUBLIC_SCHEDULES = ("onecycle", "cosine_warmup")


def public_recipe(document: Document, where: str | Path) -> Recipe:
    """The recipe of the public training script with this file."""
    stated = recipe(document, where)
    schedule = stated.schedule or "onecycle"
    if schedule not in PUBLIC_SCHEDULES:
        what = f"is {schedule}, which needs values measured in training, or other rates than are known"
        raise MisfitError((where, "optimizer.scheduler_type"), what, f"give {' or '.join(PUBLIC_SCHEDULES)}")
    rate = PEAK if schedule == "onecycle" else stated.learning_rate or RATE
    warmup = WARMUP if stated.warmup_epochs is None else stated.warmup_epochs
    return replace(stated, learning_rate=rate, schedule=schedule, weight_decay=DECAY, clip=CLIP, law=MIN_SNR,
                   warmup_epochs=warmup if schedule == "cosine_warmup" else None)  # fmt: skip


def fresh_config(settings: Document, where: str | Path) -> tuple[Config, dict[str, object]]:
    """See :class:`wdport.families.roles.Fresh`; ``auto`` and missing wavelets and levels are chosen by the length."""
    values: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    length = values.get("seq_len")
    if length is None:
        raise MisfitError((where, "dataset.seq_len"), "is missing", "give the length of a window")
    try:
        wavelet = values.setdefault("wavelet", auto_wavelet(length))
        level = values.pop("levels", None) or auto_level(length, wavelet)
        if level >= MAX_GROUPS:
            raise ValueError(f"levels is {level}, at most {MAX_GROUPS - 1} are supported")
        mode = values.setdefault("boundary_mode", "symmetric")
        features = values.pop("features", None)
        if callable(statistics := values.get("window_statistics")):
            values["window_statistics"], features = statistics(length), features(length)
            if values["transform"] == OHLC_ATR:
                values |= {"scale_embedding": True, "conditioning": "scale"}
        names = {field.name for field in fields(Config)}
        config = Config(**{
            **SIZES, **{name: value for name, value in values.items() if name in names},
            "level_lengths": group_lengths(length, wavelet, level, mode),
            "features": len(values["norm_mean"]) if features is None else features,
        })  # fmt: skip
    except ValueError as error:
        raise MisfitError(where, str(error), "correct the configuration") from None
    return config, {name: value for name, value in SIZES.items() if name not in values}


def recipe(document: Document, where: str | Path) -> Recipe:
    """See :class:`wdport.families.roles.Fresh`."""
    values: dict[str, Any] = {}
    for name, (kind, places) in _RECIPE.items():
        for section, key in places:
            inside = document.get(section)
            value = inside.get(key) if isinstance(inside, Mapping) else None
            if value is None or name in values:
                continue
            least = {"epochs": 1, "batch_size": 1}.get(name, 0)
            # A comparison with NaN is false, so NaN is refused too.
            if not is_of(kind, value) or (kind is not str and not least <= value < inf):
                expected = (
                    "a name" if kind is str else f"{'a whole number' if kind is int else 'a number'} from {least}"
                )
                raise MisfitError((where, f"{section}.{key}"), f"is {value!r}", f"give {expected}")
            values[name] = value
    return Recipe(**values)
