"""Families by name, those of other packages too, each imported on first use; and the family of a mapping table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from wdport.base.errors import MisfitError, UsageError
from wdport.base.extensions import declared_families, load_family, package_of
from wdport.compare.gate_bounds import BOUNDS, Bound
from wdport.families.roles import Family, OwnFamily
from wdport.families.shipped import HOME, OWN_PACKAGE, SHIPPED
from wdport.mapping.rows import Table
from wdport.mapping.table import CUSTOM, load_table
from wdport.models.interface import KerasModel


def family_of(table: Table, model: str | None, reference: str | None, inputs: Sequence[str]) -> Family:
    """The family of a table; options for the user's own model are errors for other families."""
    if table.family == CUSTOM:
        return _own_family(table, model, reference, inputs)
    for flag, value in (("--keras-model", model), ("--input", inputs)):
        if value:
            raise UsageError(flag, f"the {table.family} family has its own", "leave it out")
    return find_family(table.family, table.path)


def _own_family(table: Table, model: str | None, reference: str | None, inputs: Sequence[str]) -> OwnFamily:
    """The module is imported when a table needs it, as for other families."""
    sampled = (f"{HOME}.custom_sampled", "CustomSampled")
    module, name = sampled if table.sampling else ("wdport.families.custom", "CustomFamily")
    return getattr(import_module(module), name)(table, model, reference, inputs)


def own_model(
    mapping: str | PathLike[str] | None, model: str | None, reference: str | None, inputs: Sequence[str]
) -> OwnFamily | None:
    """The user's own model (:class:`wdport.families.custom.CustomFamily`), if
    ``mapping`` is the table of one; ``None`` otherwise. Raises :class:`WdportError`."""
    table = load_table(Path(mapping)) if mapping else None
    if table is None or table.family != CUSTOM:
        return None
    return _own_family(table, model, reference, inputs)


def find_family(name: str, where: str | Path) -> Family:
    """The family named by a table or a converted file; raises :class:`MisfitError` if unknown."""
    # First, so that no installed package can take the name of one of these.
    if name in SHIPPED:
        return import_module(f"{HOME}.{name}.family").FAMILY
    if name not in known_names():
        raise MisfitError(where, f"unknown model family {name!r}", f"use one of {', '.join(known_names())}")
    family = cast(Family, load_family(name))
    if getattr(family, "name", None) != name:
        what = f"the family that it declares as {name} has the name {getattr(family, 'name', None)!r}"
        raise MisfitError(package_of(declared_families()[name]), what, "correct the package")
    return family


def known_names() -> tuple[str, ...]:
    """The names of all families: those that wdport ships, and those of other packages; raises :class:`MisfitError` if
    a package declares one of wdport's."""
    others = declared_families()
    for name in SHIPPED:
        if name in others:
            what = f"declares the family {name}, which is one of wdport's"
            raise MisfitError(package_of(others[name]), what, "uninstall the package")
    return (*SHIPPED, *others)


def package_of_family(name: str) -> str:
    """The name and the release of the package that a family is of; "" for wdport's, and the user's own model."""
    declared = None if name in SHIPPED else declared_families().get(name)
    return "" if declared is None else package_of(declared)


def shipped() -> list[Family]:
    """Every family that wdport ships."""
    return [find_family(name, name) for name in SHIPPED]


def all_families() -> list[Family]:
    """Every family, those of other packages too."""
    return [find_family(name, name) for name in known_names()]


def known_bounds() -> dict[str, Bound]:
    """Every bound that a policy may set: those of the engine and of the families' own gates."""
    families = (family.bounds for family in all_families())
    return {name: bound for bounds in (BOUNDS, *families) for name, bound in bounds.items()}


def family_of_class(registered_name: object, where: str | Path) -> Family:
    """The family of a model in a ``.keras`` file; raises :class:`MisfitError` if it is of none."""
    name = family_name(registered_name) if isinstance(registered_name, str) else None
    if name is None:
        named = f" ({registered_name})" if isinstance(registered_name, str) else ""
        fix = "give its table to the verbs with --mapping, or load it with keras.saving.load_model"
        raise MisfitError(where, f"is a Keras model{named} that wdport did not write", fix)
    return find_family(name, where)


def family_name(registered_name: str) -> str | None:
    """The name of the family whose Keras class is registered under this name; ``None`` if there is none."""
    package, _, keras_class = registered_name.partition(">")
    if package == OWN_PACKAGE:
        return next((name for name, class_name in SHIPPED.items() if class_name == keras_class), None)
    others = (find_family(name, name) for name in known_names() if name not in SHIPPED)
    return next((family.name for family in others if family.registered_name == registered_name), None)


_OWN: WeakKeyDictionary[object, tuple[Family, Any]] = WeakKeyDictionary()
"""Family and configuration of the user's own Keras models, which their classes do not state."""


def remember(model: KerasModel, family: Family, config: object) -> None:
    """Note the family and the configuration of a user's own Keras model, for :func:`known_model`."""
    _OWN[model] = family, config


def known_model(model: object) -> tuple[Family, Any] | None:
    """The family of a Keras model and its configuration; ``None`` if wdport did not make the model."""
    with suppress(TypeError):  # not weakly referenceable
        if (registration := _OWN.get(model)) is not None:
            return registration
    family = family_of_model(model)
    return None if family is None else (family, getattr(model, "config", None))


def family_of_model(model: object) -> Family | None:
    """The family of a Keras model, by its class or a base class; ``None`` if it is not a wdport model."""
    if (keras := sys.modules.get("keras")) is None:
        return None
    # A user's subclass of one of our classes is registered under its own name.
    for kind in type(model).__mro__:
        if (name := family_name(keras.saving.get_registered_name(kind))) is not None:
            return find_family(name, name)
    return None
