"""TS2Vec as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from wdport.families.ported import PortedFamily
from wdport.families.ts2vec import resolve
from wdport.families.ts2vec.config import Config
from wdport.model import Array, Port, Signature
from wdport.recorder import LONGEST, parse_input

if TYPE_CHECKING:
    from torch.nn import Module

    from wdport.families.roles import Documented, Encoding, Family
    from wdport.families.ts2vec.contrast import Encoder

STEPS = 24
"""Length of the test series, except for the one that covers every dilation."""

USUAL: Mapping[str, int] = MappingProxyType({"hidden_dims": 64, "output_dims": 320, "depth": 10})
"""The sizes of the public code."""


class TS2VecFamily(PortedFamily[Config]):
    """An encoder in the roles of :mod:`wdport.families.roles`, without sampling."""

    name = "ts2vec"
    configuration = Config
    keras_class = "TS2Vec"
    read_settings = staticmethod(resolve.read_settings)
    settings_schema = staticmethod(resolve.settings_schema)
    parse_setting = staticmethod(resolve.parse_setting)
    resolve = staticmethod(resolve.resolve)

    def build_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str) -> Module:
        import torch

        from wdport.families.ts2vec.reference import build_reference

        return build_reference(config, tensors, getattr(torch, dtype))

    def signature(self, config: Config) -> Signature:
        """Series (B, T, F) of 24 steps, some of them missing; one is longer, so that both outer taps of the widest
        dilation see values."""
        series = parse_input(f"x: b t={STEPS} {config.input_dims}")
        longest = max(config.kernel_size // 2 * 2**config.depth + STEPS, LONGEST)
        outputs = (Port("representation"), Port("embedding"))
        return Signature((replace(series, alone={"t": longest}),), outputs, free={"t": 1})

    def usual(self, features: int) -> Config:
        return Config(features, **USUAL)

    def encoded(self, config: Config) -> int:
        return config.input_dims

    def series_encoder(self, config: Config) -> Encoder:
        from wdport.families.ts2vec.contrast import Encoder

        return Encoder(config)


FAMILY = TS2VecFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Encoding] = (FAMILY, FAMILY, FAMILY)
