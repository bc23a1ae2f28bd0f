"""A new WaveletDiff for training from scratch: its configuration and its recipe, from the configuration file of the
public training script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final

from wdport.base.errors import MisfitError
from wdport.base.fields import fields_of
from wdport.base.limits import MAX_GROUPS
from wdport.models.interface import COSINE_WARMUP, Document, Recipe
from wdport.uses.data.transforms import OHLC_ATR
from wdport.uses.diffusion.process import MIN_SNR
from wdport.uses.waveletdiff.config import SIZES, Config
from wdport.uses.waveletdiff.settings import is_of
from wdport.uses.wavelets.lengths import auto_level, auto_wavelet, group_lengths

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

PUBLIC_SCHEDULES = ("onecycle", COSINE_WARMUP)


def fresh_config(settings: Document, where: str | Path) -> tuple[Config, dict[str, object]]:
    """See :class:`wdport.uses.roles.Fresh`; ``auto`` and missing wavelets and levels are chosen by the length."""
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
        config = Config(**{
            **SIZES, **{name: value for name, value in values.items() if name in fields_of(Config)},
            "level_lengths": group_lengths(length, wavelet, level, mode),
            "features": len(values["norm_mean"]) if features is None else features,
        })  # fmt: skip
    except ValueError as error:
        raise MisfitError(where, str(error), "correct the configuration") from None
    return config, {name: value for name, value in SIZES.items() if name not in values}


def recipe(document: Document, where: str | Path, public: bool = False) -> Recipe:
    """See :class:`wdport.uses.roles.Fresh`."""
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
    stated = Recipe(**values)
    return _public(stated, where) if public else stated


def _public(stated: Recipe, where: str | Path) -> Recipe:
    """The recipe of the public training script with a file that states these values."""
    schedule = stated.schedule or "onecycle"
    if schedule not in PUBLIC_SCHEDULES:
        what = f"is {schedule}, which needs values measured in training, or other rates than are known"
        raise MisfitError((where, "optimizer.scheduler_type"), what, f"give {' or '.join(PUBLIC_SCHEDULES)}")
    rate = PEAK if schedule == "onecycle" else stated.learning_rate or RATE
    warmup = WARMUP if stated.warmup_epochs is None else stated.warmup_epochs
    return replace(stated, learning_rate=rate, schedule=schedule, weight_decay=DECAY, clip=CLIP, law=MIN_SNR,
                   warmup_epochs=warmup if schedule == COSINE_WARMUP else None)  # fmt: skip
