"""TS2Vec as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from wdport.families.ported import PortedFamily
from wdport.families.shapes import NUMBER, Shapes, consecutive, most_frequent, size
from wdport.families.ts2vec import config as settings
from wdport.families.ts2vec.config import Config
from wdport.model import Port, Signature
from wdport.recorder import LONGEST, parse_input

if TYPE_CHECKING:
    from wdport.families.roles import Documented, Encoding, Family
    from wdport.families.ts2vec.contrast import ContrastEncoder

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
    read_settings = staticmethod(settings.read_settings)
    settings_schema = staticmethod(settings.settings_schema)
    parse_setting = staticmethod(settings.parse_setting)

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
        from wdport.families.ts2vec.contrast import ContrastEncoder

        return ContrastEncoder(config)


FAMILY = TS2VecFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Encoding] = (FAMILY, FAMILY, FAMILY)
