"""Families by name; none is imported before it is asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from wdport.errors import MisfitError
from wdport.model import Family

_MODULES = {"waveletdiff": "wdport.families.waveletdiff.family"}

_CLASSES = {"wdport>WaveletDiff": "waveletdiff"}
"""Keras's registered class name -> family."""


def find_family(name: str, where: str | Path) -> Family:
    """The family that a table or a converted file names; raises :class:`MisfitError` if unknown."""
    if name not in _MODULES:
        raise MisfitError(where, f"unknown model family {name!r}", f"use one of {', '.join(_MODULES)}")
    return cast(Family, import_module(_MODULES[name]).FAMILY)


def family_of_class(registered_name: object, where: str | Path) -> Family:
    """The family of a model in a ``.keras`` file; raises :class:`MisfitError` if it is none of ours."""
    name = _CLASSES.get(registered_name) if isinstance(registered_name, str) else None
    if name is None:
        raise MisfitError(where, f"holds a {registered_name!s}, no model of wdport", "load it with keras itself")
    return find_family(name, where)
