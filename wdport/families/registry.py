"""Families by name; each is imported on first use."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from wdport.compare.bounds import BOUNDS, Bound
from wdport.errors import MisfitError
from wdport.families.roles.family import Family
from wdport.model import KerasModel

_MODULES = {
    "waveletdiff": "wdport.families.waveletdiff.family",
    "ts2vec": "wdport.families.ts2vec.family",
    "unet2d": "wdport.families.unet2d.family",
    "masked_lm": "wdport.families.masked_lm.family",
    "wan_vae": "wdport.families.wan_vae.family",
}

_CLASSES = {
    "wdport>WaveletDiff": "waveletdiff",
    "wdport>TS2Vec": "ts2vec",
    "wdport>UNet2D": "unet2d",
    "wdport>MaskedLM": "masked_lm",
    "wdport>WanVAE": "wan_vae",
}
"""Keras's registered class name -> family."""


def find_family(name: str, where: str | Path) -> Family:
    """The family named by a table or a converted file; raises :class:`MisfitError` if unknown."""
    if name not in _MODULES:
        raise MisfitError(where, f"unknown model family {name!r}", f"use one of {', '.join(_MODULES)}")
    return cast(Family, import_module(_MODULES[name]).FAMILY)


def known_bounds() -> dict[str, Bound]:
    """Every bound that a policy may set: those of the engine and of the shipped families' own gates."""
    return {name: bound for each in (BOUNDS, *(family.bounds for family in shipped())) for name, bound in each.items()}


def shipped() -> list[Family]:
    """Every family that wdport ships."""
    return [find_family(name, name) for name in _MODULES]


def family_of_class(registered_name: object, where: str | Path) -> Family:
    """The family of a model in a ``.keras`` file; raises :class:`MisfitError` if it is not a wdport model."""
    name = _CLASSES.get(registered_name) if isinstance(registered_name, str) else None
    if name is None:
        named = f" ({registered_name})" if isinstance(registered_name, str) else ""
        fix = "give the file that wdport convert wrote; keras.saving.load_model loads this one"
        raise MisfitError(where, f"is a Keras model{named} that wdport did not write", fix)
    return find_family(name, where)


_OWN: WeakKeyDictionary[object, tuple[Family, Any]] = WeakKeyDictionary()
"""Family and configuration of the user's own Keras models, which their classes do not tell."""


def remember(model: KerasModel, family: Family, config: object) -> None:
    """Note the family and the configuration of a user's own Keras model, for :func:`known_model`."""
    _OWN[model] = family, config


def known_model(model: object) -> tuple[Family, Any] | None:
    """The family of a Keras model and its configuration; ``None`` if wdport did not make the model."""
    with suppress(TypeError):  # not weakly referenceable
        if (own := _OWN.get(model)) is not None:
            return own
    family = family_of_model(model)
    return None if family is None else (family, getattr(model, "config", None))


def family_of_model(model: object) -> Family | None:
    """The family of a Keras model, by its class or a base class; ``None`` if it is not a wdport model."""
    if (keras := sys.modules.get("keras")) is None:
        return None
    for kind in type(model).__mro__:
        if (name := _CLASSES.get(keras.saving.get_registered_name(kind))) is not None:
            return find_family(name, name)
    return None
