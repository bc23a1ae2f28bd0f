"""The user's settings and those that Lightning saved in a checkpoint: the public YAML form, and ``--set
NAME=VALUE``.

They may contain anything, nested as in the public form or flat, so nothing in them is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from wdport.base.errors import MisfitError, UsageError, printable
from wdport.base.fields import typed_setting
from wdport.models.interface import Document
from wdport.uses.waveletdiff.config import SETTINGS, Config
from wdport.uses.waveletdiff.public_form import READ, near, unknown_names
from wdport.uses.wavelets.lengths import auto_level, auto_wavelet

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


def _leaves(values: Mapping[object, object], path: Names, visited: set[int]) -> Iterator[tuple[Names, object]]:
    """Every value with its names; a group that occurs several times, or within itself, once."""
    # A pickled object may contain itself.
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
    # The first value is kept until all are read, then dropped with the others in `torn`.
    elif saved.fields.setdefault(name, value) != value:
        saved.torn.add(name)
        saved.notes.append(f"{what}, but {saved.fields[name]!r} elsewhere in it; not used")


def read_settings(document: Document, where: str | Path) -> dict[str, object]:
    """Read the fields of a configuration file; raises :class:`MisfitError` for unknown names and wrong types."""
    if unknown := unknown_names(document if isinstance(document, Mapping) else {}):
        listed = [f"{name}: no such setting; {remedy}" for name, remedy in unknown]
        more = f", and {len(unknown) - 1} more like it" if len(unknown) > 1 else ""
        raise MisfitError((where, unknown[0][0]), f"no such setting{more}", unknown[0][1], listed)
    values: dict[str, object] = {}
    for (section, key), (name, kind) in READ.items():
        value = _section(document, section, where).get(key)
        if value is None:
            continue
        if not is_of(kind, value):
            raise MisfitError(
                (where, f"{section}.{key}"), f"{value!r} is not of type {kind.__name__}", "correct the value"
            )
        values[name] = value
    prior = _section(document, "noise", where).get("prior")
    if prior is not None and str(prior).casefold() not in ("gaussian", "normal"):
        what = f"{str(prior)[:40]!r} is not supported"
        raise MisfitError((where, "noise.prior"), what, "samples begin with normal noise")
    if not values and not _section(document, "wavelet", where):
        raise MisfitError(where, f"holds no setting of a WaveletDiff model{_instead(document)}", _GIVE)
    # The public form has no field for the boundary mode: its pipeline always extends symmetrically.
    values["boundary_mode"] = "symmetric"
    read_wavelet(_section(document, "wavelet", where), values, where)
    return values


_GIVE = "give the training configuration, with its `model:` section, or `--set NAME=VALUE`"


def _instead(document: object) -> str:
    """What a document has instead of settings."""
    if not isinstance(document, Mapping):
        return ": it is not a mapping of sections"
    if "model" in document:
        return ""
    return f": it has no `model:` section, only {', '.join(map(str, list(document)[:4]))}"


def is_of(kind: type, value: object) -> bool:
    """Whether a value has the type of a setting; an int is a float, and a bool is not a number."""
    accepted = (int, float) if kind is float else kind
    # In Python a bool is an int.
    return isinstance(value, accepted) and not (isinstance(value, bool) and kind is not bool)


def read_wavelet(section: Document, values: dict[str, object], where: str | Path) -> None:
    """Read wavelet name and group count, resolving ``auto`` by the length as the public code does."""
    name, levels, stated_length = section.get("type"), section.get("levels"), values.get("seq_len")
    seq_len = stated_length if isinstance(stated_length, int) else None
    if name is not None and not isinstance(name, str):
        raise MisfitError((where, "wavelet.type"), f"{name!r} is not a name", "give auto or a wavelet of PyWavelets")
    if name == "auto":
        name = auto_wavelet(seq_len) if seq_len else None
    if name is not None:
        values["wavelet"] = name
    if levels == "auto":
        try:
            levels = auto_level(seq_len, name) if seq_len and name else None
        except ValueError as error:
            raise MisfitError((where, "wavelet.type"), str(error), "give a wavelet of PyWavelets") from None
    if levels is not None:
        if type(levels) is not int or levels < 1:
            raise MisfitError((where, "wavelet.levels"), f"{levels!r} is not a level count", "give auto or a number")
        values["levels"] = levels


def _section(document: Document, name: str, where: str | Path) -> Document:
    section = document.get(name) if isinstance(document, Mapping) else None
    if section is not None and not isinstance(section, Mapping):
        raise MisfitError((where, name), "not a group of settings", "indent its settings below it")
    return section or {}


def parse_setting(key: str, text: str) -> object:
    """The value of one ``--set KEY=VALUE``; raises :class:`UsageError`."""
    if key not in SETTINGS:
        meant = near(key.rpartition(".")[2], SETTINGS)
        fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(SETTINGS)}"
        raise UsageError("--set", f"unknown name {key!r}", fix)
    return typed_setting(Config, key, text, "a number")
