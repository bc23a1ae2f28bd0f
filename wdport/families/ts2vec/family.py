"""TS2Vec as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from wdport.compare.bounds import Bound
from wdport.compare.findings import Gate
from wdport.families.ts2vec import resolve
from wdport.families.ts2vec.config import Config
from wdport.mapping.axes import Shape
from wdport.model import Array, Constant, Document, KerasModel, Port, Resolved, Signature, Source
from wdport.recorder import LONGEST, parse_input

if TYPE_CHECKING:
    from torch.nn import Module

    from wdport.families.mutants import Mutant
    from wdport.families.roles import Documented, Encoding, Family
    from wdport.families.ts2vec.contrast import Encoder
    from wdport.families.ts2vec.port import TS2Vec

STEPS = 24
"""Length of the test series, except for the one that covers every dilation."""

USUAL: Mapping[str, int] = MappingProxyType({"hidden_dims": 64, "output_dims": 320, "depth": 10})
"""The sizes of the public code."""


class TS2VecFamily:
    """An encoder in the roles of :mod:`wdport.families.roles`, without sampling."""

    name = "ts2vec"
    bounds: Mapping[str, Bound] = MappingProxyType({})
    rests_on: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    shown: Mapping[str, str] = MappingProxyType({
        "input_dims": "input_dims", "hidden_dims": "hidden_dims", "output_dims": "output_dims", "depth": "depth",
    })  # fmt: skip

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        return resolve.read_settings(document, where)

    def settings_schema(self) -> dict[str, object]:
        from wdport.families.ts2vec.form import settings_schema

        return settings_schema()

    def parse_setting(self, key: str, text: str) -> object:
        return resolve.parse_setting(key, text)

    def resolve(self, source: Source, config: Document, flags: Document) -> Resolved:
        return resolve.resolve(source, config, flags)

    def features(self, config: Config) -> frozenset[str]:
        return frozenset()

    def variables(self, config: Config) -> dict[str, Shape]:
        from wdport.families.ts2vec.variables import variables_of

        return dict(variables_of(config))

    def constants(self, config: Config) -> dict[str, Constant]:
        return {}

    def load_config(self, values: Document) -> Config:
        return Config.from_dict(values)

    def keras_document(self, config: Config) -> dict[str, object]:
        return {
            "module": "wdport.families.ts2vec.port",
            "class_name": "TS2Vec",
            "config": {"name": "ts2vec", "dtype": "float32", "config": config.to_dict()},
            "registered_name": "wdport>TS2Vec",
            "compile_config": {},
        }

    def build(self, config: Config, dtype: str | None = None) -> TS2Vec:
        import keras  # noqa: F401  before our modules that need it: importing it imports the ports

        from wdport.families.ts2vec.port import TS2Vec

        with self.unfilled():
            return TS2Vec(config, dtype=dtype)

    def unfilled(self) -> AbstractContextManager[None]:
        import keras  # noqa: F401  as in build

        from wdport.keras_runtime import unfilled

        return unfilled()

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

    def gates(self, config: Config) -> Sequence[Gate]:
        return ()

    def mutants(self, config: Config) -> tuple[Mutant, ...]:
        from wdport.families.ts2vec.mutants import mutants

        return mutants(config)

    def usual(self, features: int) -> Config:
        return Config(features, **USUAL)

    def encoded(self, config: Config) -> int:
        return config.input_dims

    def series_encoder(self, config: Config) -> Encoder:
        from wdport.families.ts2vec.contrast import Encoder

        return Encoder(config)

    def port_tables(self, model: KerasModel) -> dict[str, Array]:
        return {}


FAMILY = TS2VecFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Encoding] = (FAMILY, FAMILY, FAMILY)
