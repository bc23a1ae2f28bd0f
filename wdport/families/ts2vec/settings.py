"""User settings of an encoder, which shapes determine: a configuration file, and ``--set NAME=VALUE``."""

from __future__ import annotations

from pathlib import Path

from wdport.declared import given
from wdport.errors import MisfitError, UsageError, did_you_mean
from wdport.families.ts2vec.config import NAMES, Config
from wdport.fields import fields_of, typed_setting
from wdport.model import Document


def read_settings(document: Document, where: str | Path) -> dict[str, object]:
    """Read the fields of a configuration file; raises :class:`MisfitError` if it has none, or one of another type.

    Its other settings concern training and are ignored.
    """
    values: dict[str, object] = {}
    for key, name in NAMES.items():
        if key not in document:
            continue
        value = document[key]
        if type(value) is not int:
            raise MisfitError((where, key), f"{str(value)[:40]!r} is not a whole number", "correct the value")
        if values.setdefault(name, value) != value:
            raise MisfitError((where, key), f"is {value}, and {name} is {values[name]}", "keep the right one")
    if not values:
        raise MisfitError(where, "holds no setting of a TS2Vec encoder", "leave it out: shapes determine all of them")
    return values


def settings_schema() -> dict[str, object]:
    """Every name of a configuration file that is read; others concern training and are ignored."""
    declared = fields_of(Config)
    return {
        "type": "object",
        "description": "Training configuration of a TS2Vec encoder. Shapes determine it; given values must agree.",
        "properties": {key: declared[name].schema() for key, name in NAMES.items()},
        "anyOf": [given(name) for name in NAMES],
    }


def parse_setting(key: str, text: str) -> object:
    """The value of one ``--set KEY=VALUE``; raises :class:`UsageError`."""
    names = fields_of(Config)
    if key not in names:
        raise UsageError(
            "--set", f"unknown name {key[:40]!r}", did_you_mean(key, names, f"use one of {', '.join(names)}")
        )
    return typed_setting(Config, key, text, "a whole number")
