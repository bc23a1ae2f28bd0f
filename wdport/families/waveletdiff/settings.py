"""User settings: the public training script's YAML form, and ``--set NAME=VALUE`` flags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wdport.errors import MisfitError, UsageError
from wdport.families.waveletdiff.config import SETTINGS, Config
from wdport.families.waveletdiff.public_form import READ, near, unknown_names
from wdport.fields import typed_setting
from wdport.model import Document
from wdport.wavelets.lengths import auto_level, auto_wavelet


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
    _require_understood(document, where)
    if not values and not _section(document, "wavelet", where):
        raise MisfitError(where, f"holds no setting of a WaveletDiff model{_instead(document)}", _GIVE)
    # The public form has no field for the boundary mode: its pipeline always extends symmetrically.
    values["boundary_mode"] = "symmetric"
    read_wavelet(_section(document, "wavelet", where), values, where)
    return values


GAUSSIAN = ("gaussian", "normal")


def _require_understood(document: Document, where: str | Path) -> None:
    """Refuse another prior than the normal distribution: sampling would begin with other noise."""
    prior = _section(document, "noise", where).get("prior")
    if prior is not None and str(prior).casefold() not in GAUSSIAN:
        raise MisfitError(
            (where, "noise.prior"), f"{str(prior)[:40]!r} is not supported", "samples begin with normal noise"
        )


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
