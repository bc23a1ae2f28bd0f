"""The hyper-parameters that Lightning saved in a checkpoint: those that are settings of this model, or nearly match
one.

They may contain anything, nested as in the public form or flat, so nothing in them is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from wdport.errors import MisfitError, printable
from wdport.families.waveletdiff.public_form import READ, near
from wdport.families.waveletdiff.settings import is_of, read_wavelet

NAME: Final = "hyper_parameters"

FLAT: Final[Mapping[str, tuple[str, type]]] = {
    **{key: field for (section, key), field in READ.items() if section != "noise"},
    "cross_level_attention": ("cross_level_attention", bool),
    "noise_schedule": ("noise_schedule", str),
    "boundary_mode": ("boundary_mode", str),
}
"""Names that are unambiguous in any group."""

_WAVELET: Final = {"wavelet": "type", "wavelet_type": "type", "wavelet_levels": "levels"}
_AROUND: Final = ("config", "cfg", "hparams", "args", "kwargs", "params", "model_config", "model", "model_kwargs")
"""Groups whose flat names are assumed to be those of the model."""

_DEEPEST: Final = 6
_MOST: Final = 5000
"""Limit of values that are checked: each name is compared with all known ones."""

Names = tuple[str, ...]
"""The path of names to a value."""


@dataclass
class Saved:
    """Fields of :class:`Config` from the metadata of a file, and notes on unreadable values.

    ``torn`` are fields with contradictory values, ``unknown`` other names with the field that each nearly matches.
    """

    fields: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)


def read_saved(values: object) -> Saved:
    """Read the settings among hyper-parameters of any form."""
    saved, wavelet = Saved(), dict[str, object]()
    if not isinstance(values, Mapping):
        if values is not None:
            saved.notes.append(f"{NAME} is a {type(values).__name__} and not read")
        return saved
    for path, value in islice(_leaves(values, (), set()), _MOST):
        _take(saved, wavelet, path, value)
    try:
        read_wavelet(wavelet, saved.fields, NAME)
    except MisfitError as error:
        saved.notes.append(f"{error.where}: {error.what}; not used")
    saved.fields = {name: value for name, value in saved.fields.items() if name not in saved.torn}
    return saved


def near_misses(saved: Saved, assumed: Collection[str]) -> list[str]:
    """Notes on names that may be misspelt fields whose values are now assumed."""
    return [f"{name} is not read; {meant} is assumed" for name, meant in saved.unknown.items() if meant in assumed]


def _leaves(values: Mapping[object, object], path: Names, visited: set[int]) -> Iterator[tuple[Names, object]]:
    """Every value with its names; a group that occurs several times, or within itself, once."""
    visited.add(id(values))
    for name, value in values.items():
        here = (*path, str(name))
        if not isinstance(value, Mapping):
            yield here, value
        elif len(here) < _DEEPEST and id(value) not in visited:
            yield from _leaves(value, here, visited)


def _take(saved: Saved, wavelet: dict[str, object], path: Names, value: object) -> None:
    """Store one value in ``saved.fields`` or ``wavelet``, or its name among the near misses."""
    section, key = ("", *path)[-2:]
    flat = all(part.casefold() in _AROUND for part in path[:-1])
    field = READ.get((section, key)) or (FLAT.get(key) if flat else None)
    if (section, key) in (("wavelet", "type"), ("wavelet", "levels")):
        wavelet.setdefault(key, value)
    elif flat and key in _WAVELET:
        wavelet.setdefault(_WAVELET[key], value)
    elif field and value is not None:
        _keep(saved, path, field, value)
    elif not field and (flat or any(section == where for where, _ in READ)):
        meant = near(key, FLAT)
        if meant:
            saved.unknown[f"{NAME}.{'.'.join(path)}"] = FLAT[meant][0]


def _keep(saved: Saved, path: Names, field: tuple[str, type], value: object) -> None:
    name, kind = field
    what = f"{NAME}.{'.'.join(path)} is {printable(repr(value), 60)}"
    if not is_of(kind, value):
        saved.notes.append(f"{what}, which is not of type {kind.__name__}; not used")
    elif saved.fields.setdefault(name, value) != value:
        saved.torn.add(name)
        saved.notes.append(f"{what}, but {saved.fields[name]!r} elsewhere in it; not used")
