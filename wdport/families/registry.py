"""Families by name; none is imported before it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import cast

from wdport.compare.bounds import BOUNDS, Bound
from wdport.errors import MisfitError
from wdport.families.roles import Family

_MODULES = {
    "waveletdiff": "wdport.families.waveletdiff.family",
    "ts2vec": "wdport.families.ts2vec.family",
    "unet2d": "wdport.families.unet2d.family",
}

_CLASSES = {
    "wdport>WaveletDiff": "waveletdiff",
    "wdport>TS2Vec": "ts2vec",
    "wdport>UNet2D": "unet2d",
}
"""Keras's registered class name -> family."""


def find_family(name: str, where: str | Path) -> Family:
    """The family that a table or a converted file names; raises :class:`MisfitError` if unknown."""
    if name not in _MODULES:
        raise MisfitError(where, f"unknown model family {name!r}", f"use one of {', '.join(_MODULES)}")
    return cast(Family, import_module(_MODULES[name]).FAMILY)


def known_bounds() -> dict[str, Bound]:
    """Every bound that a policy may set: the engine's, and those of the shipped families' own gates."""
    return {name: bound for each in (BOUNDS, *(family.bounds for family in shipped())) for name, bound in each.items()}


def shipped() -> list[Family]:
    """Every family that wdport comes with."""
    return [find_family(name, name) for name in _MODULES]


def family_of_class(registered_name: object, where: str | Path) -> Family:
    """The family of a model in a ``.keras`` file; raises :class:`MisfitError` if it is none of ours."""
    name = _CLASSES.get(registered_name) if isinstance(registered_name, str) else None
    if name is None:
        fix = "put its manifest beside it, or load it with keras itself"
        raise MisfitError(where, f"holds a {registered_name!s}, no model of wdport", fix)
    return find_family(name, where)


def family_of_model(model: object) -> Family | None:
    """The family of a Keras model, by its class or one that this is made from; ``None`` if it is none of ours."""
    if (keras := sys.modules.get("keras")) is None:
        return None
    for kind in type(model).__mro__:
        if (name := _CLASSES.get(keras.saving.get_registered_name(kind))) is not None:
            return find_family(name, name)
    return None
