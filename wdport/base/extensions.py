"""Model families of other installed packages, by the entry points that they declare.

A package adds a family with an entry point ``NAME = "PACKAGE.family:FAMILY"`` in the group :data:`GROUP`, and its
mapping tables as ``PACKAGE/mappings/*.yaml``. Nothing of a package is imported before its family is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from wdport.base.errors import MisfitError

GROUP: Final = "wdport.families"


@cache
def declared_families() -> Mapping[str, EntryPoint]:
    """The entry points by the family's name; raises :class:`MisfitError` if two packages declare the same one."""
    declared = entry_points(group=GROUP)
    for name, count in Counter(point.name for point in declared).items():
        if count > 1:
            packages = " and ".join(sorted(package_of(point) for point in declared if point.name == name))
            raise MisfitError(name, f"is a model family of {packages}", "uninstall one of these packages")
    return MappingProxyType({point.name: point for point in declared})


def load_family(name: str) -> object:
    """The object that the entry point of a declared family names; raises :class:`MisfitError` if there is none."""
    declared = declared_families()[name]
    try:
        return declared.load()
    except (ImportError, AttributeError) as error:
        what = f"the package {package_of(declared)} declares it as {declared.value}, which cannot be imported: {error}"
        raise MisfitError(name, what, "correct or reinstall the package") from error


def tables_folders() -> Mapping[str, Path]:
    """The folder with mapping tables of every package that has one, by the package's name."""
    modules = {declared.module.rpartition(".")[0] or declared.module for declared in declared_families().values()}
    return {module: folder for module in sorted(modules) if (folder := _tables_folder(module)) is not None}


def _tables_folder(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ImportError:  # raised for the package that contains it
        return None
    places = None if spec is None else spec.submodule_search_locations
    folders = (Path(place, "mappings") for place in places or ())
    return next((folder for folder in folders if folder.is_dir()), None)


def package_of(declared: EntryPoint) -> str:
    """The name and the release of the distribution that an entry point is of, or else its module."""
    distribution = declared.dist
    return declared.module if distribution is None else f"{distribution.name} {distribution.version}"
