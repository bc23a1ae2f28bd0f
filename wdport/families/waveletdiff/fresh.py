"""A new WaveletDiff for training from scratch, from the public training script's configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import Any, Final

from wdport.errors import MisfitError
from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.settings import is_of
from wdport.model import Document, Recipe
from wdport.wavelets.lengths import auto_level, auto_wavelet, group_lengths

DEFAULTS: Final[Mapping[str, Any]] = {"embed_dim": 256, "num_heads": 8, "num_layers": 8, "time_embed_dim": 128}
"""The sizes of the released models."""

_RECIPE: Final[Mapping[str, tuple[type, tuple[tuple[str, str], ...]]]] = {
    "epochs": (int, (("training", "epochs"), ("training", "max_epochs"))),
    "batch_size": (int, (("training", "batch_size"),)),
    "learning_rate": (float, (("optimizer", "lr"), ("optimizer", "learning_rate"), ("training", "lr"),
                              ("training", "learning_rate"))),
    "weight_decay": (float, (("optimizer", "weight_decay"),)),
    "schedule": (str, (("optimizer", "scheduler_type"),)),
    "energy": (float, (("energy", "weight"),)),
}  # fmt: skip
"""Type, sections and names of what the file says of training."""


def fresh_config(settings: Document, where: str | Path) -> tuple[Config, dict[str, object]]:
    """See :class:`wdport.families.roles.Fresh`; ``auto`` and missing wavelets and levels are chosen by the length."""
    told: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    length = told.get("seq_len")
    if length is None:
        raise MisfitError((where, "dataset.seq_len"), "is missing", "give the length of a window")
    try:
        wavelet = told.setdefault("wavelet", auto_wavelet(length))
        level = told.pop("levels", None) or auto_level(length, wavelet)
        mode = told.setdefault("boundary_mode", "symmetric")
        known = {each.name for each in fields(Config)}
        made = Config(**{
            **DEFAULTS, **{name: value for name, value in told.items() if name in known},
            "level_lengths": group_lengths(length, wavelet, level, mode), "features": len(told["norm_mean"]),
        })  # fmt: skip
    except ValueError as error:
        raise MisfitError(where, str(error), "correct the configuration") from None
    return made, {name: value for name, value in DEFAULTS.items() if name not in told}


def recipe(document: Document, where: str | Path) -> Recipe:
    """See :class:`wdport.families.roles.Fresh`."""
    found: dict[str, Any] = {}
    for name, (kind, places) in _RECIPE.items():
        for section, key in places:
            inside = document.get(section)
            value = inside.get(key) if isinstance(inside, Mapping) else None
            if value is None or name in found:
                continue
            least = {"epochs": 1, "batch_size": 1}.get(name, 0)
            if not is_of(kind, value) or (kind is not str and not least <= value < inf):
                wanted = "a name" if kind is str else f"{'a whole number' if kind is int else 'a number'} from {least}"
                raise MisfitError((where, f"{section}.{key}"), f"is {value!r}", f"give {wanted}")
            found[name] = value
    return Recipe(**found)
