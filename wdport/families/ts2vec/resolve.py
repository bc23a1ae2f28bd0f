"""Find an encoder's configuration: shapes determine all of it; given values must agree.

Dilations leave no trace in a file. Block i has 2^i: the public code builds no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from wdport.declared import given
from wdport.errors import MisfitError, UsageError
from wdport.families.stated import resolve_fields
from wdport.families.tensor_shapes import NUMBER, consecutive, most_frequent, size
from wdport.families.ts2vec.config import NAMES, Config
from wdport.fields import fields_of, typed_setting
from wdport.mapping.axes import Shape
from wdport.model import Document, Resolved, Source

_BLOCK = re.compile(rf"feature_extractor\.net\.{NUMBER}\.conv[12]\.conv\.weight")

_OUT = ("conv1.conv", "conv2.conv", "projector")
"""The parts of the last block; each has as many channels as the representation."""


def read_settings(document: Document, where: str | Path) -> dict[str, object]:
    """Read the fields of a configuration file; raises :class:`MisfitError` if it has none, or one of another type.

    Its other settings concern training and are ignored.
    """
    found: dict[str, object] = {}
    for key, name in NAMES.items():
        if key not in document:
            continue
        value = document[key]
        if type(value) is not int:
            raise MisfitError((where, key), f"{str(value)[:40]!r} is not a whole number", "correct the value")
        if found.setdefault(name, value) != value:
            raise MisfitError((where, key), f"is {value}, and {name} is {found[name]}", "keep the right one")
    if not found:
        raise MisfitError(where, "holds no setting of a TS2Vec encoder", "leave it out: shapes determine all of them")
    return found


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
        raise UsageError("--set", f"unknown name {key[:40]!r}", f"use one of {', '.join(names)}")
    return typed_setting(Config, key, text, "a whole number")


def resolve(source: Source, config: Document, flags: Document) -> Resolved:
    """The configuration; raises :class:`MisfitError` if the file lacks a layer or a given value contradicts it."""
    return resolve_fields(Config, source, from_shapes(source.shapes), config, flags, "a ts2vec encoder")


def from_shapes(shapes: Mapping[str, Shape]) -> dict[str, int | None]:
    """Every field as determined by the shapes; ``None`` for a field that they do not determine."""
    last = consecutive(int(found[1]) for name in shapes if (found := _BLOCK.fullmatch(name))) - 1
    first, end = "feature_extractor.net.0.conv1.conv.weight", f"feature_extractor.net.{last}"
    hidden = (("input_fc.bias", 0), ("input_fc.weight", 0), (first, 1))
    return {
        "input_dims": size(shapes, "input_fc.weight", 1),
        "hidden_dims": most_frequent(size(shapes, name, axis) for name, axis in hidden),
        "output_dims": most_frequent(size(shapes, f"{end}.{part}.bias", 0) for part in _OUT),
        "depth": last if last >= 0 else None,
        "kernel_size": most_frequent(size(shapes, name, 2) for name in shapes if _BLOCK.fullmatch(name)),
    }
