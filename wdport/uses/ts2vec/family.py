"""TS2Vec as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from wdport.base.errors import MisfitError, UsageError, did_you_mean
from wdport.base.fields import fields_of, typed_setting
from wdport.base.shared_types import given
from wdport.families.ported import PortedFamily
from wdport.families.shapes import NUMBER, Shapes, consecutive, most_frequent, size
from wdport.models.interface import Document, Port, Signature
from wdport.recording.cases import LONGEST
from wdport.recording.input_text import parse_input
from wdport.uses.ts2vec.config import NAMES, Config

if TYPE_CHECKING:
    from wdport.families.roles import Documented, Family
    from wdport.uses.roles import Encoding
    from wdport.uses.ts2vec.contrast import ContrastEncoder

_BLOCK = re.compile(rf"feature_extractor\.net\.{NUMBER}\.conv[12]\.conv\.weight")

STEPS = 24
"""Length of the test series, except for the one that covers every dilation."""

USUAL: Mapping[str, int] = MappingProxyType({"hidden_dims": 64, "output_dims": 320, "depth": 10})
"""The sizes of the public code."""


class TS2VecFamily(PortedFamily[Config]):
    """An encoder in the roles of :mod:`wdport.families.roles`, without sampling."""

    name = "ts2vec"
    configuration = Config
    keras_class = "TS2Vec"
    model_phrase = "a ts2vec encoder"

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
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
            raise MisfitError(
                where, "holds no setting of a TS2Vec encoder", "leave it out: shapes determine all of them"
            )
        return values

    def settings_schema(self) -> dict[str, object]:
        """Every name of a configuration file that is read; others concern training and are ignored."""
        declared = fields_of(Config)
        properties = {key: declared[name].schema() for key, name in NAMES.items()}
        properties["repr_dims"]["description"] = "Another name for `output_dims`, used by the public training script."
        return {
            "type": "object",
            "description": "Training configuration of a TS2Vec encoder. The shapes of the checkpoint's tensors "
            "determine it; given values must agree.",
            "properties": properties,
            "anyOf": [given(name) for name in NAMES],
        }

    def parse_setting(self, key: str, text: str) -> object:
        names = fields_of(Config)
        if key not in names:
            raise UsageError(
                "--set", f"unknown name {key[:40]!r}", did_you_mean(key, names, f"use one of {', '.join(names)}")
            )
        return typed_setting(Config, key, text, "a whole number")

    def sizes(self, shapes: Shapes) -> dict[str, int | None]:
        """All fields. Dilations leave no trace in a file: block i has 2^i, and the public code builds no other."""
        # The public code appends one wider block to the `depth` others.
        last = consecutive(int(match[1]) for name in shapes if (match := _BLOCK.fullmatch(name))) - 1
        first, end = "feature_extractor.net.0.conv1.conv.weight", f"feature_extractor.net.{last}"
        hidden = (("input_fc.bias", 0), ("input_fc.weight", 0), (first, 1))
        outputs = [f"{end}.{part}.bias" for part in ("conv1.conv", "conv2.conv", "projector")]
        return {
            "input_dims": size(shapes, "input_fc.weight", 1),
            "hidden_dims": most_frequent(size(shapes, name, axis) for name, axis in hidden),
            "output_dims": most_frequent(size(shapes, name, 0) for name in outputs),
            "depth": last if last >= 0 else None,
            "kernel_size": most_frequent(size(shapes, name, 2) for name in shapes if _BLOCK.fullmatch(name)),
        }

    def signature(self, config: Config) -> Signature:
        """Series (B, T, F) of 24 steps, some of them missing; one is longer, so that both outer taps of the widest
        dilation see values."""
        series = parse_input(f"x: b t={STEPS} {config.input_dims}")
        # The outer tap of a convolution is half its width times its dilation away from the middle.
        longest = max(config.kernel_size // 2 * 2**config.depth + STEPS, LONGEST)
        outputs = (Port("representation"), Port("embedding"))
        return Signature((replace(series, alone={"t": longest}),), outputs, free={"t": 1})

    def usual(self, features: int) -> Config:
        return Config(features, **USUAL)

    def encoded(self, config: Config) -> int:
        return config.input_dims

    def series_encoder(self, config: Config) -> ContrastEncoder:
        from wdport.uses.ts2vec.contrast import ContrastEncoder

        return ContrastEncoder(config)


FAMILY = TS2VecFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Encoding] = (FAMILY, FAMILY, FAMILY)
